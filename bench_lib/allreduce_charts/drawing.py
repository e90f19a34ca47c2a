"""AllReduce by message size: latency up to 1 MiB, bus bandwidth over all sizes. Nothing is smoothed."""

import math
from collections.abc import Callable, Iterable, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from bench_lib.allreduce_charts.curves import Curve, Curves, Dot, World, by_size, by_version, rank
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import COLOURS, GREY, STYLE, new_figure, shown, subtitle, title
from bench_lib.drawing.dotplot import log_ticks
from bench_lib.drawing.family_data import dots_text, where_text
from bench_lib.drawing.marks import doubling_axis, draw_curve, legend
from bench_lib.units import MIB, names_text, nbytes_text, seconds_text

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_STROKES = ("-", "--", ":", "-.")
_NAMED_IN_TITLE = 3
_EDGE_OCTAVES = 0.6
_MOST_TICKS = 8
_FEW_TICKS = 4, 40  # between these spans 1, 2 and 5 alone would be too few
_LABEL_HEIGHT = 0.2  # of the axes


@matplotlib.rc_context(STYLE)
def allreduce(data: Data) -> Figure:
    """AllReduce by size of every stack: torch's, NCCL's own, nccl-tests'.

    Raises UsageError where none was measured.
    """
    return _figure(data, by_size(data))


@matplotlib.rc_context(STYLE)
def nccl_versions(data: Data) -> Figure:
    """AllReduce by size through several libnccls, measured in turns. Raises UsageError without a ladder."""
    return _figure(data, by_version(data))


def _figure(data: Data, found: Curves) -> Figure:
    several = found.world.ranks > 1
    figure = new_figure(12.0, 5.8)
    panels = figure.subplots(1, 2 if several else 1, squeeze=False)[0]
    looks = _looks(found.curves)
    small = [curve for curve in found.curves if curve.dots[0].nbytes <= MIB]
    most = MIB if small and several else math.inf
    marks = _latency(panels[0], small or list(found.curves), looks, most)
    if several:
        marks |= _bandwidth(panels[1], found, looks)
    runs = dots_text(len(dot.runs) for curve in found.curves for dot in curve.dots)
    alone = "" if several else "One rank: nothing moves between ranks, so there is no bus bandwidth."
    larger = any(dot.nbytes > most for curve in found.curves for dot in curve.dots)
    beside = f"Messages of more than {nbytes_text(most)} are in the other panel." if larger else ""
    says = [f"Time of an AllReduce: {found.world}.", runs, alone, beside, _others(found.others)]
    subtitle(panels[0], [one for one in says if one], 74 if several else 150)
    if several:
        subtitle(panels[1], [_bandwidth_text(found), where_text(data)], 74)
    title(figure, _title(found))
    legend(figure, {}, 3, *marks.values())
    return figure


def _others(worlds: Sequence[World]) -> str:
    """The sentence on curves that are not drawn, and what they are of."""
    if not worlds:
        return ""
    number = "1 curve is" if len(worlds) == 1 else f"{len(worlds)} curves are"
    return f"{number} not drawn: {names_text(list(dict.fromkeys(map(str, worlds))), _NAMED_IN_TITLE, '; ')}."


def _looks(curves: Sequence[Curve]) -> dict[Curve, tuple[str, str, str]]:
    """Colour by stack or version; marker and stroke by way."""
    stacks = list(dict.fromkeys(curve.stack for curve in curves))
    ways = sorted({curve.way for curve in curves}, key=rank)
    return {
        curve: (
            COLOURS[stacks.index(curve.stack) % len(COLOURS)],
            _MARKERS[ways.index(curve.way) % len(_MARKERS)],
            _STROKES[ways.index(curve.way) % len(_STROKES)],
        )
        for curve in curves
    }


def _latency(
    axes: Axes, curves: Sequence[Curve], looks: dict[Curve, tuple[str, str, str]], most: float
) -> dict[str, Line2D]:
    """Microseconds on logarithmic axes, up to `most` bytes."""
    kept = {curve: [dot for dot in curve.dots if dot.nbytes <= most] for curve in curves}
    marks = _draw(axes, kept, looks, lambda _, seconds: seconds * 1e6)
    values = [seconds * 1e6 for dots in kept.values() for dot in dots for seconds in (dot.seconds, *dot.runs)]
    low, high = min(values) / 1.15, max(values) * 1.35
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    log_ticks(axes.yaxis, high / low)
    if _FEW_TICKS[0] < high / low < _FEW_TICKS[1]:
        axes.yaxis.set_major_locator(
            FixedLocator([d * 10.0**p for p in range(-1, 6) for d in (1, 2, 3, 5, 7)])
        )
    axes.set_ylabel("µs (log scale)")
    return marks


