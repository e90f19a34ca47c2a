"""The chart of copies and products by tile, through the tensor memory accelerator (TMA) and without it."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from bench_lib.comparing.changes import CaseChange
from bench_lib.comparing.replicates import SECONDS
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import BLUE, STYLE, VERMILLION, new_figure, subtitle, text_inches, title
from bench_lib.drawing.dotplot import Line, Look, Places, Point, gain, natural
from bench_lib.drawing.family_data import (
    Median,
    against,
    failed_text,
    gigabytes,
    medians,
    of_family,
    range_text,
    runs_text,
    to_tell,
    where_text,
)
from bench_lib.drawing.marks import legend
from bench_lib.errors import UsageError
from bench_lib.model import Case
from bench_lib.tma_charts import panel

FAMILY, TMA = "tma", "tma"
COPIES = {
    "copy_ptx": "Copy, kernels in PTX: bytes of a tile",
    "copy": "Copy of an fp16 matrix in Triton: tile",
}
GEMM = "gemm"
LOOKS = {
    "plain": Look("#555555", "D"),
    "cp_async": Look(BLUE, "s"),
    TMA: Look(VERMILLION, "o"),
}
NAMES = {"plain": "plain loads", "cp_async": "cp.async", TMA: "TMA"}
_WITHOUT = ("cp_async", "plain")  # what TMA is held against: the first that was measured


@matplotlib.rc_context(STYLE)
def tma_tiles(data: Data) -> Figure:
    """GB/s of copies and TFLOP/s of products by tile, with and without TMA, beside the device's peaks.

    `data`: one stack's. Raises UsageError where no copy and no product was measured.
    """
    family = of_family(data, FAMILY)
    timed = [one for one in medians(family) if one.unit == SECONDS and one.params.get("loads") in LOOKS]
    if not timed:
        raise UsageError(
            "no copy and no product was measured; measure the family tma on Hopper or a later GPU"
        )
    changes = _changes(family)
    bandwidth, flops = panel.peaks(data, "fp16")
    halves = [
        (
            [_point(one, gigabytes(one), changes) for one in timed if one.op in COPIES],
            "GB/s",
            bandwidth,
        ),
        ([_point(one, panel.teraflops(one), changes) for one in timed if one.op == GEMM], "TFLOP/s", flops),
    ]
    drawn = [half for half in halves if half[0]]
    all_places = [Places(_ordered(points), [points], 0.24) for points, _, _ in drawn]
    height = max(places.height for places in all_places)
    width = 5.4 * len(drawn) + sum(text_inches(places.names()) for places in all_places)
    figure = new_figure(width, 2.1 + max(places.inches for places in all_places))
    panels = figure.subplots(1, len(drawn), squeeze=False)[0]
    for axes, places, (points, unit, peak) in zip(panels, all_places, drawn, strict=True):
        panel.draw(axes, places, points, LOOKS, unit, peak)
        axes.set_ylim(height, 0)
    said = [_how(timed), failed_text(family)], [where_text(data, "triton", "torch")]
    for axes, sentences in zip(panels, said, strict=False):
        subtitle(axes, sentences, 72)
    title(figure, _title(list(changes.values())))
    legend(figure, {NAMES[loads]: look for loads, look in LOOKS.items()}, 3)
    return figure


def _changes(family: Data) -> dict[str, CaseChange]:
    """TMA against what loads without it, by the id of the case with TMA."""
    found: dict[str, CaseChange] = {}
    for loads in reversed(_WITHOUT):
        for row in against(family, "loads", loads).get(TMA, ()):
            if row.ratio:
                found[Case(row.family, row.op, {**row.params, "loads": TMA}).case_id] = row
    return found


def _point(one: Median, values: Sequence[float], changes: dict[str, CaseChange]) -> Point:
    value, *runs = values
    change = changes.get(Case(FAMILY, one.op, one.params).case_id)
    text = gain(change, TMA, Line("", ""), said=True).text if change else ""
    loads = str(one.params["loads"])
    return Point(_line(one), loads, value, runs=tuple(runs), text=text)


def _line(one: Median) -> Line:
    tile = str(one.params.get("tile", ""))
    if one.op in COPIES:
        return Line(COPIES[one.op], tile)
    m, n = one.params.get("m"), one.params.get("n")
    return Line(f"{m} x {n} times {n} x {n} in Triton, fp16: tile", tile)


def _ordered(points: Sequence[Point]) -> list[Line]:
    groups = [
        *COPIES.values(),
        *sorted({point.line.group for point in points} - {*COPIES.values()}, key=natural),
    ]
    return sorted(
        {point.line for point in points}, key=lambda one: (groups.index(one.group), natural(one.label))
    )


def _how(timed: Sequence[Median]) -> str:
    runs = runs_text(len(one.runs) for one in timed).partition("; bars")[0].rstrip(".")
    return (
        f"Medians, a dot a run: {runs}. At the right: how many times as fast TMA is as cp.async; where there "
        "is none, as plain loads."
    )


def _title(changes: Sequence[CaseChange]) -> str:
    """The ranges of what TMA gains on copies and on products; only with intervals where there are any."""
    found, doubt = to_tell(changes)
    told = []
    for what, ops in (("copies", tuple(COPIES)), ("products", (GEMM,))):
        if own := [row for row in found if row.op in ops and row.ratio]:
            told.append(f"{what} {range_text(own)} times as fast")
    return f"Through TMA: {', '.join(told)}{doubt}" if told else "Copies and products by how they load"
