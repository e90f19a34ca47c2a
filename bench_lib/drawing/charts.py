"""Comparisons and data in, matplotlib Figures out: each says what it shows, with no text around it.

Nothing here computes statistics: ratios and intervals are those of the comparison.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from bench_lib.comparing import machines, titles
from bench_lib.comparing.changes import MOVED, CaseChange, Change, Comparison
from bench_lib.comparing.store import Data
from bench_lib.comparing.verdicts import Pairing
from bench_lib.drawing.canvas import (
    BAND,
    COLOURS,
    GREY,
    LOOKS,
    MARKERS,
    STYLE,
    fill,
    interval_text,
    new_figure,
    reference,
    shown,
    subtitle,
    text_inches,
    title,
)
from bench_lib.drawing.case_names import in_units, labels
from bench_lib.drawing.marks import legend
from bench_lib.drawing.runtimes import run_medians
from bench_lib.model import Case
from bench_lib.units import ends_text, seconds_text

MOST_ROWS = 60  # of a forest plot: more cannot be read on a page
MOST_PANELS = 6  # of a run-order plot
MOST_CHANGES = 6  # of the machine, drawn in it


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
    _forest_rows(axes, groups)
    said += [f"In every case: {names.shared}."] if names.shared else []
    said += [f"In every canary: {of_canaries.shared}."] if of_canaries.shared else []
    _ratio_axis(axes, [*canaries, *rows])
    title(figure, f"{_sides(comparison)}: {counts_text(comparison)}")
    subtitle(axes, [_paired(comparison), *said], 78)
    legend(figure, {}, 5, *_forest_marks())
    return figure


def counts_text(comparison: Comparison) -> str:
    """`3 faster, 0 slower, 20 same`: faster and slower always, the others where they occurred."""
    return ", ".join(f"{n} {change}" for change, n in comparison.counts().items() if n or change in MOVED)


def _sides(comparison: Comparison) -> str:
    return shown(titles.against(comparison), 100)


def _chosen(cases: Sequence[CaseChange]) -> tuple[list[CaseChange], list[str]]:
    """The rows drawn, gains first, and a sentence for each group of rows that is not."""
    drawn = [row for row in cases if row.ratio is not None]
    said = []
    if len(drawn) > MOST_ROWS:
        said.append(f"The {MOST_ROWS} largest effects of {len(drawn)} cases are drawn.")
        drawn = _largest(drawn, MOST_ROWS)
    if without := sum(row.ratio is None for row in cases):
        said.append(f"{without} of {len(cases)} have no ratio and are not drawn.")
    return sorted(drawn, key=lambda row: row.ratio or 1.0), said


def _largest(rows: Iterable[CaseChange], most: int) -> list[CaseChange]:
    there = [row for row in rows if row.ratio]
    return sorted(there, key=lambda row: abs(math.log(row.ratio or 1.0)), reverse=True)[:most]


def _most_runs(rows: Sequence[CaseChange]) -> Sequence[CaseChange]:
    """Those whose replicates carry an interval; all where none does: a single run shows no drift."""
    return [row for row in rows if row.low is not None] or rows


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


def _forest_rows(axes: Axes, groups: Iterable[tuple[str, Sequence[CaseChange], Sequence[str]]]) -> None:
    """Draw the groups downwards: a line for a header, then one a row with its numbers at the right."""
    lines: list[str] = []
    headers: list[int] = []
    for header, rows, named in groups:
        headers.append(len(lines))
        lines.append(header)
        for row, label in zip(rows, named, strict=True):
            _forest_row(axes, -len(lines), row)
            lines.append(label)
    axes.set_yticks([-line for line in range(len(lines))], lines)
    for line in headers:
        axes.get_yticklabels()[line].set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(0.4 - len(lines), 0.6)
    axes.spines["left"].set_visible(False)


def _forest_row(axes: Axes, y: float, row: CaseChange) -> None:
    colour, marker, inside = LOOKS[row.change]
    bound = 1 + row.margin
    axes.fill_between([1 / bound, bound], y - 0.5, y + 0.5, color=BAND, linewidth=0, zorder=0.5)
    if row.low is not None and row.high is not None:
        axes.plot([row.low, row.high], [y, y], color=colour, linewidth=1.4, solid_capstyle="butt")
    axes.plot([row.ratio or 1.0], [y], marker=marker, color=colour, markerfacecolor=inside, markersize=5.5)
    axes.text(
        1.015,
        y,
        f"{interval_text(row)}  {row.change}",
        transform=axes.get_yaxis_transform(),
        va="center",
        color=GREY if row.change is Change.UNCLEAR else colour,
    )


def _ratio_axis(axes: Axes, rows: Sequence[CaseChange]) -> None:
    """A logarithmic axis that holds every ratio; a wide interval may run out of it, a ratio never does."""
    logs = [math.log(row.ratio) for row in rows if row.ratio]
    reach = max([*map(abs, logs), *(1.6 * math.log1p(row.margin) for row in rows), 0.01])
    ends = [math.log(end) for row in rows for end in (row.low, row.high) if end]
    low = max(min([*ends, -reach]), -3 * reach)
    high = min(max([*ends, reach]), 3 * reach)
    space = 0.05 * (high - low)
    axes.set_xscale("log")
    axes.set_xlim(math.exp(low - space), math.exp(high + space))
    wide = high - low > math.log(4)
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


@matplotlib.rc_context(STYLE)
def run_order(comparison: Comparison, data: Data) -> Figure:
    """The median of every run in order of time, for the canaries and cases with the largest effects.

    What shifts between the arms is the stack's; what shifts with time is the machine's. The shaded
    band is the margin around the baseline's mean. `data` is what both sides measured.
    """
    chosen = [*_largest(comparison.canaries, 2), *_largest(_most_runs(comparison.cases), 4)][:MOST_PANELS]
    values = run_medians(data)
    order = {run: i + 1 for i, run in enumerate(data.runs.sort_values("started_at")["run_id"])}
    n_rows = max(1, math.ceil(len(chosen) / 2))
    figure = new_figure(11.5, 1.5 + 2.3 * n_rows)
    panels = figure.subplots(n_rows, 2, sharex=True, squeeze=False).ravel()
    marks: dict[str, Line2D] = {}
    moved = _machine_changes(data, order)
    for axes, row in zip(panels, chosen, strict=False):
        _run_order_panel(axes, row, _series(comparison, row, values), order, marks)
        for at in moved:
            axes.axvline(at, color=GREY, linewidth=0.9, linestyle=":", zorder=0.6)
    for axes in panels[len(chosen) :]:
        axes.remove()
    for axes in panels[max(len(chosen) - 2, 0) : len(chosen)]:
        axes.set_xlabel("run, in order of time")
    title(figure, f"Every run in order of time: {_sides(comparison)}")
    band = Patch(color=BAND, label="margin around the baseline's mean")
    figure.legend(
        handles=[*marks.values(), band],
        loc="outside lower center",
        ncols=6,
        title=f"one dot a run; {time_span(data)}" + ("; dotted: another machine" if moved else ""),
    )
    return figure


def _machine_changes(data: Data, order: dict[str, int]) -> list[float]:
    """Between which runs the machine changes; none where it does so too often to be drawn."""
    machine = machines.of_runs(data.runs)
    runs = sorted(order, key=lambda run: order[run])
    changes = [order[a] + 0.5 for a, b in pairwise(runs) if machine[a] != machine[b]]
    return changes if len(changes) <= MOST_CHANGES else []


def _series(comparison: Comparison, row: CaseChange, values: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The values of one case by what they belong to: the arm, or of a contrast the parameter's value."""
    if comparison.pairing == Pairing.RUNS:
        found = {}
        for label in (comparison.baseline, comparison.candidate):
            name, _, value = label.partition("=")
            case = Case(row.family, row.op, {**row.params, name: value})
            found[titles.side(comparison, label)] = values[values["case_id"] == case.case_id]
        return found
    return {
        label: found[found["case_id"] == row.case_id]
        for label, found in by_side(values, comparison.baseline).items()
    }


