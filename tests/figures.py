"""What a drawn figure says and shows, for the tests of charts."""

from itertools import pairwise

from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


def tick_labels(axis: Axis) -> list[Text]:
    """The labels that are drawn: matplotlib keeps some for ticks outside the axis."""
    low, high = sorted(axis.get_view_interval())
    at = 0 if axis.axis_name == "x" else 1
    return [label for label in axis.get_ticklabels() if low <= label.get_position()[at] <= high]


def axes_of(figure: Figure) -> list[Axis]:
    return [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]


def texts(figure: Figure) -> list[Text]:
    FigureCanvasAgg(figure).draw()
    never = {
        label for axis in axes_of(figure) for label in set(axis.get_ticklabels()) - set(tick_labels(axis))
    }
    found = [text for text in figure.findobj(Text) if text not in never]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def said(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in texts(figure))


def in_one_line(figure: Figure) -> str:
    return said(figure).replace("\n", " ")


def assert_readable(figure: Figure) -> None:
    """Every text lies inside the figure, is large enough, and no two labels of an axis overlap."""
    found = texts(figure)
    edges = figure.bbox
    for text in found:
        box = text.get_window_extent()
        inside = edges.x0 <= box.x0 and box.x1 <= edges.x1 and edges.y0 <= box.y0 and box.y1 <= edges.y1
        assert inside, text.get_text()
        assert text.get_fontsize() >= 8
    for axis in axes_of(figure):
        boxes = [label.get_window_extent() for label in tick_labels(axis)]
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def points(figure: Figure, panel: int) -> dict[str, float]:
    """The points of a dot plot by group, line and series: `Forward; 3x3-64-64-56: fp16`."""
    lines = figure.axes[panel].get_lines()
    return {str(line.get_label()): float(line.get_xdata()[0]) for line in lines if len(line.get_xdata()) == 1}


def intervals(figure: Figure, panel: int) -> list[tuple[float, float]]:
    """The intervals of a dot plot, in no order."""
    lines = [line for line in figure.axes[panel].get_lines() if line.get_label() == "interval"]
    return sorted(tuple(map(float, line.get_xdata())) for line in lines)
