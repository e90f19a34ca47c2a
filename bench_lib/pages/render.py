"""A Comparison in, text out: a table for the terminal, JSON, CSV or Markdown.

Names and reasons come out of results: they are shown as they are, never read as markup.
"""

import csv as csv_writer
import dataclasses
import io
import json as json_writer
from collections.abc import Iterable, Sequence
from typing import Literal

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bench_lib import next_step, screen
from bench_lib.comparing import machines, upgrade
from bench_lib.comparing.changes import MOVED, CaseChange, Change, Comparison
from bench_lib.comparing.replicates import SECONDS
from bench_lib.faults import seals
from bench_lib.units import names_text, quantity_text, seconds_text

WIDE = 150  # a terminal narrower than this gets the columns that matter most
_NAMES_SHOWN = 3
SETTLED = (Change.FASTER, Change.SLOWER, Change.SAME)
_STYLES = {
    Change.FASTER: "bold green",
    Change.SLOWER: "bold red",
    Change.SAME: "",
    Change.UNCLEAR: "yellow",
    Change.NOT_COMPARABLE: "magenta",
}
_HEAD = ("case", "baseline", "candidate", "ratio", "95 % interval", "speed-up", "change", "n", "why", "next")
_NARROW = ("case", "ratio", "95 % interval", "change", "n", "why")
_SHARES = {"case": 4, "why": 3, "next": 2}  # of the width that the numbers leave
_NUMBERS = frozenset({"baseline", "candidate", "ratio", "95 % interval", "speed-up", "n"})
_FIELDS = (
    *("kind", "case_id", "family", "op", "params", "metric", "unit", "change", "n", "margin"),
    *("baseline", "candidate", "ratio", "low", "high", "speed_up", "q_change", "q_same", "sd"),
    *("reason", "next_step"),
)


def text(comparison: Comparison, console: Console | None = None) -> None:
    """Print a comparison as tables: what differs, canaries, cases by effect, and the counts."""
    console = console or screen.console()
    for part in _parts(comparison, _HEAD if console.width >= WIDE else _NARROW):
        console.print(part, markup=False, highlight=False, emoji=False)
    counts, *more = closing_lines(dataclasses.replace(comparison, next_step=""))
    console.print()
    console.print(Text(counts, style="bold"))
    for line in more:
        console.print(Text(_plain(line)))
    if step := comparison.next_step:  # a command broken at the edge of the terminal could not be pasted
        typed = next_step.typed(step) if step.startswith("cuda-gains ") else step
        console.print(_plain(f"next: {typed}"), markup=False, highlight=False, emoji=False, soft_wrap=True)


def json(comparison: Comparison) -> str:
    """The whole comparison as strict JSON, with the counts and each row's speed-up."""
    document = dataclasses.asdict(comparison)
    for kind, rows in _kinds(comparison).items():
        document[kind] = [dataclasses.asdict(row) | _told(row) for row in rows]
    document["counts"] = dict(comparison.counts())
    document["upgrade"] = upgrade.sentence(comparison)
    return seals.document(document)


