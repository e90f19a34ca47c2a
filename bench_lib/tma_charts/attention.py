"""The chart of attention by the backend that torch takes."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from bench_lib.comparing.replicates import SECONDS
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import (
    BLUE,
    DARK,
    GREEN,
    PINK,
    STYLE,
    VERMILLION,
    new_figure,
    subtitle,
    text_inches,
    title,
)
from bench_lib.drawing.dotplot import Line, Look, Places, Point, natural
from bench_lib.drawing.family_data import (
    Median,
    dots_text,
    failed_text,
    few_text,
    medians,
    of_family,
    where_text,
)
from bench_lib.drawing.marks import legend
from bench_lib.errors import UsageError
from bench_lib.tma_charts import panel

FAMILY = "tma"
DEFAULT = "torch's own choice"
LOOKS = {
    "cudnn": Look(GREEN, "o"),
    "flash": Look(VERMILLION, "s"),
    "efficient": Look(BLUE, "^"),
    "math": Look(PINK, "D"),
    DEFAULT: Look(DARK, "P", filled=False),
}
NAMES = {
    "cudnn": "cuDNN",
    "flash": "FlashAttention",
    "efficient": "memory-efficient",
    "math": "plain products",
}


@matplotlib.rc_context(STYLE)
def attention_backends(data: Data) -> Figure:
    """TFLOP/s of attention by backend and length, forward and in training, beside the device's peak.

    `data`: one stack's. Raises UsageError where no attention was measured.
    """
    family = of_family(data, FAMILY)
    timed = [one for one in medians(family) if one.unit == SECONDS and one.op.startswith("attention")]
    if not timed:
        raise UsageError("no attention was measured; measure the family tma on Hopper or a later GPU")
    _, peak = panel.peaks(data, "bf16")
    points = [_point(one) for one in timed]
    lines = sorted({point.line for point in points}, key=_place)
    places = Places(lines, [points], 0.2)
    figure = new_figure(7.4 + text_inches(places.names()), 2.2 + places.inches)
    axes = figure.subplots()
    panel.draw(axes, places, points, LOOKS, "TFLOP/s", peak)
    subtitle(
        axes,
        [
            _shapes(timed),
            dots_text(len(one.runs) for one in timed),
            where_text(data, "torch", "cudnn"),
            failed_text(family),
        ],
        105,
    )
    title(figure, _title(timed))
    there = {point.series for point in points}
    legend(figure, {NAMES.get(name, name): look for name, look in LOOKS.items() if name in there}, 5)
    return figure


def _backend(one: Median) -> str:
    return str(one.params.get("backend", DEFAULT))


def _point(one: Median) -> Point:
    value, *runs = panel.teraflops(one)
    return Point(_line(one), _backend(one), value, runs=tuple(runs))


def _line(one: Median) -> Line:
    what = "Forward and backward" if one.params.get("direction") == "training" else "Forward"
    mask = ", causal" if one.params.get("causal") else ""
    length, size = one.params.get("sequence"), one.params.get("head_size")
    return Line(f"{what}{mask}, heads of {size}", f"{length} tokens a sequence")


def _place(line: Line) -> tuple[bool, str, object]:
    """Forward first, then by mask and size, the short sequences first."""
    return line.group.startswith("Forward and"), line.group, natural(line.label)


def _shapes(timed: Sequence[Median]) -> str:
    """What all cases have in common."""
    names = {"precision": "{}", "heads": "{} heads", "tokens": "{:,} tokens a batch"}
    values = {name: {one.params.get(name) for one in timed} - {None} for name in names}
    told = [text.format(*values[name]) for name, text in names.items() if len(values[name]) == 1]
    return f"{', '.join(told)}." if told else ""


def _title(timed: Sequence[Median]) -> str:
    """The backends at the longest sequence that most of them have, forward before training."""
    by_line: dict[Line, list[Median]] = {}
    for one in timed:
        by_line.setdefault(_line(one), []).append(one)
    line = max(
        by_line, key=lambda line: (len(by_line[line]), line.group.startswith("Forward,"), natural(line.label))
    )
    rated = sorted(((panel.teraflops(one)[0], _backend(one)) for one in by_line[line]), reverse=True)
    told = ", ".join(f"{NAMES.get(name, name)} {rate:.0f}" for rate, name in rated)
    few = few_text(len(one.runs) for one in by_line[line])
    return f"Attention in TFLOP/s ({line.group.lower()}, {line.label}): {told}{few}"
