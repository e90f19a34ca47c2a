"""What a kernel launch costs by version of the CUDA runtime: the ladder, and one process a runtime."""

from collections.abc import Iterable

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench_lib.comparing.changes import CaseChange
from bench_lib.comparing.store import Data
from bench_lib.drawing import runtimes
from bench_lib.drawing.canvas import (
    BAND,
    COLOURS,
    DARK,
    MARKERS,
    STYLE,
    new_figure,
    ratio_text,
    shown,
    subtitle,
    title,
)
from bench_lib.drawing.runtimes import METRICS, Runtimes, version_key
from bench_lib.errors import UsageError
from bench_lib.units import ends_text, seconds_text

CLAIMED = 0.70  # "CUDA 12.4 launches up to 30 % faster than 11.8"
DRIVER = "driver"  # the control of the ladder: no runtime at all
CLAIM_COLOUR = "#b00020"


@matplotlib.rc_context(STYLE)
def launch_by_runtime(data: Data) -> Figure:
    """Launch cost against the CUDA runtime: from the ladder, from one process a runtime, or both.

    Ladder: ratio to the baseline runtime inside each run, in full and magnified, by size of burst.
    Processes: the time in each run, with the mean and the interval of its difference from the
    baseline. Raises UsageError where the data holds fewer than two runtimes.
    """
    ladder, processes = runtimes.ladder(data), runtimes.processes(data)
    drawn = [found for found in (ladder, processes) if found is not None]
    if not drawn:
        raise UsageError(
            "the data holds launches through fewer than two CUDA runtimes; measure the family ladder, "
            "or the family launch in two cudart stacks or more"
        )
    figure = new_figure(12.0, 0.8 + 3.9 * len(drawn))
    panels = figure.subplots(len(drawn), 2, squeeze=False)
    if ladder is not None:
        _draw_ladder(panels[0], ladder)
    for row, found in zip(panels, drawn, strict=True):
        for axes in row:
            _runtime_axis(axes, _places(found), _machine(data))
    if processes is not None:
        for axes, metric in zip(panels[-1], METRICS, strict=True):
            _draw_processes(axes, metric, processes)
    title(figure, _finding(drawn[0]))
    return figure


def _finding(found: Runtimes) -> str:
    """The title: between which ratios the versions lie; second copies and the control do not count."""
    versions = [rows for name, rows in found.rows.items() if version_key(name)[0] == 0]
    ratios = [row.ratio for rows in versions for row in rows.values() if row.ratio]
    if not ratios:
        return "Launching an empty kernel, by CUDA runtime"
    return (
        f"Launching an empty kernel takes {ratio_text(min(ratios))} to {ratio_text(max(ratios))} times "
        f"as long through other CUDA runtimes as through {found.baseline}"
    )


def _places(found: Runtimes) -> dict[str, float]:
    """Where each runtime stands on the x axis: versions first, then controls, further apart."""
    names = sorted([found.baseline, *found.rows], key=version_key)
    places, at = {}, -1.0
    for name in names:
        at += 1.25 if version_key(name)[0] else 1.0
        places[name] = at
    return places


def _machine(data: Data) -> str:
    """The GPU and driver of the data, each where there is just one."""
    drivers = {str(identity.get("driver.version", "")) for identity in data.runs["driver_identity"]} - {""}
    gpus = set(data.runs["gpu_name"]) - {""}
    told = [*gpus] * (len(gpus) == 1) + [f"driver {name}" for name in drivers] * (len(drivers) == 1)
    return ", ".join(told)


def _runtime_axis(axes: Axes, places: dict[str, float], machine: str) -> None:
    labels = {DRIVER: "driver\nonly"}
    texts = [labels.get(name, shown(name, 14).replace("#2", "\nagain")) for name in places]
    axes.set_xticks(list(places.values()), texts)
    axes.set_xlim(-0.6, max(places.values()) + 0.6)
    axes.set_xlabel(shown("CUDA runtime (libcudart)" + (f"; {machine}" if machine else "")))
    axes.grid(visible=False, axis="x")


