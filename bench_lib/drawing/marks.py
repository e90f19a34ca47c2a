"""What charts of several kinds draw alike: a legend, lines through medians, bars, an axis of sizes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from bench_lib.drawing.dotplot import Look

Dots = Iterable[tuple[float, Sequence[float]]]  # where on the x axis, and the median followed by each run


class Bar(NamedTuple):
    """One bar: its name, its colour, the median it stands for, its runs, and what is written over it."""

    name: str
    colour: str
    value: float
    runs: Sequence[float]
    text: str


def legend(figure: Figure, looks: Mapping[str, Look], columns: int, *more: Artist) -> None:
    """The series by name below the figure, and `more` entries after them."""
    handles = [*(look.handle(name) for name, look in looks.items()), *more]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def draw_curve(
    axes: Axes, dots: Dots, colour: str, marker: str, stroke: str = "-", label: str | None = None
) -> Line2D:
    """A line through the medians, and a small dot a run where there are several."""
    dots = list(dots)
    for x, (_, *runs) in dots:
        if len(runs) > 1:
            axes.plot([x] * len(runs), runs, ".", color=colour, alpha=0.35, markersize=4, zorder=1.9)
    (line,) = axes.plot(
        [x for x, _ in dots],
        [value for _, (value, *_) in dots],
        color=colour,
        marker=marker,
        markersize=5,
        linewidth=1.2,
        linestyle=stroke,
        label=label,
    )
    return line


def draw_bars(axes: Axes, given: Sequence[Bar], text: Callable[[float], str]) -> None:
    """Bars from zero, a dot a run; `text` writes the numbers of the axis."""
    for x, bar in enumerate(given):
        axes.bar(x, bar.value, width=0.62, color=bar.colour, label=bar.name)
        if len(bar.runs) > 1:
            spread = [x + 0.05 * (i % 5 - 2) for i in range(len(bar.runs))]
            axes.plot(spread, bar.runs, ".", color="black", markersize=4)
        over = x, max(bar.runs)
        axes.annotate(bar.text, over, (0, 5), textcoords="offset points", ha="center", va="bottom")
    axes.set_xticks(range(len(given)), [bar.name for bar in given])
    axes.set_xlim(-0.6, len(given) - 0.4)
    axes.set_ylim(0, 1.3 * max(max(bar.runs) for bar in given))
    axes.grid(visible=False, axis="x")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value) if value else "0"))


def doubling_axis(
    axes: Axes,
    low: float,
    high: float,
    ticks: Sequence[float],
    text: Callable[[float], str] = "{:g}".format,
) -> None:
    """The x axis of what doubles from tick to tick: sizes, numbers of processes."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
