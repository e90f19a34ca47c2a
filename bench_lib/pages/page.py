"""A report as sections of text, tables and charts, and how they are written as Markdown.

All text is data until it is written: whatever a results file put into it, it comes out as the same
letters and never as markup. `bench_lib.html.writer` is one more writer over the same sections.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from matplotlib.figure import Figure

from bench_lib.drawing import canvas
from bench_lib.units import names_text


@dataclass(frozen=True)
class Code:
    """A name out of results (a case, a stack, a path), shown in the letters it has."""

    text: str


@dataclass(frozen=True)
class Number:
    """A number as text, and the value that a table sorts it by; None sorts last."""

    text: str
    value: float | None


@dataclass(frozen=True)
class Mark:
    """A word that means one of a few things (a change, a verdict): it has a colour where there are any."""

    text: str
    kind: str  # of bench_lib/html/templates/style.css: faster, slower, same, unclear, ...


@dataclass(frozen=True)
class Names:
    """Names of many things of one kind: the first are shown, and how many more there are."""

    names: tuple[str, ...]
    most: int = 8

    @property
    def text(self) -> str:
        """The first names and how many more."""
        return names_text(self.names, self.most)

    @property
    def more(self) -> str:
        """How many are not shown; "" where all are."""
        return f" and {len(self.names) - self.most} more" if len(self.names) > self.most else ""


Part = str | Code | Number | Mark | Names
Inline = Part | tuple[Part, ...]


@dataclass(frozen=True)
class Table:
    """A table; each row has a cell for each word of the head. A named one can be sorted and filtered."""

    head: tuple[str, ...]
    rows: tuple[tuple[Inline, ...], ...]
    name: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure, the file name it is saved under, and what it shows for those who cannot see it."""

    name: str
    shows: str
    figure: Figure


@dataclass(frozen=True)
class Bullets:
    """A list of short texts."""

    items: tuple[Inline, ...]


@dataclass(frozen=True)
class Tally:
    """How many there are of each kind, drawn where that can be; the text says it too."""

    counts: tuple[tuple[str, int], ...]


Block = Inline | Table | Chart | Bullets | Tally


class Place(StrEnum):
    """Where a section stands on a page that has a first screen."""

    ANSWER = "answer"
    BESIDE = "beside"  # the other short ones of the first screen
    BODY = "body"
    APPENDIX = "appendix"


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; a str or Code is a paragraph."""

    title: Inline
    blocks: tuple[Block, ...]
    place: Place = Place.BODY


def left_out(title: str, found: Sequence[tuple[str, str]]) -> list[Section]:
    """A section with a line for each thing left out, and why; none where nothing was."""
    items = tuple((Code(name), f": {why}") for name, why in found)
    return [Section(title, (Bullets(items),))] if items else []


def write_markdown(title: Inline, sections: Sequence[Section], out: Path) -> Path:
    """Write `report.md` and its charts (PNG and SVG) into the folder `out`; the path of report.md."""
    out.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Chart):
                canvas.save(block.figure, out, block.name)
    path = out / "report.md"
    path.write_text(markdown(title, sections), encoding="utf-8")
    return path


def markdown(title: Inline, sections: Sequence[Section]) -> str:
    """The sections as GitHub's Markdown; charts are linked as NAME.png, with NAME.svg beside it."""
    parts = [f"# {_inline(title)}"]
    for section in sections:
        blocks = [block for block in section.blocks if not isinstance(block, Tally)]
        parts += [f"## {_inline(section.title)}", *map(_block, blocks)]
    return "\n\n".join(parts) + "\n"


def letters(text: Inline) -> str:
    """The plain letters of a text, without markup."""
    parts = text if isinstance(text, tuple) else (text,)
    return one_line("".join(part if isinstance(part, str) else part.text for part in parts))


def _block(block: Inline | Table | Chart | Bullets) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Chart):
        return f"[![{_inline(block.shows)}]({block.name}.png)]({block.name}.svg)"
    if isinstance(block, Bullets):
        return "\n".join(f"- {_paragraph(item)}" for item in block.items)
    return _paragraph(block)


def _table(table: Table) -> str:
    head, *rows = [[_inline(cell, in_table=True) for cell in row] for row in (table.head, *table.rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))


def _paragraph(text: Inline) -> str:
    """Text that begins a block: it may not begin a list, a heading rule or a quotation as well."""
    return re.sub(r"^(\d+)?([-+=.)])", r"\1\\\2", _inline(text))


def _inline(text: Inline, in_table: bool = False) -> str:
    parts = text if isinstance(text, tuple) else (text,)
    return "".join(_part(part, in_table) for part in parts)


def _part(part: Part, in_table: bool) -> str:
    if isinstance(part, Code):
        return _code(part.text, in_table)
    if isinstance(part, Names):
        return ", ".join(_code(name, in_table) for name in part.names[: part.most]) + part.more
    return escape(part if isinstance(part, str) else part.text)


def escape(text: str) -> str:
    """Text as Markdown that shows just these letters: no emphasis, link, HTML, entity or formula."""
    return re.sub(r"([\\`*_\[\]<>|&~#$!@])", r"\\\1", one_line(text))


def _code(text: str, in_table: bool) -> str:
    """A code span: fenced by more backticks than it holds; a pipe would end a table's cell."""
    line = one_line(text)
    if not line.strip():
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return fence + pad + (line.replace("|", "\\|") if in_table else line) + pad + fence


def one_line(text: str) -> str:
    """`text` on one line, with every character that cannot be seen replaced by a mark."""
    joined = re.sub(r"\s+", " ", text)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in joined)