def _draw_ladder(panels: Iterable[Axes], found: Runtimes) -> None:
    whole, magnified = panels
    for axes in (whole, magnified):
        _ladder_points(axes, found)
        axes.set_ylabel(f"seconds a launch, ratio to {shown(found.baseline, 14)}")
    whole.set_ylim(min(0.66, whole.get_ylim()[0]), max(1.06, whole.get_ylim()[1]))
    _claim(whole, CLAIMED)
    whole.legend(loc="center left", bbox_to_anchor=(0.0, 0.5))
    n = sorted({row.n for rows in found.rows.values() for row in rows.values()})
    how_many = ends_text(map(str, (n[0], n[-1])))
    subtitle(whole, [f"The ladder: all runtimes in one process, launches in turns; {how_many} processes"], 84)
    subtitle(magnified, ["The same, magnified: bars are 95 % intervals over the processes"], 84)


def _ladder_points(axes: Axes, found: Runtimes) -> None:
    places = _places(found)
    bursts = sorted({key for rows in found.rows.values() for key in rows}, key=lambda key: (len(key), key))
    margin = max(row.margin for rows in found.rows.values() for row in rows.values())
    axes.axhspan(1 / (1 + margin), 1 + margin, color=BAND, zorder=0.5, label=f"margin ±{100 * margin:g} %")
    _baseline_mark(axes, shown(found.baseline, 14), places[found.baseline], 1.0)
    for i, burst in enumerate(bursts):
        rows = {name: of[burst] for name, of in found.rows.items() if burst in of}
        offset = 0.22 * (i - (len(bursts) - 1) / 2)
        _points(axes, {places[name] + offset: row for name, row in rows.items()}, i, _burst_text(burst), 1.0)


def _baseline_mark(axes: Axes, baseline: str, place: float, at: float) -> None:
    axes.axhline(at, color=DARK, linewidth=0.9, zorder=0.8)
    axes.plot(
        [place],
        [at],
        color=DARK,
        marker="D",
        markersize=6,
        markerfacecolor="white",
        linestyle="none",
        label=f"{baseline}, the baseline",
    )


def _burst_text(burst: str) -> str:
    return "single launches" if burst == "1" else f"bursts of {burst}"


def _points(axes: Axes, rows: dict[float, CaseChange], i: int, label: str, unit: float) -> None:
    """Ratios with their intervals, times `unit`: 1 for ratios, the baseline's seconds for times."""
    centre = [unit * (row.ratio or 1.0) for row in rows.values()]
    below = [unit * ((row.ratio or 1.0) - (row.low or row.ratio or 1.0)) for row in rows.values()]
    above = [unit * ((row.high or row.ratio or 1.0) - (row.ratio or 1.0)) for row in rows.values()]
    axes.errorbar(
        list(rows),
        centre,
        yerr=[below, above],
        color=COLOURS[i],
        marker=MARKERS[i],
        markersize=5,
        linestyle="none",
        elinewidth=1.4,
        capsize=2.5,
        label=label,
    )


def _claim(axes: Axes, at: float) -> None:
    axes.axhline(at, color=CLAIM_COLOUR, linewidth=1.2, linestyle="--")
    axes.text(
        0.99,
        at,
        "the published claim for 12.4: up to 30 % faster",
        color=CLAIM_COLOUR,
        transform=axes.get_yaxis_transform(),
        ha="right",
        va="bottom",
    )


def _draw_processes(axes: Axes, metric: str, found: Runtimes) -> None:
    """The time of every run as a dot, and each runtime's mean with its paired interval."""
    places = _places(found)
    runs = found.runs[found.runs["metric"] == metric]
    rows = {name: of[metric] for name, of in found.rows.items() if metric in of}
    if not rows:
        axes.remove()
        return
    for name, place in places.items():
        values = runs.loc[runs["runtime"] == name, "value"].to_numpy()
        spread = [place + 0.06 * (i % 5 - 2) for i in range(len(values))]
        axes.plot(spread, values, ".", color="#9aa7b0", markersize=4)
    level = next(iter(rows.values())).baseline or 1.0
    baseline = shown(found.baseline, 14)
    _baseline_mark(axes, baseline, places[found.baseline], level)
    label = f"mean, and its 95 % interval against {baseline}"
    _points(axes, {places[name]: row for name, row in rows.items()}, 0, label, level)
    _claim(axes, CLAIMED * level)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(value)))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.set_ylabel("time a launch")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 0.1))
    subtitle(axes, [f"One process a runtime: {METRICS[metric]}; each dot is a process"], 84)
