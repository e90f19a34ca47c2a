"""Charts of torch.compile: its speed-up by configuration, its first step, and when that has paid."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench_lib.comparing.changes import CaseChange
from bench_lib.comparing.replicates import SECONDS, params_of
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import BLUE, GREEN, STYLE, VERMILLION, subtitle, title
from bench_lib.drawing.dotplot import Line, Look, Places, Point, gain, gain_axis, log_axis, natural, panels
from bench_lib.drawing.family_data import (
    Median,
    against,
    dots_text,
    failed_text,
    few_text,
    medians,
    of_family,
    range_text,
    runs_text,
    to_tell,
    where_text,
)
from bench_lib.drawing.launch_chart import CLAIM_COLOUR
from bench_lib.drawing.marks import legend
from bench_lib.errors import UsageError
from bench_lib.model import Status
from bench_lib.units import ends_text, quantity_text, seconds_text

FAMILY = "compile_resnet50"
CLAIMED_GAIN = (1.35, 1.50)  # "+35 to 50 % on the training of ResNet-50"
CLAIMED_FIRST_SECONDS = (1.0, 3.0)  # "the first step takes 1 to 3 s"
MOST_POINTS = 60  # with more, the parts of a step and the numbers in words are left out

EAGER = "eager"
EXECUTIONS = {
    "compiled": Look(BLUE, "o"),
    "compiled-reduce-overhead": Look(VERMILLION, "s"),
    "compiled-max-autotune": Look(GREEN, "^"),
    "eager#2": Look("#777777", "D", filled=False),
}
PARTS = ("step", "forward", "backward", "optimizer")
MODES = {"train": "training", "infer": "inference"}
COMPILED = [name for name in EXECUTIONS if not name.startswith(EAGER)]
NETWORKS = {"resnet50": "ResNet-50", "bottleneck": "One bottleneck stage"}


@matplotlib.rc_context(STYLE)
def compile_speed_up(data: Data) -> Figure:
    """Speed-up of compiled over eager by configuration, the whole step and its parts.

    `data`: one stack's. Raises UsageError where no step was measured eager and compiled.
    """
    family = of_family(data, FAMILY)
    changes = against(family, "execution", EAGER)
    rows = [(name, row) for name in EXECUTIONS for row in changes.get(name, ()) if row.ratio]
    rows = [(name, row) for name, row in rows if row.metric in PARTS]
    if not rows:
        raise UsageError("no step was measured eager and compiled; measure the family compile_resnet50")
    many = len(rows) > MOST_POINTS
    kept = [(name, row) for name, row in rows if row.metric == "step" or not many]
    points = [gain(row, name, _line(row, many), said=not many) for name, row in kept]
    places = Places(_ordered(points), [points], 0.3 if many else 0.62)
    figure, (axes,) = panels(places, 8.4, [1])
    looks = {name: look for name, look in EXECUTIONS.items() if any(point.series == name for point in points)}
    places.draw(axes, points, looks)
    claimed = _is_claimed(data) and any(row.params.get("mode") == "train" for _, row in kept)
    gain_axis(axes, points, "eager", CLAIMED_GAIN if claimed else ())
    claim = [_claim(axes, CLAIMED_GAIN, _GAIN_CLAIM)] if claimed else []
    title(figure, _speed_up_title(kept))
    left_out = "Whole steps only; their parts are in the tables." if many else ""
    runs = runs_text(row.n for _, row in kept)
    told = ["Eager and compiled steps in turns.", runs, left_out, failed_text(family)]
    subtitle(axes, [*told, where_text(data, "torch", "triton")], 88)
    legend(figure, looks, 3, *claim)
    return figure


_GAIN_CLAIM = "published claim for ResNet-50 training: +35 to 50 %"
_FIRST_CLAIM = "published claim: 1 to 3 s"


def _is_claimed(data: Data) -> bool:
    """Whether the claims are about this: the whole network on a GPU."""
    return bool((data.cases["op"] == "resnet50").any() and (data.runs["device"] == "cuda").any())


def _claim(axes: Axes, band: tuple[float, float], text: str) -> Patch:
    """The band of a published claim, and its entry in the legend."""
    axes.axvspan(*band, color=CLAIM_COLOUR, alpha=0.12, linewidth=0, zorder=0.3)
    return Patch(color=CLAIM_COLOUR, alpha=0.12, label=text)


def _network(op: str, params: Mapping[str, Any]) -> str:
    return f"{NETWORKS.get(op, op)} {MODES.get(str(params.get('mode')), '')}"


def _setting(params: Mapping[str, Any]) -> str:
    layout = str(params.get("layout", "")).replace("nchw", "NCHW")
    return f"batch {params.get('batch')}, {params.get('precision')}, {layout}"


def _line(row: CaseChange, many: bool) -> Line:
    """Of many configurations each has one line, else a group with a line for each part of the step."""
    network, setting = _network(row.op, row.params), _setting(row.params)
    part = "whole step" if row.metric == "step" else row.metric
    return Line(network, setting) if many else Line(f"{network}, {setting}", part)


def _ordered(points: Iterable[Point]) -> list[Line]:
    """Training first, then by configuration; the parts of a step in their order."""
    parts = {name: i for i, name in enumerate(("whole step", *PARTS[1:]))}

    def key(line: Line) -> tuple[bool, list[tuple[int, int, str]], int]:
        configuration = line.group if line.label in parts else f"{line.group}, {line.label}"
        return "training" not in configuration, natural(configuration), parts.get(line.label, 0)

    return sorted({point.line for point in points}, key=key)


def _speed_up_title(rows: Sequence[tuple[str, CaseChange]]) -> str:
    """The range of each mode's speed-ups of the whole step."""
    told = []
    steps, doubt = to_tell(row for name, row in rows if row.metric == "step" and name in COMPILED)
    for mode, name in MODES.items():
        if own := [row for row in steps if row.params.get("mode") == mode and row.ratio]:
            told.append(f"{name} {range_text(own)}")
    networks = {NETWORKS.get(row.op, row.op) for _, row in rows}
    which = networks.pop() if len(networks) == 1 else "A step"
    return f"{which} compiled, times as fast as eager: {', '.join(told)}{doubt}"


