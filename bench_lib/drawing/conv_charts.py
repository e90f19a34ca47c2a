"""Charts of convolutions: what precision and layout give, and what cuDNN's tuning gives and costs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench_lib.comparing.changes import CaseChange, Change
from bench_lib.comparing.rates import rates
from bench_lib.comparing.replicates import SECONDS, params_of
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    STYLE,
    VERMILLION,
    reference,
    subtitle,
    title,
)
from bench_lib.drawing.dotplot import Line, Look, Places, Point, gain, gain_axis, log_axis, natural, panels
from bench_lib.drawing.family_data import (
    Median,
    against,
    batch_text,
    doubt_text,
    failed_text,
    gain_text,
    medians,
    of_family,
    range_text,
    runs_text,
    to_tell,
    usual,
    where_text,
)
from bench_lib.drawing.marks import legend
from bench_lib.errors import UsageError
from bench_lib.units import ends_text, seconds_text

Looks = Mapping[str, Look]

FP32 = "fp32"
PRECISIONS: Looks = {
    FP32: Look("#333333", "D"),
    "tf32": Look(GREEN, "^"),
    "fp16-autocast": Look(BLUE, "o"),
    "bf16-autocast": Look(VERMILLION, "s"),
    "fp16": Look(SKY, "o", filled=False),
    "bf16": Look(ORANGE, "s", filled=False),
}
CONVOLUTIONS = {"forward": "One convolution, forward", "training": "One convolution, forward and backward"}
STEPS = "A training step: forward, backward, SGD"
SHAPES = "Shapes: kernel, channels in, channels out, image."


@matplotlib.rc_context(STYLE)
def precision_speed_up(data: Data) -> Figure:
    """Speed-up over IEEE fp32 by precision, layout and shape, beside the share of the device's peak.

    `data`: one stack's. Where the peak is not known, TFLOP/s stand there. Raises UsageError where
    nothing was measured in fp32 and in another precision.
    """
    family = of_family(data, "amp_conv")
    rows = against(family, "precision", FP32)
    known = {name: look for name, look in PRECISIONS.items() if name == FP32 or name in rows}
    gains = [
        gain(row, name, _conv_line(row.op, row.params))
        for name in known
        for row in rows.get(name, ())
        if row.ratio
    ]
    if not gains:
        raise UsageError("no case of amp_conv was measured in fp32 and in another precision; measure both")
    counted, label = _rates(family, known)
    lines = _ordered({point.line for point in (*gains, *counted)}, [*CONVOLUTIONS.values(), STEPS])
    places = Places(lines, [gains, counted], 0.2)
    figure, (left, right) = panels(places, 9.2, [1.15, 1])
    places.draw(left, gains, known)
    gain_axis(left, gains, "IEEE fp32")
    beyond = _share_panel(right, places, counted, known, label)
    title(figure, _precision_title(rows))
    n = [row.n for changes in rows.values() for row in changes if row.ratio]
    how = f"Speed-up over IEEE fp32 of the same layout. {SHAPES}"
    subtitle(left, [how, runs_text(n), failed_text(family)], 62)
    subtitle(right, [where_text(data, "torch", "cudnn"), batch_text(family), beyond], 56)
    legend(figure, known, 6)
    return figure


def _conv_line(op: str, params: Mapping[str, Any]) -> Line:
    group = CONVOLUTIONS.get(str(params.get("direction")), STEPS)
    if op == "small_cnn":
        return Line(group, "small CNN, made-up data")
    name = str(params.get("shape", params.get("network", op))).replace("resnet50", "ResNet-50")
    return Line(group, f"{name}, {_layout(params)}")


def _layout(params: Mapping[str, Any]) -> str:
    return str(params.get("layout", "")).replace("nchw", "NCHW")


def _ordered(lines: Iterable[Line], groups: Iterable[str]) -> list[Line]:
    order = list(groups)
    return sorted(lines, key=lambda line: (order.index(line.group), natural(line.label)))


def _rates(family: Data, known: Iterable[str]) -> tuple[list[Point], str]:
    """Share of the peak, or TFLOP/s where a peak is not known, and what the axis is called."""
    found = rates(usual(family))
    found = found[found["precision"].isin(list(known))]
    share = not found.empty and bool(np.isfinite(found["share"]).all())
    column = "share" if share else "teraflops"
    points = [
        Point(_conv_line(op, params_of(text)), precision, float(value))
        for op, text, precision, value in found[["op", "params", "precision", column]].itertuples(index=False)
    ]
    return points, "share of the peak of the same precision" if share else "TFLOP/s"


def _share_panel(axes: Axes, places: Places, points: Sequence[Point], looks: Looks, label: str) -> str:
    """Draw the shares, or TFLOP/s; a sentence on shares beyond the peak, "" without any."""
    places.draw(axes, points, looks)
    most = max([point.value for point in points], default=1.0)
    axes.set_xlim(0, 1.08 * most)
    axes.set_xlabel(label)
    if label.startswith("TFLOP"):
        return ""
    axes.xaxis.set_major_formatter("{x:.0%}")
    if most <= 1:
        return ""
    reference(axes)
    return "Beyond 100 %: counted is the FLOP of a direct convolution, and Winograd's does with less."


def _precision_title(rows: Mapping[str, Sequence[CaseChange]]) -> str:
    """The ranges of autocast's speed-ups that have intervals: of single convolutions, of training steps."""
    autocast = [row for name in rows if name.endswith("-autocast") for row in rows[name] if row.ratio]
    found, doubt = to_tell(autocast or [row for changes in rows.values() for row in changes])
    single = [row for row in found if row.op == "conv"]
    steps = sorted((row for row in found if row.op != "conv"), key=lambda row: -(row.ratio or 1.0))
    told = [f"{range_text(single)} times as fast as IEEE fp32 on one convolution"] if single else []
    if steps:
        ends = (gain_text(row, _network(row), doubt_text(row)) for row in (steps[0], steps[-1]))
        told.append(f"{ends_text(ends)} on a training step")
    return f"{'Autocast' if autocast else 'Other precisions'}: {'; '.join(told)}{doubt}"