def _bandwidth(axes: Axes, found: Curves, looks: dict[Curve, tuple[str, str, str]]) -> dict[str, Line2D]:
    """Bus bandwidth in GB/s over all sizes; the link's peak as a line."""
    kept = {curve: list(curve.dots) for curve in found.curves}
    marks = _draw(axes, kept, looks, lambda dot, seconds: dot.gigabytes(seconds, found.world.ranks))
    if found.peak is not None:
        label = f"NVLink's peak, {found.peak:g} GB/s in one direction"
        marks[label] = axes.axhline(found.peak, color=GREY, linewidth=1.0, linestyle=(0, (6, 3)), label=label)
    axes.set_ylim(0, 1.12 * max(axes.get_ylim()[1], found.peak or 0.0))
    axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.set_ylabel("bus bandwidth, GB/s")
    return marks


def _draw(
    axes: Axes,
    kept: dict[Curve, list[Dot]],
    looks: dict[Curve, tuple[str, str, str]],
    value: Callable[[Dot, float], float],
) -> dict[str, Line2D]:
    """A line through the medians, a small dot a run, and what NCCL chooses where it begins to."""
    marks: dict[str, Line2D] = {}
    for curve, dots in kept.items():
        colour, marker, stroke = looks[curve]
        label = shown(f"{curve.stack}: {curve.way}", 60)
        heights = [(dot.nbytes, [value(dot, one) for one in (dot.seconds, *dot.runs)]) for dot in dots]
        marks[label] = draw_curve(axes, heights, colour, marker, stroke, label)
    _mark_choices(axes, kept, looks)
    _size_axis(axes, sorted({dot.nbytes for dots in kept.values() for dot in dots}))
    return marks


def _mark_choices(axes: Axes, kept: dict[Curve, list[Dot]], looks: dict[Curve, tuple[str, str, str]]) -> None:
    """What NCCL chooses, written where it begins to; once for curves that choose alike."""
    told: dict[float, dict[str, set[str]]] = {}
    for curve, dots in kept.items():
        sizes = {dot.nbytes for dot in dots}
        for nbytes, choice in curve.choices():
            if nbytes in sizes:
                told.setdefault(nbytes, {}).setdefault(choice, set()).add(looks[curve][0])
    for nbytes, choices in sorted(told.items()):
        at = nbytes / math.sqrt(2)
        axes.axvline(at, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0.8)
        for i, (choice, colours) in enumerate(choices.items()):
            axes.text(
                at,
                0.985 - _LABEL_HEIGHT * i,
                choice,
                transform=axes.get_xaxis_transform(),
                rotation=90,
                ha="left",
                va="top",
                fontsize=8,
                color=next(iter(colours)) if len(colours) == 1 else GREY,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.8},
            )


def _size_axis(axes: Axes, sizes: Sequence[float]) -> None:
    step = -(-len(sizes) // _MOST_TICKS)
    edge = 2**_EDGE_OCTAVES
    doubling_axis(axes, sizes[0] / edge, sizes[-1] * edge, sizes[::-1][::step][::-1], nbytes_text)
    axes.set_xlabel("size of the message (log scale)")


def _bandwidth_text(found: Curves) -> str:
    factor = f"{2 * (found.world.ranks - 1)}/{found.world.ranks}"
    beyond = any(
        dot.gigabytes(dot.seconds, found.world.ranks) > (found.peak or math.inf)
        for curve in found.curves
        for dot in curve.dots
    )
    more = " Beyond the link's peak: where the switch reduces (NVLS), less is sent than the formula counts."
    return f"Bus bandwidth: bytes / time x {factor}.{more if beyond else ''}"


def _title(found: Curves) -> str:
    """The smallest and the largest size, of the curves of one way."""
    way = min((curve.way for curve in found.curves), key=rank)
    own = [curve for curve in found.curves if curve.way == way][:_NAMED_IN_TITLE]
    least, most = own[0].dots[0].nbytes, own[0].dots[-1].nbytes
    alike = [curve for curve in own if (curve.dots[0].nbytes, curve.dots[-1].nbytes) == (least, most)]
    times = _joined(f"{seconds_text(curve.dots[0].seconds)} with {curve.stack}" for curve in alike)
    told = f"AllReduce by {way}: {times} at {nbytes_text(least)}"
    if found.world.ranks < 2:
        return told
    rates = _joined(f"{c.dots[-1].gigabytes(c.dots[-1].seconds, found.world.ranks):.3g}" for c in alike)
    return f"{told}; {rates} GB/s of bus bandwidth at {nbytes_text(most)}"


def _joined(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
