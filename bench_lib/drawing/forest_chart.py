"""Case changes in, one chart of all their ratios out, each with its interval: a forest plot."""

import math
from collections.abc import Iterable, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETLEFT, CARETRIGHT
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.comparing.verdicts import Pairing
from bench_lib.drawing.canvas import (
    BAND,
    GREY,
    LOOKS,
    STYLE,
    interval_text,
    new_figure,
    reference,
    shown,
    subtitle,
    text_inches,
    title,
)
from bench_lib.drawing.case_names import labels
from bench_lib.drawing.charts import counts_text, largest, sides_text
from bench_lib.drawing.marks import legend
from bench_lib.units import ends_text

MOST_ROWS = 60  # more cannot be read on a page


@matplotlib.rc_context(STYLE)
def forest(comparison: Comparison) -> Figure:
    """One row a case: its ratio with the 95 % interval over the shaded margin; canaries on top.

    Rows go from the largest gain to the largest loss. Of more than 60 cases the 60 with the largest
    effects are drawn, and a line says so. Cases without a ratio are counted in that line.
    """
    rows, said = _chosen(comparison.cases)
    canaries = [row for row in comparison.canaries if row.ratio is not None]
    names, of_canaries = (labels([row.case_id for row in some]) for some in (rows, canaries))
    groups = [("Canaries: no upgrade should move these", canaries, of_canaries.labels)] if canaries else []
    groups.append(("Cases" if rows else "No case has a ratio", rows, names.labels))
    lines = [line for *_, told in groups for label in told for line in label.split("\n")]
    n_rows = sum(len(listed) + 1 for _, listed, _ in groups)
    pitch = 0.235 if len(lines) == len(rows) + len(canaries) else 0.35  # inches; some labels have two lines
    figure = new_figure(7.6 + max(2.6, text_inches(lines)), 2.3 + pitch * n_rows)
    axes = figure.subplots()
    ends = _axis_ends([*canaries, *rows])
    _forest_rows(axes, groups, ends)
    said += [f"In every case: {names.shared}."] if names.shared else []
    said += [f"In every canary: {of_canaries.shared}."] if of_canaries.shared else []
    if any(any(_beyond(row, ends)) for row in (*canaries, *rows)):
        said.append("What goes on beyond the axis ends in an arrowhead.")
    _ratio_axis(axes, ends)
    title(figure, f"{sides_text(comparison)}: {counts_text(comparison)}")
    subtitle(axes, [_paired(comparison), *said], 78)
    legend(figure, {}, 5, *_forest_marks())
    return figure


def _chosen(cases: Sequence[CaseChange]) -> tuple[list[CaseChange], list[str]]:
    """The rows drawn, gains first, and a sentence for each group of rows that is not."""
    drawn = [row for row in cases if row.ratio is not None]
    said = []
    if len(drawn) > MOST_ROWS:
        said.append(f"The {MOST_ROWS} largest effects of {len(drawn)} cases are drawn.")
        drawn = largest(drawn, MOST_ROWS)
    if without := sum(row.ratio is None for row in cases):
        said.append(f"{without} of {len(cases)} have no ratio and are not drawn.")
    return sorted(drawn, key=lambda row: row.ratio or 1.0), said


def _paired(comparison: Comparison) -> str:
    """One sentence: where the rows come from and how many replicates stand behind each."""
    n = sorted({row.n for row in comparison.cases if row.ratio is not None})
    how_many = ends_text(map(str, (n[0], n[-1]))) if n else "no"
    one = n == [1]
    unit = {
        Pairing.ROUNDS: f"pair{'s' * (not one)} of runs, paired within rounds",
        Pairing.RUNS: f"run{'s' * (not one)}, both sides inside each",
        Pairing.INSTALLATIONS: f"pair{'s' * (not one)} of installations, neighbours in time",
        Pairing.UNPAIRED: f"run{'s' * (not one)} a side, not interleaved: confounded with the session",
    }
    where = f"Campaign {shown(comparison.campaign, 32)}: " if comparison.campaign else ""
    return f"{where}{how_many} {unit[Pairing(comparison.pairing)]}."


