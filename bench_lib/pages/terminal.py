"""Sections of a page in, lines and tables on the terminal out; charts are for files and left out."""

import sys
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from bench_lib import screen
from bench_lib.pages.page import Bullets, Chart, Inline, Section, Table, Tally, letters, markdown, one_line

_LONGEST_NUMBER = 40  # letters of a cell, an interval included; a column with longer ones is read as prose


def show(title: str, sections: Sequence[Section], console: Console | None = None) -> None:
    """Print a title and sections; what comes out of results steers neither terminal nor markup."""
    console = console or screen.console()
    console.print(Text(one_line(title), style="bold"))
    for section in sections:
        console.print(Text(f"\n{letters(section.title)}", style="bold"))
        for block in section.blocks:
            if isinstance(block, Table):
                console.print(_table(block))
            elif not isinstance(block, Chart | Tally):
                for line in _lines(block):
                    console.print(Text(f"  {line}"))


def show_as(form: str, title: str, sections: Sequence[Section], other: Callable[[], str]) -> None:
    """Print a page as `table` or `md`; in any other form what `other` makes of it."""
    if form == "table":
        show(title, sections)
    else:
        sys.stdout.write(markdown(title, sections) if form == "md" else other())


def _lines(block: Inline | Bullets) -> Iterable[str]:
    return map(letters, block.items if isinstance(block, Bullets) else [block])


def _table(table: Table) -> RichTable:
    made = RichTable(box=None, pad_edge=False)
    for i, name in enumerate(table.head):
        prose = i == 0 or any(len(letters(row[i])) > _LONGEST_NUMBER for row in table.rows)
        made.add_column(Text(name), justify="left" if prose else "right", overflow="fold")
    for row in table.rows:
        made.add_row(*(Text(letters(cell)) for cell in row))
    return made
