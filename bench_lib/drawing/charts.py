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
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench_lib.comparing import machines, titles
from bench_lib.comparing.changes import MOVED, CaseChange, Comparison
from bench_lib.comparing.store import Data
from bench_lib.comparing.verdicts import Pairing
from bench_lib.drawing.canvas import (
    BAND,
    COLOURS,
    GREY,
    MARKERS,
    STYLE,
    fill,
    interval_text,
    new_figure,
    shown,
    title,
)
from bench_lib.drawing.case_names import in_units
from bench_lib.drawing.runtimes import run_medians
from bench_lib.model import Case
from bench_lib.units import seconds_text

MOST_PANELS = 6  # of a run-order plot
MOST_CHANGES = 6  # of the machine, drawn in it


def counts_text(comparison: Comparison) -> str:
    """`3 faster, 0 slower, 20 same`: faster and slower always, the others where they occurred."""
    return ", ".join(f"{n} {change}" for change, n in comparison.counts().items() if n or change in MOVED)


def sides_text(comparison: Comparison) -> str:
    """What is compared, for a title."""
    return shown(titles.against(comparison), 100)


def largest(rows: Iterable[CaseChange], most: int) -> list[CaseChange]:
    """The `most` rows furthest from a ratio of 1."""
    there = [row for row in rows if row.ratio]
    return sorted(there, key=lambda row: abs(math.log(row.ratio or 1.0)), reverse=True)[:most]


def _most_runs(rows: Sequence[CaseChange]) -> Sequence[CaseChange]:
    """Those whose replicates carry an interval; all where none does: a single run shows no drift."""
    return [row for row in rows if row.low is not None] or rows


@matplotlib.rc_context(STYLE)
def run_order(comparison: Comparison, data: Data) -> Figure:
    """The median of every run in order of time, for the canaries and cases with the largest effects.

    What shifts between the arms is the stack's; what shifts with time is the machine's. The shaded
    band is the margin around the baseline's mean. `data` is what both sides measured.
    """
    chosen = [*largest(comparison.canaries, 2), *largest(_most_runs(comparison.cases), 4)][:MOST_PANELS]
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
    title(figure, f"Every run in order of time: {sides_text(comparison)}")
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