def _forest_rows(
    axes: Axes,
    groups: Iterable[tuple[str, Sequence[CaseChange], Sequence[str]]],
    ends: tuple[float, float],
) -> None:
    """Draw the groups downwards: a line for a header, then one a row with its numbers at the right."""
    lines: list[str] = []
    headers: list[int] = []
    for header, rows, named in groups:
        headers.append(len(lines))
        lines.append(header)
        for row, label in zip(rows, named, strict=True):
            _forest_row(axes, -len(lines), row, ends)
            lines.append(label)
    axes.set_yticks([-line for line in range(len(lines))], lines)
    for line in headers:
        axes.get_yticklabels()[line].set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(0.4 - len(lines), 0.6)
    axes.spines["left"].set_visible(False)


def _forest_row(axes: Axes, y: float, row: CaseChange, ends: tuple[float, float]) -> None:
    """The margin, the interval and the ratio as far as the axis goes, and the numbers beside it."""
    colour, marker, inside = LOOKS[row.change]
    bound, ratio = 1 + row.margin, row.ratio or 1.0
    axes.fill_between([1 / bound, bound], y - 0.5, y + 0.5, color=BAND, linewidth=0, zorder=0.5)
    if row.low is not None and row.high is not None:
        drawn = np.clip([row.low, row.high], *ends)
        axes.plot(drawn, [y, y], color=colour, linewidth=1.4, solid_capstyle="butt")
    for end, beyond, head in zip(ends, _beyond(row, ends), (CARETLEFT, CARETRIGHT), strict=True):
        if beyond:  # its tip stands at the end of the axis
            axes.plot([end], [y], marker=head, color=colour, markersize=7, markeredgewidth=0, clip_on=False)
    if ends[0] <= ratio <= ends[1]:
        axes.plot([ratio], [y], marker=marker, color=colour, markerfacecolor=inside, markersize=5.5)
    axes.text(
        1.025,
        y,
        f"{interval_text(row)}  {row.change}",
        transform=axes.get_yaxis_transform(),
        va="center",
        color=GREY if row.change is Change.UNCLEAR else colour,
    )


def _beyond(row: CaseChange, ends: tuple[float, float]) -> tuple[bool, bool]:
    """Whether it goes on to the left and to the right of the axis."""
    there = [value for value in (row.low, row.ratio, row.high) if value is not None]
    return min(there) < ends[0], max(there) > ends[1]


def _axis_ends(rows: Sequence[CaseChange]) -> tuple[float, float]:
    """Where the axis ends: it holds nearly all rows; of one that is far from the others only the rest.

    A wide interval goes on beyond three times the largest ratio, and a row beyond one and a half times what
    nine rows of ten reach.
    """
    least = max([1.6 * math.log1p(row.margin) for row in rows], default=0.01)
    reach = max([least, *(abs(math.log(row.ratio)) for row in rows if row.ratio)])
    logs = [[math.log(end) for end in (row.low, row.ratio, row.high) if end] for row in rows]
    reaches = [min(max(map(abs, own)), 3 * reach) for own in logs]
    most = max(1.5 * float(np.quantile(reaches, 0.9)), least) if reaches else reach
    low = max(min([-least, *(min(own) for own in logs)]), -most)
    high = min(max([least, *(max(own) for own in logs)]), most)
    space = 0.05 * (high - low)
    return math.exp(low - space), math.exp(high + space)


def _ratio_axis(axes: Axes, ends: tuple[float, float]) -> None:
    """A logarithmic axis between these ends."""
    axes.set_xscale("log")
    axes.set_xlim(*ends)
    wide = ends[1] / ends[0] > 4
    decades = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
    axes.xaxis.set_major_locator(FixedLocator(decades) if wide else MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    reference(axes)
    axes.set_xlabel(
        "← faster      candidate seconds / baseline seconds, 95 % interval (log scale)      slower →"
    )


def _forest_marks() -> list[Line2D | Patch]:
    marks: list[Line2D | Patch] = [
        Line2D([], [], color=colour, marker=marker, markerfacecolor=inside, markersize=5.5, label=str(change))
        for change, (colour, marker, inside) in LOOKS.items()
    ]
    return [*marks, Patch(color=BAND, label="margin: a change too small to matter")]