def _network(row: CaseChange) -> str:
    return _conv_line(row.op, row.params).label.partition(",")[0]


# --- cuDNN's choice

BY_PATH = "cuDNN by path, without torch: forward"
TUNED = {"forward": "Forward", "training": "Forward and backward"}
FORM_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PINK, SKY)
CALLS = {  # (op, metric, benchmark, unit) -> what the call is, its marker, and whether that is filled
    ("tuning", "tuning", "on", SECONDS): ("the call that tunes", "o", True),
    ("first_call", "first", "on", SECONDS): ("first call of a process, on", ">", False),
    ("first_call", "first", "off", SECONDS): ("first call of a process, off", "<", False),
    ("choice_by_path", "tuning", "on", SECONDS): ("cudnnFind, which tries all", "s", True),
    ("choice_by_path", "tuning", "off", SECONDS): ("cudnnGet, the heuristic", "s", False),
}


@matplotlib.rc_context(STYLE)
def tuning(data: Data) -> Figure:
    """What cudnn.benchmark gives by shape in the steady state, beside the seconds that tuning costs.

    `data`: one stack's. Raises UsageError where no convolution was measured with it off and on.
    """
    family = of_family(data, "cudnn_selection")
    rows = [
        row
        for row in against(family, "benchmark", "off").get("on", ())
        if row.op in ("conv", "conv_by_path") and row.ratio
    ]
    if not rows:
        raise UsageError("no convolution was measured with cudnn.benchmark off and on; measure both")
    forms = {form: FORM_COLOURS[i % 6] for i, form in enumerate(sorted({_form(row.params) for row in rows}))}
    gains = [gain(row, _form(row.params), _tuned_line(row.op, row.params)) for row in rows]
    costs = [_cost(one) for one in medians(family) if _call(one) in CALLS and _form(one.params) in forms]
    lines = _ordered({point.line for point in (*gains, *costs)}, [*TUNED.values(), BY_PATH])
    places = Places(lines, [gains, costs], 0.24)
    figure, (left, right) = panels(places, 9.6, [1, 1])
    places.draw(left, gains, {form: Look(colour, "o") for form, colour in forms.items()})
    gain_axis(left, gains, "with it off")
    _cost_panel(right, places, costs, forms)
    title(figure, _tuning_title(rows))
    n = [row.n for row in rows]
    how = f"Steady state with cudnn.benchmark on over off. {SHAPES}"
    subtitle(left, [how, runs_text(n), failed_text(family)], 62)
    subtitle(
        right,
        ["What the choice costs, once a shape and process.", where_text(data, "cudnn"), batch_text(family)],
        62,
    )
    _tuning_legend(figure, forms, costs)
    return figure


def _form(params: Mapping[str, Any]) -> str:
    return f"{params.get('precision', '')}, {_layout(params)}"


def _tuned_line(op: str, params: Mapping[str, Any]) -> Line:
    path = op.endswith("by_path")
    return Line(
        BY_PATH if path else TUNED[str(params.get("direction", "forward"))], str(params.get("shape", ""))
    )


def _call(one: Median) -> tuple[str, str, str, str]:
    return one.op, one.metric, str(one.params.get("benchmark", "")), one.unit


def _cost(one: Median) -> Point:
    series = f"{_form(one.params)}: {CALLS[_call(one)][0]}"
    return Point(_tuned_line(one.op, one.params), series, one.value, runs=one.runs)


def _cost_panel(axes: Axes, places: Places, costs: Sequence[Point], forms: Mapping[str, str]) -> None:
    """Seconds of each call: the colour is the form's, the marker says which call."""
    looks = {
        f"{form}: {name}": Look(colour, marker, filled)
        for form, colour in forms.items()
        for name, marker, filled in CALLS.values()
    }
    places.draw(axes, costs, looks)
    if costs:
        log_axis(axes, costs, text=seconds_text)
    axes.set_xlabel("time of one call (log scale)")


def _tuning_legend(figure: Figure, forms: Mapping[str, str], costs: Sequence[Point]) -> None:
    there = {point.series.partition(": ")[2] for point in costs}
    calls = {name: Look(GREY, marker, filled) for name, marker, filled in CALLS.values() if name in there}
    looks = {**{form: Look(colour, "o") for form, colour in forms.items()}, **calls}
    legend(figure, looks, 4)


def _tuning_title(rows: Sequence[CaseChange]) -> str:
    """What torch's own convolutions gained and lost; those by path count where there are no others."""
    ours, doubt = to_tell([row for row in rows if row.op == "conv"] or rows)
    slower = sum(row.change is Change.SLOWER for row in ours)
    worse = "" if doubt else f"; slower beyond the margin in {slower} of {len(ours)} cases"
    return f"cudnn.benchmark: {range_text(ours)} times as fast once tuned{worse}{doubt}"