def by_side(rows: pd.DataFrame, baseline: str) -> dict[str, pd.DataFrame]:
    """Rows of runs by the side they were compared on, the baseline's first.

    Where they stand on no side, as in a contrast: by arm, CAMPAIGN/ARM where there are several campaigns.
    """
    if "side" in rows.columns:
        sides = {str(side): part for side, part in rows.groupby("side")}
        return {side: sides[side] for side in sorted(sides, key=lambda side: side != baseline)}
    several = rows["campaign"].nunique() > 1
    found = {(str(campaign), str(arm)): part for (campaign, arm), part in rows.groupby(["campaign", "arm"])}
    return {"/".join(arm) if several else arm[1]: found[arm] for arm in sorted(found)}


def _run_order_panel(
    axes: Axes,
    row: CaseChange,
    series: dict[str, pd.DataFrame],
    order: dict[str, int],
    marks: dict[str, Line2D],
) -> None:
    """One case: a dot a run, coloured by what it belongs to; `marks` gathers the legend's entries."""
    low, high = (row.baseline or 0) / (1 + row.margin), (row.baseline or 0) * (1 + row.margin)
    axes.axhspan(low, high, color=BAND, zorder=0.5)
    for i, (label, found) in enumerate(series.items()):
        size = 4.5 if i else 6.5  # of two dots in one place both are seen
        at = found["run_id"].map(order).to_numpy()
        (marks[label],) = axes.plot(
            at,
            found["value"].to_numpy(),
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=size,
            linewidth=0,
            label=shown(label, 40),
        )
    axes.set_title(f"{fill(in_units(row.case_id), 60)}\n{interval_text(row)}", fontsize=8.5)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(value)))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlim(0.5, max(len(order), 2) + 0.5)
    axes.tick_params(labelbottom=True)


def time_span(data: Data) -> str:
    """From when to when the runs were started; empty when that is not known."""
    started = data.runs["started_at"].dropna()
    if started.empty:
        return ""
    first, last = (f"{time:%Y-%m-%d %H:%M}" for time in (started.min(), started.max()))
    return f"{first} to {last} UTC"