def csv(comparison: Comparison) -> str:
    """A line a canary, case, quantity, and thing left out, under one header."""
    out = io.StringIO()
    writer = csv_writer.DictWriter(out, _FIELDS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for kind, rows in _kinds(comparison).items():
        for row in rows:
            params = json_writer.dumps(dict(row.params), ensure_ascii=False)
            writer.writerow(dataclasses.asdict(row) | _told(row) | {"kind": kind, "params": params})
    for name, why in comparison.left_out:
        writer.writerow({"kind": "left_out", "case_id": name, "reason": why})
    return out.getvalue()


def _told(row: CaseChange) -> dict[str, str | float | None]:
    """Of a row, what is said in every form alike."""
    return {"change": change_text(row), "speed_up": speed_up(row)}


def markdown(comparison: Comparison) -> str:
    """The comparison as GitHub's Markdown."""
    lines = [f"# {_escaped(_title(comparison))}", "", *(_bullet(line) for line in _opening(comparison))]
    for title, rows in _sections(comparison):
        lines += ["", f"## {title}", "", *_markdown_table([_HEAD, *(_cells(row) for row in rows)])]
    if comparison.left_out:
        lines += ["", "## Left out", ""]
        lines += [_bullet(f"{', '.join(names)}: {why}") for why, names in _left_out(comparison).items()]
    closing = [_as_command(_plain(line)) for line in closing_lines(comparison)]
    return "\n".join([*lines, "", "\n\n".join(closing)]) + "\n"


def speed_up(row: CaseChange) -> float | None:
    """Baseline / candidate: above 1 is faster, and below 1 it is shown as it is."""
    return 1 / row.ratio if row.ratio else None


def counts_text(comparison: Comparison) -> str:
    """The last line: cases by change, and how many names were left out."""
    counts = ", ".join(f"{n} {change}" for change, n in comparison.counts().items())
    cases = f"{len(comparison.cases)} case" + "s" * (len(comparison.cases) != 1)
    return f"{cases}: {counts}; {len({name for name, _ in comparison.left_out})} left out"


def _as_command(line: str) -> str:
    """A line as Markdown; `next: COMMAND  # why` with the command in letters that can be copied."""
    told, dash, why = line.partition("  # ")
    if not dash or "`" in told:
        return _escaped(line)
    step, _, command = told.partition(" ")
    return f"{step} `{command}` ({_escaped(why)})"


def closing_lines(comparison: Comparison) -> list[str]:
    """The counts, the answer to whether to upgrade, and what to do next, as far as there is any."""
    answer, step = upgrade.sentence(comparison), comparison.next_step
    return [
        counts_text(comparison),
        *([f"{upgrade.QUESTION} {answer}"] if answer else []),
        *([f"next: {step}"] if step else []),
    ]


def _left_out(comparison: Comparison) -> dict[str, list[str]]:
    """What was left out by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, why in comparison.left_out:
        by_reason.setdefault(why, []).append(name)
    return by_reason


def _few(names: list[str]) -> str:
    """How many they are and the first of them, without parameters; the other formats name them all."""
    short = list(dict.fromkeys(name.partition("[")[0] for name in names))
    return names[0] if len(names) == 1 else f"{len(names)} ({names_text(short, _NAMES_SHOWN)})"


def change_text(row: CaseChange) -> str:
    """The change in a word that fits what is compared."""
    return word(row.change, row.unit)


def word(change: Change, unit: str) -> str:
    """A change in a word that fits the unit: a number that is no time is lower or higher."""
    words = {} if unit == SECONDS else {Change.FASTER: "lower", Change.SLOWER: "higher"}
    return words.get(change, str(change))


def _parts(comparison: Comparison, head: tuple[str, ...]) -> Iterable[RenderableType]:
    yield Text(_title(comparison), style="bold")
    for line in _opening(comparison):
        yield Text(_plain(f"  {line}"), style="bold red" if line.startswith("THE MACHINE") else "")
    for title, rows in _sections(comparison):
        yield Text()
        shown = [row for row in rows if row.unit == SECONDS or row.change in MOVED]
        hidden = len(rows) - len(shown)
        if shown:
            yield _table(title, head, shown)
        if hidden:
            what = "and" if shown else f"{title}:"
            yield Text(f"{what} {hidden} that did not move or are unclear: --format md, csv or json")
    if comparison.left_out:
        yield Text("\nleft out", style="bold")
        for why, names in _left_out(comparison).items():
            yield Text(_plain(f"  {_few(names)}: {why}"))


def _title(comparison: Comparison) -> str:
    names = comparison.campaign.split(" / ")
    where = f" (campaign{'s' * (len(names) > 1)} {' and '.join(names)})" if comparison.campaign else ""
    return _plain(f"{comparison.baseline} -> {comparison.candidate}{where}: ratio = candidate / baseline")


def _opening(comparison: Comparison) -> list[str]:
    """What differs and what to know before reading on; a canary that moved comes first."""
    warnings = [note for note in comparison.notes if comparison.canaries_moved][:1]
    differing = [  # the attribution tells those of stack and driver
        f"{one.axis}: {one.component} {one.baseline} -> {one.candidate}"
        for one in comparison.differences
        if one.axis not in ("stack", "driver")
    ]
    others = [note for note in comparison.notes if note not in warnings]
    apart = [machines.sentence(comparison)] if comparison.machines_differ else []
    return [*warnings, f"what differs: {comparison.attribution}", *differing, *apart, *others]


def _sections(comparison: Comparison) -> list[tuple[str, tuple[CaseChange, ...]]]:
    titles = {"canaries": "Canaries", "cases": "Cases", "quantities": "Quantities"}
    return [(titles[kind], rows) for kind, rows in _kinds(comparison).items() if rows]


def _kinds(comparison: Comparison) -> dict[str, tuple[CaseChange, ...]]:
    return {
        "canaries": comparison.canaries,
        "cases": comparison.cases,
        "quantities": comparison.quantities,
    }


def _table(title: str, head: tuple[str, ...], rows: Sequence[CaseChange]) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, expand=True
    )
    for name in head:
        numeric = name in _NUMBERS
        justify: Literal["right", "left"] = "right" if numeric else "left"
        table.add_column(name, justify=justify, no_wrap=numeric, overflow="fold", ratio=_SHARES.get(name))
    for row in rows:
        cells = dict(zip(_HEAD, _cells(row), strict=True))
        if "next" not in head and row.change not in SETTLED:
            cells["why"] += f"; {cells['next']}"
        table.add_row(*(Text(cells[name], _STYLES[row.change] if name == "change" else "") for name in head))
    return table


def _cells(row: CaseChange) -> tuple[str, ...]:
    shown = seconds_text if row.unit == SECONDS else quantity_text
    name = row.case_id if row.unit == SECONDS else f"{row.case_id} {row.unit}"
    speed = speed_up(row)
    interval = "" if row.low is None or row.high is None else f"{_ratio(row.low)} … {_ratio(row.high)}"
    cells = (
        name,
        "" if row.baseline is None else shown(row.baseline),
        "" if row.candidate is None else shown(row.candidate),
        "" if row.ratio is None else _ratio(row.ratio),
        interval,
        "" if speed is None or row.unit != SECONDS else f"{_ratio(speed)}x",
        change_text(row),
        str(row.n),
        row.reason,
        row.next_step,
    )
    return tuple(_plain(cell) for cell in cells)


def _ratio(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 100 else f"{ratio:.4g}"


def _plain(given: str) -> str:
    """One line without control characters: a name in a results file must not steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in given)


def _markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    rule = "|" + "|".join(" ---: " if name in _NUMBERS else " --- " for name in rows[0]) + "|"
    return [lines[0], rule, *lines[1:]]


def _bullet(line: str) -> str:
    return f"- {_escaped(_plain(line))}"


def _escaped(given: str) -> str:
    """Text as Markdown that shows the same letters, also inside a table's cell."""
    given = given.replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{c}" if c in r"\|`*_[]#" else c for c in given)
