"""A panel of rates: medians as points with a dot a run, from zero to the device's peak where it is known."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from bench_lib.comparing.rates import peak_bandwidth, peak_teraflops
from bench_lib.comparing.store import Data
from bench_lib.drawing.canvas import reference
from bench_lib.drawing.dotplot import Look, Places, Point
from bench_lib.drawing.family_data import Median


def teraflops(one: Median) -> list[float]:
    """TFLOP/s of a case: its median first, then each run's."""
    return [one.flop / seconds / 1e12 for seconds in (one.value, *one.runs)]


def peaks(data: Data, precision: str) -> tuple[float, float]:
    """GB/s and TFLOP/s of the one GPU of the data in a precision; NaN where it is not known."""
    names = set(data.runs["gpu_name"])
    name = str(names.pop()) if len(names) == 1 else ""
    return peak_bandwidth(name), peak_teraflops(name, precision)


def draw(
    axes: Axes, places: Places, points: Sequence[Point], looks: Mapping[str, Look], unit: str, peak: float
) -> None:
    """The points, and a line at the peak."""
    places.prepare(axes)
    places.draw(axes, points, looks)
    most = max((value for point in points for value in (point.value, *point.runs)), default=1.0)
    if not math.isnan(peak):
        reference(axes, peak)
        most = max(most, peak)
    axes.set_xlim(0, 1.04 * most)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(unit if math.isnan(peak) else f"{unit}; the line is the data sheet's peak, {peak:,.0f}")
