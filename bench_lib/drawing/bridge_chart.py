"""A bridge in, its waterfall out: each step begins where the one before it ended."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator

from bench_lib.comparing.bridge import Bridge, Line, Ratio, exchanged
from bench_lib.drawing.canvas import (
    DARK,
    GREY,
    LOOKS,
    STYLE,
    interval_text,
    new_figure,
    ratio_text,
    reference,
    shown,
    subtitle,
    text_inches,
    title,
)
from bench_lib.drawing.case_names import in_units
from bench_lib.drawing.marks import legend

MOST_PANELS = 6
_MEAN = "#6b8aa0"  # a mean over cases is none of the changes that a case can have
_APART: dict[str, Any] = {"marker": "D", "color": "white", "markeredgecolor": DARK, "markersize": 5}
_WIDEST = 3  # an interval is drawn up to this many times as far out as the bars reach


@matplotlib.rc_context(STYLE)
def waterfall(bridge: Bridge) -> Figure:
    """How the steps of a bridge add up: the mean over its cases, then the cases that move most.

    A bar runs from the product of the steps before to that with the step itself, on a logarithmic
    axis; the thin line is the step's own 95 % interval there, and the last bar is the whole.
    """
    lines = _chosen(bridge)
    names = _names(bridge)
    n_rows = max(1, math.ceil(len(lines) / 2))
    labels = text_inches(part for name in names for part in name.split("\n"))
    figure = new_figure(9.5 + labels, 1.5 + n_rows * (0.9 + 0.38 * len(names)))
    panels = figure.subplots(n_rows, 2, squeeze=False, sharey=True).ravel()
    for axes, line in zip(panels, lines, strict=False):
        _panel(axes, line, names)
    for axes in panels[len(lines) :]:
        axes.remove()
    title(figure, _finding(bridge))
    legend(figure, {}, 4, *_marks(lines))
    return figure


def _finding(bridge: Bridge) -> str:
    ends = f"{shown(bridge.stacks[0], 40)} to {shown(bridge.stacks[-1], 40)}"
    if not bridge.means:
        return f"{ends}: no case was measured in every step"
    mean = bridge.means[0]
    ratio = ratio_text(mean.whole.ratio)
    return f"{ends} in {len(bridge.steps)} steps: {ratio} times the time in the mean over {mean.name}"


def _chosen(bridge: Bridge) -> list[Line]:
    means = list(bridge.means[: MOST_PANELS // 2])
    by_size = sorted(bridge.lines, key=lambda line: abs(math.log(line.whole.ratio)), reverse=True)
    return [*means, *by_size[: MOST_PANELS - len(means)]]


def _names(bridge: Bridge) -> list[str]:
    """The labels of the rows: the stacks of a step, under them what it exchanges."""
    steps = [
        f"{shown(a, 30)} → {shown(b, 30)}\n{shown(exchanged(step).replace('->', '→'), 48)}"
        for (a, b), step in zip(pairwise(bridge.stacks), bridge.steps, strict=True)
    ]
    return [*steps, f"{shown(bridge.stacks[0], 30)} → {shown(bridge.stacks[-1], 30)}\nthe whole"]


def _panel(axes: Axes, line: Line, names: Sequence[str]) -> None:
    """One waterfall downwards, the whole at its foot."""
    foot, at = -len(line.steps), 1.0
    reference(axes)
    for row, step in enumerate(line.steps):
        _bar(axes, -row, at, step, _MEAN if step.change is None else LOOKS[step.change][0])
        at *= step.ratio
        axes.plot([at, at], [-row, -row - 1], color=GREY, linewidth=0.7, linestyle=":")
    _bar(axes, foot, 1.0, line.whole, DARK)
    if line.apart is not None:
        axes.plot([line.apart.ratio], [foot], **_APART)
    axes.set_yticks([-row for row in range(len(names))], names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(foot - 0.6, 0.6)
    axes.spines["left"].set_visible(False)
    _scale(axes, line)
    subtitle(axes, [f"Geometric mean over {line.name}" if line.cases > 1 else in_units(line.name)], 60)


def _bar(axes: Axes, y: float, start: float, ratio: Ratio, colour: str) -> None:
    """One step from `start`, its interval as a thin line, its numbers at the right."""
    end = start * ratio.ratio
    axes.fill_between([min(start, end), max(start, end)], y - 0.3, y + 0.3, color=colour, linewidth=0)
    axes.plot([end, end], [y - 0.3, y + 0.3], color=colour, linewidth=1.4)  # a bar of no width is seen too
    if ratio.low is not None and ratio.high is not None:
        axes.plot([start * ratio.low, start * ratio.high], [y, y], color="black", linewidth=0.8, alpha=0.6)
    axes.text(1.01, y, interval_text(ratio), transform=axes.get_yaxis_transform(), va="center", fontsize=8)


def _scale(axes: Axes, line: Line) -> None:
    """A logarithmic axis that holds every bar; a wide interval may run out of it."""
    ends, bounds = [0.0], [0.0]
    for step in line.steps:
        bounds += [ends[-1] + math.log(bound) for bound in (step.low, step.high) if bound]
        ends.append(ends[-1] + math.log(step.ratio))
    ends += [math.log(one.ratio) for one in (line.whole, line.apart) if one is not None]
    bounds += [math.log(bound) for bound in (line.whole.low, line.whole.high) if bound]
    reach = _WIDEST * max(*map(abs, ends), 0.005)
    low, high = max(min(*ends, *bounds), -reach), min(max(*ends, *bounds), reach)
    space = 0.05 * (high - low)
    axes.set_xscale("log")
    axes.set_xlim(math.exp(low - space), math.exp(high + space))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("seconds, ratio to the first stack (log scale)")


def _marks(lines: Sequence[Line]) -> list[Line2D | Patch]:
    seen = {step.change for line in lines for step in line.steps}
    marks: list[Line2D | Patch] = [
        Patch(color=LOOKS[change][0], label=f"step: {change}") for change in LOOKS if change in seen
    ]
    if None in seen:
        marks.append(Patch(color=_MEAN, label="step: mean over cases"))
    marks.append(Patch(color=DARK, label="the whole"))
    if any(line.apart for line in lines):
        marks.append(
            Line2D([], [], linestyle="none", label="the whole, measured in another campaign", **_APART)
        )
    marks.append(Line2D([], [], color="black", linewidth=0.8, alpha=0.6, label="95 % interval of the step"))
    return marks
