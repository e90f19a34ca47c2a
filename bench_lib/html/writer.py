"""Sections of a page in, one HTML file out that needs no network: charts, style and script stand in it.

jinja2 escapes whatever a results file put into a text; besides, the page's own security policy lets
no script run but the one it comes with, and nothing be fetched.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bench_lib import __version__
from bench_lib.errors import UsageError
from bench_lib.html import svg
from bench_lib.pages.page import Chart, Inline, Number, Place, Section, letters, one_line

_BREAKS = re.compile(r"(?<=[,\[/])(?=.)")  # where a case's name may go on in the next line


def write(title: str, sections: Sequence[Section], out: Path, index: str = "") -> Path:
    """Write the page to the file `out`, its folder made where there is none; returns `out`. See `page`.

    Raises UsageError where `out` is a folder.
    """
    return write_text(page(title, sections, index), out)


def write_text(text: str, out: Path) -> Path:
    """Write a finished page to the file `out`; see `write`."""
    if out.is_dir():
        raise UsageError(f"{out} is a folder, and an HTML report is a file; name another one with -o")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return out


def page(title: str, sections: Sequence[Section], index: str = "") -> str:
    """The sections as one HTML document: those of the first screen, a table of contents, the others.

    `index`: the file beside it that lists such pages.
    """
    numbered = [(f"s{number}", section) for number, section in enumerate(sections, start=1)]
    placed = {place: [one for one in numbered if one[1].place is place] for place in Place}
    return render(
        "page.html.j2",
        title=one_line(title),
        index=index,
        answer=placed[Place.ANSWER],
        beside=placed[Place.BESIDE],
        body=placed[Place.BODY],
        appendix=placed[Place.APPENDIX],
    )


def fragment(sections: Sequence[Section]) -> str:
    """The sections as HTML to stand inside another page: what a notebook shows."""
    return render("cell.html.j2", sections=sections)


def render(template: str, **values: Any) -> str:
    """A template of this package with the values given to it, and the style and script all pages share."""
    environment = Environment(
        loader=PackageLoader("bench_lib.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"parts": _parts, "letters": letters, "chart": _chart, "pieces": _pieces}
    environment.tests["number"] = lambda cell: isinstance(cell, Number)
    loader = environment.loader
    assert loader is not None
    style, script = (loader.get_source(environment, name)[0] for name in ("style.css", "page.js"))
    values |= {"style": Markup(style), "script": Markup(script), "script_hash": _hash(script)}  # noqa: S704
    return environment.get_template(template).render(version=__version__, **values)


def _hash(script: str) -> str:
    """How a content security policy names the one script that may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _parts(text: Inline) -> Iterable[tuple[str, Any]]:
    """The parts of a text, each with the name of its kind."""
    for part in text if isinstance(text, tuple) else (text,):
        yield type(part).__name__, part


def _pieces(text: str) -> list[str]:
    """A name on one line, in pieces between which a line may break."""
    return _BREAKS.split(one_line(text))


def _chart(chart: Chart) -> Markup:
    """The chart as an SVG element, which escapes the text in it itself."""
    return Markup(svg.inline(chart.figure, chart.name, one_line(chart.shows)))  # noqa: S704
