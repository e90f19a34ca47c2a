"""The chart of the family cross_check: nvbench's times over ours, of the same work in the same run."""

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bench_lib.comparing.replicates import SECONDS, params_of, replicates
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import BLUE, STYLE, ratio_text, reference, subtitle, title
from bench_lib.drawing.dotplot import Line, Look, Places, Point, panels
from bench_lib.drawing.family_data import dots_text, of_family, usual, where_text
from bench_lib.errors import UsageError
from bench_lib.units import ends_text, seconds_text

FAMILY = "cross_check"
OURS, NVBENCH = "ours", "nvbench"
_LOOKS = {NVBENCH: Look(BLUE, "o")}
_ORDER = ("empty", "spin", "conv")


@matplotlib.rc_context(STYLE)
def cross_check(data: Data) -> Figure:
    """Each work by each metric: nvbench's median over ours, a dot a run, both times in words.

    Two rulers beside one another, with no verdict: they are two methods. `data`: one stack's. Raises
    UsageError where no work was measured by both.
    """
    family = of_family(data, FAMILY)
    table = _table(family)
    both = table.dropna()
    if both.empty:
        raise UsageError("no work was timed by nvbench and by this suite; measure the family cross_check")
    points = [_point(str(op), str(metric), rows) for (op, metric), rows in both.groupby(["op", "metric"])]
    lines = sorted((point.line for point in points), key=lambda line: (_ORDER.index(line.group), line.label))
    places = Places(lines, [points], 0.62)
    figure, (axes,) = panels(places, 8.4, [1])
    places.draw(axes, points, _LOOKS)
    _ratio_axis(axes, points)
    title(figure, _finding(points))
    alone = len(table.reset_index().drop_duplicates(["op", "metric"])) - len(points)
    cases = f"{alone} case{'s were' if alone > 1 else ' was'} measured by one tool only." if alone else ""
    runs = dots_text(len(rows) for _, rows in both.groupby(["op", "metric"]))
    subtitle(axes, [f"{runs} {cases}".strip(), where_text(data, "torch", "cudart")], 88)
    return figure


def _table(family: Data) -> pd.DataFrame:
    """Seconds by op, metric and run, a column a tool; NaN where one of them has none."""
    values = replicates(usual(family)).values
    values = values[values["unit"] == SECONDS]
    tools = [str(params_of(text).get("tool", "")) for text in values["params"]]
    table = values.assign(tool=tools).pivot_table("value", ["op", "metric", "run_id"], "tool")
    return table.reindex(columns=[OURS, NVBENCH])


def _point(op: str, metric: str, rows: pd.DataFrame) -> Point:
    ratios = rows[NVBENCH] / rows[OURS]
    ours, theirs = (seconds_text(float(rows[tool].median())) for tool in (OURS, NVBENCH))
    value = float(ratios.median())
    text = f"{ratio_text(value)} ({theirs} against {ours})"
    return Point(Line(op, metric), NVBENCH, value, runs=tuple(map(float, ratios)), text=text)


def _ratio_axis(axes: Axes, points: list[Point]) -> None:
    """A linear axis around 1: the differences looked for are a few per cent."""
    reach = max(0.05, *(abs(value - 1) for point in points for value in point.runs)) * 1.15
    axes.set_xlim(1 - reach, 1 + reach)
    reference(axes)
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("← nvbench shorter      nvbench seconds / our seconds      nvbench longer →")


def _finding(points: list[Point]) -> str:
    values = [point.value for point in points]
    return f"nvbench's times are {ends_text(map(ratio_text, (min(values), max(values))))} times ours"
