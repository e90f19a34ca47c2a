"""A matplotlib figure in, an SVG element out that can stand inside an HTML page beside others."""

import io
import re
import xml.etree.ElementTree as ET
from functools import lru_cache

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bench_lib.drawing.canvas import STYLE

_POINTS = 72  # an inch: the unit of an SVG
_KEPT = frozenset({"svg", "g", "defs", "path", "use", "text", "tspan", "clipPath", "rect", "image"})
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_OWN_ID = re.compile(r"url\(#([^)]*)\)")


@lru_cache(maxsize=8)  # the charts of a campaign stand in each of its reports
def inline(figure: Figure, prefix: str, label: str) -> str:
    """The figure as one `<svg>` element; all text in it is escaped.

    `prefix` keeps its ids apart from those of other charts on the page, `label` is read to those who
    cannot see it. Colours become CSS variables with themselves as the fallback, `var(--c-0072b2,
    #0072b2)`, so that a dark page can give them other values.
    """
    root = ET.fromstring(_drawn(figure))  # noqa: S314 - what was written a line before
    _plain(root, prefix)
    width = float(root.attrib.pop("width").removesuffix("pt"))
    root.attrib.pop("height")
    root.attrib |= {"role": "img", "aria-label": label, "style": f"--chart-width: {width * 4 / 3:.0f}px"}
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def _drawn(figure: Figure) -> bytes:
    """The figure as SVG. Its layout is computed here: `savefig` would draw everything once more for it."""
    buffer, engine, dpi = io.BytesIO(), figure.get_layout_engine(), figure.dpi
    canvas = FigureCanvasSVG(figure)  # makes itself the figure's: text is as wide as in an SVG
    with matplotlib.rc_context(STYLE):
        try:
            if engine is not None:
                figure.set_dpi(_POINTS)
                engine.execute(figure)
                figure.set_dpi(dpi)
                figure.set_layout_engine("none")
            canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
        finally:
            figure.set_dpi(dpi)
            figure.set_layout_engine(engine)
    return buffer.getvalue()


def _plain(element: ET.Element, prefix: str) -> None:
    """Names without namespaces, as HTML has them; ids of its own; nothing that does not draw."""
    element.tag = _local(element.tag)
    element.attrib = {_local(name): _value(_local(name), text, prefix) for name, text in element.items()}
    element.attrib.pop("version", None)
    for child in list(element):
        if _local(child.tag) in _KEPT and not _is_global_style(child):
            _plain(child, prefix)
        else:
            element.remove(child)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _is_global_style(element: ET.Element) -> bool:
    """Whether it is the <defs> that only holds a rule for every element of the page."""
    return _local(element.tag) == "defs" and [_local(one.tag) for one in element] == ["style"]


def _value(name: str, text: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{text}"
    if name == "href" and text.startswith("#"):
        return f"#{prefix}-{text[1:]}"
    if name == "style":
        text = _COLOUR.sub(lambda found: f"var(--c-{found[0][1:]}, {found[0]})", text)
    return _OWN_ID.sub(rf"url(#{prefix}-\1)", text)
