"""Points with intervals on named lines, the lines in groups, one or more panels side by side."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from bench_lib.comparing.changes import CaseChange
from bench_lib.drawing.canvas import new_figure, ratio_text, reference, shown, text_inches

LINE_INCHES = 0.235
_STRIPE = "#f6f6f6"


class Line(NamedTuple):
    """Where a point stands: a group with a heading ("" for none), and the line's name in it."""

    group: str
    label: str


class Look(NamedTuple):
    """How the points of one series are drawn."""

    colour: str
    marker: str
    filled: bool = True

    def handle(self, label: str) -> Line2D:
        """The series in a legend."""
        inside = self.colour if self.filled else "white"
        return Line2D(
            [],
            [],
            color=self.colour,
            marker=self.marker,
            markerfacecolor=inside,
            markersize=5.5,
            linestyle="none",
            label=shown(label, 60),
        )


@dataclass(frozen=True)
class Point:
    """One number: drawn with its interval, or the runs it is the median of; NaN: only its text is."""

    line: Line
    series: str
    value: float
    low: float | None = None
    high: float | None = None
    runs: tuple[float, ...] = ()
    text: str = ""


class Places:
    """Where the lines stand, downwards: each as high as its points need, a heading over each group."""

    def __init__(self, lines: Sequence[Line], panels: Sequence[Sequence[Point]], pitch: float) -> None:
        """`lines` in order; `pitch`: between two points of one line, in lines."""
        self.pitch = pitch
        self.lines: dict[Line, tuple[float, float]] = {}  # centre and height
        self.headings: dict[str, float] = {}
        at = 0.0
        for line in lines:
            if line.group and line.group not in self.headings:
                self.headings[line.group] = at + 0.5
                at += 1.0
            most = max(sum(point.line == line for point in points) for points in panels)
            height = max(1.0, pitch * most + 0.3)
            self.lines[line] = (at + height / 2, height)
            at += height
        self.height = at

    @property
    def inches(self) -> float:
        """The height of the axes."""
        return LINE_INCHES * self.height

    def names(self) -> list[str]:
        """All that is written at the left."""
        return [*self.headings, *(shown(line.label, 70) for line in self.lines)]

    def prepare(self, axes: Axes) -> None:
        """Lines striped and named; call it for the leftmost panel first, others that share y follow."""
        ticks = [*((y, name) for name, y in self.headings.items())]
        ticks += [(y, shown(line.label, 70)) for line, (y, _) in self.lines.items()]
        axes.set_yticks([y for y, _ in ticks], [name for _, name in ticks])
        for label in axes.get_yticklabels()[: len(self.headings)]:
            label.set_fontweight("bold")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(self.height, 0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        for i, (y, height) in enumerate(self.lines.values()):
            if i % 2 == 0:
                axes.axhspan(y - height / 2, y + height / 2, color=_STRIPE, linewidth=0, zorder=0.1)

    def draw(self, axes: Axes, points: Sequence[Point], looks: Mapping[str, Look]) -> None:
        """The points, those of one line under each other in the order of `looks`."""
        order = list(looks)
        for line, (centre, _) in self.lines.items():
            here = sorted(
                (point for point in points if point.line == line), key=lambda point: order.index(point.series)
            )
            for i, point in enumerate(here):
                y = centre + self.pitch * (i - (len(here) - 1) / 2)
                _draw(axes, y, point, looks[point.series])


def _draw(axes: Axes, y: float, point: Point, look: Look) -> None:
    if len(point.runs) > 1:
        level = [y] * len(point.runs)
        axes.plot(point.runs, level, ".", color=look.colour, alpha=0.35, markersize=4, label="runs")
    if point.low is not None and point.high is not None:
        ends = [point.low, point.high]
        axes.plot(ends, [y, y], color=look.colour, linewidth=1.4, solid_capstyle="butt", label="interval")
    if not math.isnan(point.value):
        inside = look.colour if look.filled else "white"
        axes.plot(
            [point.value],
            [y],
            color=look.colour,
            marker=look.marker,
            markerfacecolor=inside,
            markersize=5,
            label=f"{'; '.join(part for part in point.line if part)}: {point.series}",
        )
    if point.text:
        axes.text(
            1.015,
            y,
            point.text,
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=8,
            color=look.colour,
        )


def gain(row: CaseChange, series: str, line: Line, said: bool = False) -> Point:
    """A case change as a speed-up, the inverse of its ratio; `said`: with its numbers in words."""
    ratio = row.ratio or 1.0
    low, high = (1 / row.high, 1 / row.low) if row.high and row.low else (None, None)
    interval = f" [{ratio_text(low)}, {ratio_text(high)}]" if low and high else ""
    return Point(
        line, series, 1 / ratio, low, high, text=f"{ratio_text(1 / ratio)}{interval}" if said else ""
    )


def gain_axis(axes: Axes, points: Iterable[Point], baseline: str, include: Iterable[float] = ()) -> None:
    """The x axis of speed-ups over a baseline, which is named in words, with a line at 1."""
    log_axis(axes, points, [0.95, 1.1, *include])
    reference(axes)
    axes.set_xlabel(f"← slower      times as fast as {baseline} (log scale)      faster →")


def panels(
    places: Places, width: float, ratios: Sequence[float], room: float = 2.0
) -> tuple[Figure, Sequence[Axes]]:
    """A figure with as many panels side by side, this wide in all, the lines named at the left.

    `room`: the inches that titles, axes and legend take above and below the panels.
    """
    figure = new_figure(width + max(1.0, text_inches(places.names())), room + places.inches)
    axes = figure.subplots(1, len(ratios), sharey=True, squeeze=False, width_ratios=ratios)[0]
    for one in axes:
        places.prepare(one)
    return figure, axes


def log_axis(
    axes: Axes,
    points: Iterable[Point],
    include: Iterable[float] = (),
    text: Callable[[float], str] = "{:g}".format,
) -> None:
    """A logarithmic x axis that holds every point; an interval may run out of it."""
    there = list(points)
    values = [value for point in there for value in (point.value, *point.runs) if value > 0]
    low, high = min([*values, *include]), max([*values, *include])
    ends = [end for point in there for end in (point.low, point.high) if end]
    low, high = max(min([low, *ends]), low / 1.5), min(max([high, *ends]), high * 1.5)
    space = max(0.06 * math.log(high / low), 0.02)
    axes.set_xscale("log")
    axes.set_xlim(low * math.exp(-space), high * math.exp(space))
    log_ticks(axes.xaxis, high / low, text)


def log_ticks(axis: Axis, span: float, text: Callable[[float], str] = "{:g}".format) -> None:
    """Ticks that suit a logarithmic axis whose ends are this factor apart."""
    digits = (1, 2, 5) if span < 200 else (1,)
    decades = [digit * 10.0**power for power in range(-9, 10) for digit in digits]
    few = MaxNLocator(7, steps=[1, 2, 2.5, 5, 10])
    axis.set_major_locator(FixedLocator(decades) if span > 4 else few)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key by which 7x7 comes before 11x11."""
    parts = [part for part in re.split(r"(\d+)", text) if part]
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
