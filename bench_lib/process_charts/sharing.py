"""Processes that share a GPU: throughput and latency by their number, time-sliced and under MPS."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bench_lib.comparing.replicates import SECONDS
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import BLUE, STYLE, new_figure, shown, subtitle, title
from bench_lib.drawing.dotplot import Look, log_ticks
from bench_lib.drawing.family_data import (
    Median,
    against,
    dots_text,
    doubt_text,
    failed_text,
    gain_text,
    medians,
    of_family,
    to_tell,
    where_text,
)
from bench_lib.drawing.marks import doubling_axis, draw_curve, legend
from bench_lib.errors import UsageError
from bench_lib.units import seconds_text

FAMILY = "mps"
SLICED, MPS = "time_sliced", "mps"
WAYS = {SLICED: ("time-sliced", Look("#555555", "D")), MPS: ("under MPS", Look(BLUE, "o"))}
OPS = {"small_kernels": "small kernels", "gemm": "matrix products", "one_thread": "kernels of one thread"}
LATENCIES = {"latency": "-", "latency_p99": ":"}  # metric -> how its line is drawn
Value = Callable[[float], float]


@matplotlib.rc_context(STYLE)
def sharing(data: Data) -> Figure:
    """Requests a second of all clients, and seconds of a request for one, by the number of clients.

    `data`: one stack's; a row a kind of work. Raises UsageError where nothing was measured.
    """
    family = of_family(data, FAMILY)
    times = [one for one in medians(family) if one.unit == SECONDS and one.params.get("sharing") in WAYS]
    ops = [op for op in OPS if any(one.op == op for one in times)]
    if not ops:
        raise UsageError("no clients that share a GPU were measured; measure with --family mps on a GPU")
    figure = new_figure(12.0, 1.0 + 3.5 * len(ops))
    panels = figure.subplots(len(ops), 2, squeeze=False)
    for (left, right), op in zip(panels, ops, strict=True):
        own = [one for one in times if one.op == op]
        _throughput(left, [one for one in own if one.metric == "per_request"])
        _latency(right, [one for one in own if one.metric in LATENCIES])
        runs = dots_text(len(one.runs) for one in own)
        subtitle(left, [f"{OPS[op].capitalize()}: what all clients do together.", runs], 72)
        told = "A request for its client: median (solid) and 99th percentile (dotted)."
        subtitle(right, [told, where_text(data) if op == ops[0] else failed_text(family)], 72)
    title(figure, _finding(family, ops))
    there = [way for way in WAYS if any(one.params["sharing"] == way for one in times)]
    legend(figure, dict(WAYS[way] for way in there), 2)
    return figure


def _throughput(axes: Axes, times: Sequence[Median]) -> None:
    for way, (_, look) in WAYS.items():
        _line(
            axes, [one for one in times if one.params["sharing"] == way], look, "-", lambda value: 1 / value
        )
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_ylabel("requests a second")
    _clients_axis(axes, times)


def _latency(axes: Axes, times: Sequence[Median]) -> None:
    for way, (_, look) in WAYS.items():
        for metric, style in LATENCIES.items():
            own = [one for one in times if one.params["sharing"] == way and one.metric == metric]
            _line(axes, own, look, style, lambda value: value)
    values = [value for one in times for value in (one.value, *one.runs)] or [1.0]
    axes.set_yscale("log")
    axes.set_ylim(min(values) / 1.3, max(values) * 1.3)
    log_ticks(axes.yaxis, 1.69 * max(values) / min(values), seconds_text)
    axes.set_ylabel("seconds a request (log scale)")
    _clients_axis(axes, times)


def _line(axes: Axes, times: Sequence[Median], look: Look, style: str, of: Value) -> None:
    """A line through the medians, a dot a run."""
    dots = [(int(one.params["clients"]), [of(value) for value in (one.value, *one.runs)]) for one in times]
    draw_curve(axes, sorted(dots), look.colour, look.marker, style)


def _clients_axis(axes: Axes, times: Sequence[Median]) -> None:
    counts = sorted({int(one.params["clients"]) for one in times}) or [1]
    doubling_axis(axes, counts[0] / 1.25, counts[-1] * 1.25, counts)
    axes.set_xlabel("client processes")


def _finding(family: Data, ops: Sequence[str]) -> str:
    """How many times as much most clients do together under MPS, by kind of work."""
    rows = [row for row in against(family, "sharing", SLICED).get(MPS, ()) if row.metric == "per_request"]
    found, doubt = to_tell([row for row in rows if row.ratio])
    if not found:
        return "Processes that share a GPU"
    most = max(int(row.params["clients"]) for row in found)
    told = [
        f"{gain_text(row, doubt_text(row))} times in {OPS[op]}"
        for op in ops
        for row in found
        if row.ratio and row.op == op and int(row.params["clients"]) == most
    ]
    clients = f"{most} client{'s' * (most > 1)}"
    return shown(f"{clients} under MPS against time-sliced, requests a second: {', '.join(told)}{doubt}", 200)
