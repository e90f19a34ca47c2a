"""The chart of what runs side by side: two streams over one, and images a second by workers of a loader."""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench_lib.comparing.changes import CaseChange
from bench_lib.comparing.replicates import SECONDS
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import BLUE, STYLE, VERMILLION, new_figure, reference, subtitle, title
from bench_lib.drawing.dotplot import Line, Look, Places, Point, gain, log_axis
from bench_lib.drawing.family_data import (
    Median,
    against,
    dots_text,
    failed_text,
    few_text,
    medians,
    of_family,
    runs_text,
    where_text,
)
from bench_lib.drawing.marks import Bar, draw_bars, legend
from bench_lib.errors import UsageError
from bench_lib.units import ends_text

FAMILY = "stream_overlap"
CONTROL = 1.5  # what pinned memory must reach
MEASURED, BOUND = "measured", "bound"
LOOKS = {MEASURED: Look(BLUE, "o"), BOUND: Look("#555555", "D", filled=False)}
MEMORY = {"pinned": "pinned memory", "pageable": "pageable memory"}
DIRECTIONS = {"to_gpu": "to the GPU", "to_cpu": "to the CPU"}


@matplotlib.rc_context(STYLE)
def stream_overlap(data: Data) -> Figure:
    """Pace of two streams over one beside what is possible; and images a second by number of workers.

    `data`: one stack's. Raises UsageError where neither was measured.
    """
    family = of_family(data, FAMILY)
    known = medians(family)
    rows = [row for row in against(family, "streams", "one").get("two", ()) if row.ratio]
    loaded = {
        int(one.params["workers"]): one
        for one in known
        if one.op == "dataloader" and one.unit == SECONDS and "batch" in one.params
    }
    if not rows and not loaded:
        raise UsageError("nothing was measured side by side; measure the family stream_overlap")
    figure = new_figure(12.0, 4.2)
    axes = list(figure.subplots(1, bool(rows) + bool(loaded), squeeze=False)[0])
    where = [where_text(data, "torch"), failed_text(family)]
    if rows:
        _draw_pace(axes[0], rows, known)
        how = "One stream's time over two streams'; diamonds: the most that is possible."
        subtitle(axes[0], [how, runs_text(row.n for row in rows), *(where if not loaded else [])], 76)
        legend(figure, {"measured": LOOKS[MEASURED], "possible": LOOKS[BOUND]}, 2)
    if loaded:
        _draw_rates(axes[-1], loaded)
        subtitle(
            axes[-1],
            ["A DataLoader feeds training.", dots_text(len(one.runs) for one in loaded.values()), *where],
            52 if rows else 76,
        )
    title(figure, _title(rows, loaded))
    return figure


def _name(params: Mapping[str, object]) -> str:
    memory, direction = (str(params.get(key)) for key in ("memory", "direction"))
    return f"{MEMORY.get(memory, memory)} {DIRECTIONS.get(direction, direction)}"


def _draw_pace(axes: Axes, rows: Sequence[CaseChange], known: Sequence[Median]) -> None:
    points = [gain(row, MEASURED, Line("", _name(row.params)), said=True) for row in rows]
    drawn = {point.line for point in points}
    bounds = {
        Line("", _name(one.params)): one.value
        for one in known
        if one.unit == "overlap_bound" and one.params.get("streams") == "two"
    }
    points += [Point(line, BOUND, value) for line, value in bounds.items() if line in drawn]
    names = [f"{memory} {direction}" for memory in MEMORY.values() for direction in DIRECTIONS.values()]
    lines = sorted(drawn, key=lambda line: names.index(line.label) if line.label in names else len(names))
    places = Places(lines, [points], 0.4)
    places.prepare(axes)
    places.draw(axes, points, LOOKS)
    log_axis(axes, points, [0.95, 2.0])
    reference(axes)
    axes.axvline(CONTROL, color=VERMILLION, linewidth=0.9, linestyle="--", zorder=0.8)
    axes.set_xlabel(f"pace of two streams over one (log scale); dashed: {CONTROL}, the control")


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count != 1)}" if count else "no worker"


def _draw_rates(axes: Axes, loaded: Mapping[int, Median]) -> None:
    """Bars of images a second, a dot a run."""
    drawn = []
    for workers, one in sorted(loaded.items()):
        rate, *rates = (float(one.params["batch"]) / seconds for seconds in (one.value, *one.runs))
        drawn.append(Bar(_workers(workers), BLUE, rate, rates, f"{rate:,.0f}"))
    draw_bars(axes, drawn, "{:,.0f}".format)
    axes.set_ylabel("images a second")


def _title(rows: Sequence[CaseChange], loaded: Mapping[int, Median]) -> str:
    told = []
    for memory in MEMORY:
        gains = sorted(1 / (row.ratio or 1.0) for row in rows if row.params.get("memory") == memory)
        if gains:
            ends = ends_text(f"{value:.2f}" for value in (gains[0], gains[-1]))
            told.append(f"{ends} times with {MEMORY[memory]}")
    text = f"Two streams over one: {', '.join(told)}" if told else ""
    if len(loaded) > 1:
        least, most = min(loaded), max(loaded)
        pace = loaded[least].value / loaded[most].value
        fewer = _workers(least)
        text += f"{'; ' if text else ''}A loader's {most} workers over {fewer}: {pace:.2f} times"
    few = few_text([row.n for row in rows] or [len(one.runs) for one in loaded.values()])
    return f"{text or 'Images a second of a DataLoader'}{few}"