# --- the first step, and when it has paid for itself

FIRSTS = {  # (execution, metric) -> the series
    (EAGER, "first_cold"): "eager",
    ("compiled", "first_cold"): "compiled, empty caches (cold)",
    ("compiled", "first_warm"): "compiled, caches of an earlier process (warm)",
}
FIRST_LOOKS = dict(
    zip(FIRSTS.values(), (Look("#333333", "D"), Look(BLUE, "o"), Look(VERMILLION, "s")), strict=True)
)


@matplotlib.rc_context(STYLE)
def compile_first_step(data: Data) -> Figure:
    """Seconds of a fresh process's first step, and after how many steps compiling has paid for itself.

    `data`: one stack's. Raises UsageError where no first step was measured.
    """
    family = of_family(data, FAMILY)
    found = [one for one in medians(family) if (one.params.get("execution"), one.metric) in FIRSTS]
    firsts = [_first(one, seconds_text(one.value)) for one in found if one.unit == SECONDS]
    if not firsts:
        raise UsageError("no first step was measured; measure compile_resnet50 without --quick")
    paid = [_paid(one) for one in found if one.unit == "payback_steps"]
    paid += _never(family, {(point.line, point.series) for point in paid})
    places = Places(_ordered(firsts), [firsts, paid], 0.8)
    figure, (left, right) = panels(places, 9.6, [1.2, 1], room=2.6)
    places.draw(left, firsts, FIRST_LOOKS)
    claimed = _is_claimed(data)
    log_axis(left, firsts, CLAIMED_FIRST_SECONDS if claimed else (), seconds_text)
    left.set_xlabel("first step of a fresh process (log scale)")
    places.draw(right, paid, FIRST_LOOKS)
    _steps_axis(right, paid)
    claim = [_claim(left, CLAIMED_FIRST_SECONDS, _FIRST_CLAIM)] if claimed else []
    title(figure, _first_title(found))
    subtitle(left, [dots_text(len(point.runs) for point in firsts), failed_text(family)], 60)
    told = "Steps until the compiled ones have made up for what the first took longer than eager's."
    subtitle(right, [told, where_text(data, "torch", "triton")], 60)
    legend(figure, FIRST_LOOKS, 2, *claim)
    return figure


def _first(one: Median, text: str) -> Point:
    """A number of a first step: all its points share one line."""
    line = Line("", f"{_network(one.op, one.params)}, {_setting(one.params)}")
    series = FIRSTS[str(one.params["execution"]), one.metric]
    return Point(line, series, one.value, runs=one.runs, text=text)


def _paid(one: Median) -> Point:
    if one.value > 0:
        return _first(one, f"{quantity_text(one.value)} steps")
    return replace(_first(one, "at once"), value=math.nan, runs=())


def _never(family: Data, paid: Collection[tuple[Line, str]]) -> list[Point]:
    """The first steps that no number of steps pays for, in no run."""
    cases = family.cases[family.cases["status"] == Status.OK]
    never = [
        Median(op, params_of(text), metric, "payback_steps", math.nan, (), math.nan)
        for op, text, metric, facts in cases[["op", "params", "metric", "facts"]].itertuples(index=False)
        if str(facts.get("payback", "")).startswith("never") and metric.startswith("first_")
    ]
    points = {(point.line, point.series): point for point in (_first(one, "never") for one in never)}
    return [point for key, point in points.items() if key not in paid]


def _steps_axis(axes: Axes, paid: Sequence[Point]) -> None:
    if any(point.value > 0 for point in paid):
        log_axis(axes, paid, text="{:,.0f}".format)
    else:
        axes.set_xticks([])
    axes.set_xlabel("steps until paid back (log scale)")


def _first_title(found: Sequence[Median]) -> str:
    """The ranges of the compiled first step, cold and warm, and of eager's."""
    told = []
    for series, name in zip(FIRSTS.values(), ("eager", "compiled cold", "compiled warm"), strict=True):
        times = [
            one.value
            for one in found
            if one.unit == SECONDS and FIRSTS[one.params["execution"], one.metric] == series
        ]
        if times:
            told.append(f"{name} {ends_text(f'{end:.3g}' for end in (min(times), max(times)))} s")
    few = few_text(len(one.runs) for one in found)
    return f"The first step of a fresh process: {', '.join(told)}{few}"
