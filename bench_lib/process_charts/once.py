"""What a process pays once, in time and in memory of the GPU: with lazy and with eager loading."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from bench_lib.comparing.replicates import SECONDS
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import BLUE, STYLE, VERMILLION, subtitle, title
from bench_lib.drawing.dotplot import Line, Look, Places, Point, log_axis, panels
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
from bench_lib.units import MIB, seconds_text

FAMILY = "module_loading"
LAZY, EAGER = "lazy", "eager"
LOOKS = {LAZY: Look(BLUE, "o"), EAGER: Look(VERMILLION, "s")}
TAKEN = "taken_nbytes"
_CONTEXT, _LIBRARY, _TORCH = "A context from nothing", "A library by path, in a context", "torch"
_NAMES = {"cublas": "cuBLAS", "cudnn": "cuDNN", "cudart": "CUDA runtime", "driver": "driver alone"}
_PARTS = {"init": "loaded, handle made", "first": "first call"}
_WORK = {
    "import": "import",
    "cuda_init": "CUDA started",
    "matmul": "first product",
    "convolution": "then the first convolution",
}


@matplotlib.rc_context(STYLE)
def once(data: Data) -> Figure:
    """Seconds of each first time, beside the memory of the GPU that it took: a point a way of loading.

    `data`: one stack's. Raises UsageError where nothing was measured.
    """
    family = of_family(data, FAMILY)
    found = [one for one in medians(family) if one.params.get("loading") in LOOKS and _line(one)]
    times = [_point(one, 1.0) for one in found if one.unit == SECONDS]
    memory = [_point(one, MIB) for one in found if one.unit == TAKEN]
    if not times:
        raise UsageError("no first time was measured; measure the family module_loading on a GPU")
    lines = sorted({point.line for point in times}, key=_order)
    places = Places(lines, [times, memory], 0.3)
    figure, (left, right) = panels(places, 9.6, [1, 1])
    places.draw(left, times, LOOKS)
    log_axis(left, times, text=seconds_text)
    left.set_xlabel("seconds (log scale)")
    places.draw(right, memory, LOOKS)
    right.set_xlabel("MiB of the GPU's memory that it took")
    right.set_xlim(left=min([0.0, *(value for point in memory for value in (point.value, *point.runs))]))
    runs = [len(one.runs) for one in found]
    subtitle(left, ["In a fresh process each.", dots_text(runs), failed_text(family)], 62)
    empty = "" if memory else "NVML did not tell the free memory."
    subtitle(right, ["Free memory before less after, by NVML.", empty, where_text(data, "cudart")], 62)
    title(figure, _finding(found) + few_text(runs))
    legend(figure, {f"{name} loading": look for name, look in LOOKS.items()}, 2)
    return figure


def _line(one: Median) -> Line | None:
    """Where a case stands; None for one that this chart does not know."""
    name = str(one.params.get("api", one.params.get("library", "")))
    if one.op == "context" and name in _NAMES:
        return Line(_CONTEXT, _NAMES[name])
    if one.op == "library" and name in _NAMES and one.metric in _PARTS:
        return Line(_LIBRARY, f"{_NAMES[name]}: {_PARTS[one.metric]}")
    work = str(one.params.get("work", ""))
    return Line(_TORCH, _WORK[work]) if one.op == "torch" and work in _WORK else None


def _order(line: Line) -> tuple[int, Any]:
    """Groups as declared; of a library its parts in their order, of torch's work too."""
    name, _, part = line.label.partition(": ")
    parts, work = list(_PARTS.values()), list(_WORK.values())
    place = work.index(name) if name in work else parts.index(part) if part in parts else 0
    return [_CONTEXT, _LIBRARY, _TORCH].index(line.group), ("" if name in work else name, place)


def _point(one: Median, unit: float) -> Point:
    line = _line(one)
    assert line is not None
    runs = tuple(run / unit for run in one.runs)
    return Point(line, str(one.params["loading"]), one.value / unit, runs=runs)


def _finding(found: list[Median]) -> str:
    """Of torch's work together, else of a context: what each way of loading takes."""
    told = []
    for loading in LOOKS:
        own = [one for one in found if one.params["loading"] == loading]
        seconds = {
            str(one.params.get("work")): one for one in own if one.op == "torch" and one.unit == SECONDS
        }
        memory = [one.value for one in own if one.op == "torch" and one.unit == TAKEN]
        if set(_WORK) <= seconds.keys():
            total = sum(seconds[work].value for work in _WORK if work != "import")
            taken = f" and {sum(memory) / MIB:.0f} MiB" if len(memory) == len(_WORK) else ""
            told.append(f"{total:.3g} s{taken} with {loading} loading")
    if told:
        return f"torch's start of CUDA, first product and convolution take {', '.join(told)}"
    return "What a process pays once, by how its code is loaded"
