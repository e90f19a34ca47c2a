"""Charts of torch's CUDA allocator: what it reserves for traces, what an allocation costs; and soaks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench_lib.comparing.replicates import SECONDS, params_of
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import (
    BLUE,
    GREEN,
    STYLE,
    VERMILLION,
    new_figure,
    reference,
    shown,
    subtitle,
    title,
)
from bench_lib.drawing.dotplot import Line, Look, Places, Point, log_axis, panels
from bench_lib.drawing.family_data import (
    Median,
    dots_text,
    failed_text,
    few_text,
    medians,
    of_family,
    where_text,
)
from bench_lib.drawing.marks import legend
from bench_lib.errors import UsageError
from bench_lib.model import Status
from bench_lib.units import ends_text, seconds_text

FAMILY = "allocator"
BACKENDS = {
    "native": Look(BLUE, "o"),
    "expandable_segments": Look(VERMILLION, "s"),
    "cudaMallocAsync": Look(GREEN, "^"),
}
TRACES = {
    "transformer": "a Transformer's training, recorded",
    "diffusion": "images by a U-Net, made up",
    "adversarial": "an adversary's sizes, made up",
}
RESERVED, NEEDED, AGAIN, FIRST = "reserved", "needed", "again", "first"
HOLLOW = (NEEDED, FIRST)  # how the second number of each panel is drawn

Spread = Mapping[tuple[str, str], Median]  # trace and backend -> number


@matplotlib.rc_context(STYLE)
def allocator(data: Data) -> Figure:
    """Memory reserved for each trace over its peak, beside the least that suffices; and times an allocation.

    `data`: one stack's. Raises UsageError where no replay was measured.
    """
    family = of_family(data, FAMILY)
    known = medians(family)
    reserved, peak = (_of(known, unit, AGAIN) for unit in ("peak_reserved_nbytes", "peak_nbytes"))
    shares = {key: _over(reserved[key], peak[key]) for key in reserved.keys() & peak.keys()}
    times = {metric: _of(known, SECONDS, metric) for metric in (AGAIN, FIRST)}
    if not shares:
        raise UsageError("no trace was replayed; measure the family allocator on a GPU")
    memory = [*_points(shares, RESERVED), *_points(_of(known, "needed_peaks", "limited"), NEEDED)]
    costs = [point for metric, spread in times.items() for point in _points(spread, metric)]
    looks = {
        f"{name}, {what}": look._replace(filled=what not in HOLLOW)
        for what in (RESERVED, NEEDED, AGAIN, FIRST)
        for name, look in BACKENDS.items()
    }
    there = {trace for trace, _ in shares}
    lines = [Line("", name) for trace, name in TRACES.items() if trace in there]
    places = Places(lines, [memory, costs], 0.3)
    figure, (left, right) = panels(places, 9.0, [1, 1])
    for axes, points in ((left, memory), (right, costs)):
        places.draw(axes, points, looks)
    log_axis(left, memory, [1.0])
    reference(left)
    left.set_xlabel("memory over the peak of the trace (log scale)")
    log_axis(right, costs, text=seconds_text)
    right.set_xlabel("an allocation with its release, host time (log scale)")
    runs = [len(one.runs) for one in reserved.values()]
    subtitle(
        left, ["Filled: reserved. Hollow: the least that suffices.", dots_text(runs), failed_text(family)], 58
    )
    how = "Filled: with a cache that has seen the trace. Hollow: with an empty one."
    subtitle(right, [how, where_text(data, "torch")], 58)
    title(figure, _reserved_title(shares, few_text(runs)))
    drawn = {backend for _, backend in shares}
    legend(figure, {name: look for name, look in BACKENDS.items() if name in drawn}, 3)
    return figure


def _of(known: Iterable[Median], unit: str, metric: str) -> dict[tuple[str, str], Median]:
    """The numbers of traces by trace and backend; of those the chart knows."""
    return {
        (trace, backend): one
        for one in known
        if one.unit == unit and one.metric == metric
        if (trace := str(one.params.get("trace"))) in TRACES
        if (backend := str(one.params.get("backend"))) in BACKENDS
    }


def _over(one: Median, other: Median) -> Median:
    """One quantity over another, run by run where both have as many."""
    same = len(one.runs) == len(other.runs)
    runs = tuple(a / b for a, b in zip(one.runs, other.runs, strict=True)) if same else ()
    return replace(one, unit="", value=one.value / other.value, runs=runs)


def _points(spread: Spread, what: str) -> list[Point]:
    return [
        Point(Line("", TRACES[trace]), f"{backend}, {what}", one.value, runs=one.runs)
        for (trace, backend), one in spread.items()
    ]


def _reserved_title(shares: Spread, few: str) -> str:
    told = []
    for backend in BACKENDS:
        values = sorted(one.value for (_, own), one in shares.items() if own == backend)
        if values:
            told.append(f"{backend} {ends_text(f'{value:.3g}' for value in (values[0], values[-1]))}")
    return f"Memory reserved over what a trace needs at its peak: {', '.join(told)} times{few}"


# --- soaks


@matplotlib.rc_context(STYLE)
def soak(data: Data) -> Figure:
    """A soak over its time: what an allocation took, and what was reserved, by backend, a line a run.

    `data`: one stack's. Raises UsageError where no soak was measured.
    """
    family = of_family(data, FAMILY)
    rows = family.cases[(family.cases["op"] == "soak") & (family.cases["status"] == Status.OK)]
    if rows.empty:
        raise UsageError("no soak was measured; measure the family allocator with --soak 30")
    figure = new_figure(12.0, 4.6)
    left, right = figure.subplots(1, 2)
    for _, row in rows.iterrows():
        params = params_of(row["params"])
        look, minutes = BACKENDS.get(str(params.get("backend"))), float(params.get("minutes", 0.0))
        if look is not None:
            _draw_over(left, _seconds(family, row), minutes, look)
            _draw_over(right, _reserved_gib(row["facts"]), minutes, look)
    left.yaxis.set_major_formatter(lambda value, _: seconds_text(value) if value else "0")
    left.set_ylabel("an allocation with its release")
    right.set_ylabel("GiB reserved")
    for axes in (left, right):
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
    n = rows.groupby("case_id")["run_id"].nunique()
    subtitle(left, [f"All traces in random order; a line a run, {n.max()} of each backend."], 78)
    subtitle(right, [where_text(data, "torch"), failed_text(family)], 78)
    title(figure, _soak_title(family, few_text(n)))
    drawn = {str(params_of(text).get("backend")) for text in rows["params"]}
    legend(figure, {name: look for name, look in BACKENDS.items() if name in drawn}, 3)
    return figure


def _seconds(family: Data, row: Any) -> Sequence[float]:
    """The samples of one case in their order."""
    run, case = (pc.equal(family.samples[name], str(row[name])) for name in ("run_id", "case_id"))
    own = pc.and_(run, case)
    table = family.samples.filter(own).sort_by("sample")
    return [float(value) for value in table["seconds"].to_pylist()]


def _reserved_gib(facts: Any) -> Sequence[float]:
    told = dict(facts or {}).get("soak.reserved_mib", "")
    return [float(part) / 1024 for part in str(told).split() if part.replace(".", "").isdecimal()]


def _draw_over(axes: Axes, values: Sequence[float], minutes: float, look: Look) -> None:
    at = minutes * (np.arange(len(values)) + 0.5) / max(len(values), 1)
    axes.plot(at, values, color=look.colour, marker=look.marker, markersize=3, linewidth=0.9, alpha=0.8)


def _soak_title(family: Data, few: str) -> str:
    told = []
    for backend in BACKENDS:
        found = {
            one.unit: one.value
            for one in medians(family)
            if one.op == "soak" and one.params.get("backend") == backend
        }
        if {"reserved_growth", "time_growth"} <= found.keys():
            grown = [f"{found[name] - 1:+.1%}" for name in ("reserved_growth", "time_growth")]
            told.append(f"{shown(backend)} {grown[0]} and {grown[1]}")
    return f"Growth of memory reserved and of times, last third over first: {', '.join(told)}{few}"
