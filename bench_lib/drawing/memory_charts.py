"""Charts of managed memory: the bandwidth of migration by size, and what exchanging parameters costs."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench_lib.comparing.changes import CaseChange
from bench_lib.comparing.replicates import SECONDS
from bench_lib.comparing.stats import FEWEST
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import (
    BLACK,
    BLUE,
    GREEN,
    SKY,
    STYLE,
    VERMILLION,
    interval_text,
    new_figure,
    shown,
    subtitle,
    title,
)
from bench_lib.drawing.dotplot import log_ticks
from bench_lib.drawing.family_data import (
    Median,
    against,
    dots_text,
    failed_text,
    few_text,
    gigabytes,
    medians,
    of_family,
    where_text,
)
from bench_lib.drawing.marks import Bar, doubling_axis, draw_bars, draw_curve, legend
from bench_lib.errors import UsageError
from bench_lib.units import MIB, nbytes_text, seconds_text

FAMILY = "unified_memory"
EDGE_OCTAVES = 0.75  # beside the smallest and the largest size
DIRECTIONS = {"to_gpu": "From the CPU to the GPU", "to_cpu": "From the GPU to the CPU"}
SECOND_TOUCH = "second_touch"  # nothing moves in it


class Way(NamedTuple):
    """One way to move memory: its parameters, and how it is drawn."""

    way: str
    order: str
    advise: str
    access: str
    name: str
    colour: str
    marker: str


# In the order of the legend; a way that is not among them is drawn in grey under its parameters.
WAYS = (
    Way("pinned", "sequential", "none", "write", "copy from or to pinned memory", BLACK, "D"),
    Way("pageable", "sequential", "none", "write", "copy from or to pageable memory", "#8a8a8a", "D"),
    Way("prefetch", "sequential", "none", "write", "prefetch", GREEN, "o"),
    Way("faults", "sequential", "none", "write", "faults, in order", BLUE, "o"),
    Way("faults", "strided", "none", "write", "faults, strided", BLUE, "s"),
    Way("faults", "random", "none", "write", "faults, random", BLUE, "^"),
    Way("faults", "sequential", "none", "read", "faults, reads only", SKY, "o"),
    Way("faults", "sequential", "read_mostly", "read", "reads only, advised SetReadMostly", SKY, "P"),
    Way(
        "faults", "sequential", "preferred_location", "write", "advised SetPreferredLocation", VERMILLION, "v"
    ),
)


@matplotlib.rc_context(STYLE)
def migration(data: Data) -> Figure:
    """Bandwidth of moving managed memory against its size, beside plain copies: a panel a direction.

    `data`: one stack's. Raises UsageError where no migration was measured.
    """
    family = of_family(data, FAMILY)
    moves = [
        one
        for one in medians(family)
        if one.op == "migrate" and one.unit == SECONDS and one.params.get("way") != SECOND_TOUCH
        if one.nbytes > 0  # NaN where no page moves: a touch over the link has no bandwidth
    ]
    if not moves:
        raise UsageError("no migration was measured; measure the family unified_memory on a GPU")
    there = [name for name in DIRECTIONS if any(one.params.get("direction") == name for one in moves)]
    figure = new_figure(12.0, 5.6)
    panels = figure.subplots(1, len(there), sharey=True, squeeze=False)[0]
    marks: dict[str, Line2D] = {}
    for axes, direction in zip(panels, there, strict=True):
        _draw_moves(axes, [one for one in moves if one.params.get("direction") == direction], marks)
        axes.set_xlabel("MiB moved (log scale)")
    _bandwidth_axis(panels[0], moves)
    said = [dots_text(len(one.runs) for one in moves), failed_text(family)], [where_text(data, "cudart")]
    for axes, direction, sentences in zip(panels, there, said, strict=False):
        subtitle(axes, [f"{DIRECTIONS[direction]}.", *sentences], 80)
    title(figure, _migration_title(moves))
    ordered = [marks[way.name] for way in WAYS if way.name in marks]
    others = [mark for name, mark in marks.items() if name not in {way.name for way in WAYS}]
    legend(figure, {}, 4, *ordered, *others)
    return figure


def _draw_moves(axes: Axes, moves: Sequence[Median], marks: dict[str, Line2D]) -> None:
    """A line a way through the medians, a dot a run; ways stand a little apart in each size."""
    by_way: dict[Way, list[Median]] = {}
    for one in moves:
        by_way.setdefault(_way(one.params), []).append(one)
    sizes = sorted({one.nbytes for one in moves})
    octaves = math.log2(sizes[-1] / sizes[0]) + 2 * EDGE_OCTAVES
    ways = sorted(by_way, key=lambda way: WAYS.index(way) if way in WAYS else len(WAYS))
    for i, way in enumerate(ways):
        found = sorted(by_way[way], key=lambda one: one.nbytes)
        aside = 2 ** (0.007 * octaves * (i - (len(ways) - 1) / 2))
        dots = [(one.nbytes * aside, gigabytes(one)) for one in found]
        marks[way.name] = draw_curve(axes, dots, way.colour, way.marker, label=shown(way.name, 60))
    edge = 2**EDGE_OCTAVES
    doubling_axis(axes, sizes[0] / edge, sizes[-1] * edge, sizes, lambda nbytes: f"{nbytes / MIB:g}")


def _way(params: Mapping[str, Any]) -> Way:
    way, order, advise, access = (str(params.get(name, "")) for name in ("way", "order", "advise", "access"))
    other = Way(way, order, advise, access, f"{way}, {order}, {advise}, {access}", "#8a8a8a", "*")
    return next((known for known in WAYS if known[:4] == other[:4]), other)


def _bandwidth_axis(axes: Axes, moves: Sequence[Median]) -> None:
    values = [value for one in moves for value in gigabytes(one)[1:]]
    low, high = min(values) / 1.2, max(values) * 1.2
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    log_ticks(axes.yaxis, high / low)
    axes.set_ylabel("GB/s (log scale)")


def _migration_title(moves: Sequence[Median]) -> str:
    """To the GPU, at the largest size that has them all: faults, prefetch and the pinned copy."""
    plain = ("sequential", "none", "write")
    by_size: dict[float, dict[str, float]] = {}
    for one in moves:
        way = _way(one.params)
        if one.params.get("direction") == "to_gpu" and (way.order, way.advise, way.access) == plain:
            by_size.setdefault(one.nbytes, {})[way.way] = gigabytes(one)[0]
    whole = [size for size, rates in by_size.items() if {"faults", "prefetch", "pinned"} <= rates.keys()]
    if not whole:
        return "Moving managed memory: bandwidth by size"
    rates = by_size[max(whole)]
    few = few_text(len(one.runs) for one in moves)
    return (
        f"{nbytes_text(max(whole))} to the GPU: {rates['faults']:.3g} GB/s by page faults, "
        f"{rates['prefetch']:.3g} by prefetch, {rates['pinned']:.3g} by a pinned copy{few}"
    )


# --- exchanging parameters, and one fault


class Kind(NamedTuple):
    """A name and a colour."""

    name: str
    colour: str


SWAPS = {
    "faults": Kind("by page faults", BLUE),
    "prefetch": Kind("by prefetch", GREEN),
    "pinned": Kind("by pinned copies", "#555555"),
}
SWAP_METRICS = {
    "exchange": "Of a step, what moving the weights to the GPU and back takes.",
    "step": "The whole step: weights moved, GPU pass, weights moved, CPU pass.",
}
ORDERS = {"sequential": Kind("in order", BLUE), "random": Kind("random", SKY)}


@matplotlib.rc_context(STYLE)
def exchange(data: Data) -> Figure:
    """What a step pays to exchange a Transformer's weights between GPU and CPU, and one page fault.

    `data`: one stack's. Raises UsageError where neither was measured.
    """
    family = of_family(data, FAMILY)
    times = [one for one in medians(family) if one.unit == SECONDS]
    swaps = {(one.metric, str(one.params.get("way"))): one for one in times if one.op == "param_swap"}
    faults = {str(one.params.get("order")): one for one in times if one.op == "fault"}
    drawn = [metric for metric in SWAP_METRICS if any(key[0] == metric for key in swaps)]
    if not drawn and not faults:
        raise UsageError(
            "no exchange of parameters and no fault was measured; measure the family unified_memory on a GPU"
        )
    baseline = "pinned" if ("exchange", "pinned") in swaps else "prefetch"
    changes = {
        (row.metric, way): row
        for way, rows in against(family, "way", baseline).items()
        for row in rows
        if row.op == "param_swap" and row.ratio
    }
    figure = new_figure(12.0, 4.4)
    panels = list(figure.subplots(1, len(drawn) + bool(faults), squeeze=False)[0])
    told = []
    for axes, metric in zip(panels, drawn, strict=False):
        own = {way: row for (of, way), row in changes.items() if of == metric}
        there = [way for way in SWAPS if (metric, way) in swaps]
        taken = [_bar(SWAPS[way], swaps[metric, way], own.get(way)) for way in there]
        draw_bars(axes, taken, seconds_text)
        told.append([SWAP_METRICS[metric], *_swap_text(taken, own.values(), SWAPS[baseline].name)])
    if faults:
        taken = [_bar(ORDERS[order], faults[order]) for order in ORDERS if order in faults]
        draw_bars(panels[-1], taken, seconds_text)
        runs = dots_text(len(bar.runs) for bar in taken)
        told.append(["One page fault of the GPU, by the order of a chain of them.", runs])
    for axes, sentences in zip(panels, told, strict=True):
        subtitle(
            axes, [*sentences, where_text(data, "cudart") if axes is panels[-1] else ""], 150 // len(told)
        )
    title(figure, _exchange_title(swaps))
    return figure


def _bar(kind: Kind, one: Median, compared: CaseChange | None = None) -> Bar:
    """A median in seconds, and under the number how it compares."""
    beside = interval_text(compared).replace(" [", "\n[")
    text = "\n".join(filter(None, (seconds_text(one.value), beside)))
    return Bar(kind.name, kind.colour, one.value, one.runs, text)


def _swap_text(taken: Sequence[Bar], changes: Collection[CaseChange], baseline: str) -> list[str]:
    """How many runs the bars stand for, and what stands under the times."""
    told = [dots_text(len(bar.runs) for bar in taken)]
    if changes:
        told.append(f"Under the time: its ratio to that {baseline}")
        fewest = min(row.n for row in changes)
        told[-1] += f"; intervals need {FEWEST} runs." if fewest < FEWEST else " [95 % interval]."
    return told


def _exchange_title(swaps: Mapping[tuple[str, str], Median]) -> str:
    told = [
        f"{seconds_text(swaps['exchange', way].value)} {name}"
        for way, (name, _) in SWAPS.items()
        if ("exchange", way) in swaps
    ]
    if not told:
        return "What a page fault costs"
    few = few_text(len(one.runs) for one in swaps.values())
    return f"Exchanging a Transformer's weights in every step costs {', '.join(told)}{few}"
