"""The reports that a results folder lists in its reports.toml: a page each, and an index that links them."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_lib.comparing.store import Results
from bench_lib.errors import CudaGainsError, UsageError, nearest
from bench_lib.html import asking, writer
from bench_lib.layout import check_name
from bench_lib.pages import destination, report
from bench_lib.pages.page import Inline, Tally
from bench_lib.pages.report import Subject
from bench_lib.sections import answer as answers
from bench_lib.sections import claimed

LIST = "reports.toml"
INDEX = "index.html"


@dataclass(frozen=True)
class Listed:
    """One report: its file name, the question it answers, and what `cuda-gains report` is asked."""

    name: str
    question: str
    campaign: str
    sides: tuple[str, ...] = ()
    contrast: str | None = None
    check: str | None = None


@dataclass(frozen=True)
class Card:
    """What the index says of a report that was made."""

    file: str
    question: str
    tally: Tally
    answer: tuple[str, ...]
    where: Inline


@dataclass
class _Made:
    cards: list[Card] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)


def write(results: Path, out: Path, tell: Callable[[str], None] = lambda line: None) -> Path:
    """Make every listed report as a page in the folder `out`, and index.html over them; returns its path.

    A report that cannot be made is named there with the reason, and the others are made. Raises
    UsageError for a list that is missing or wrong in any way, and where `out` is a file or is called so.
    """
    destination.check_folder(out, "all reports together are")
    listed = read(results / LIST)
    made, read_once = _Made(), Results(results)
    known = asking.Known(read_once)
    for one in listed:
        try:
            made.cards.append(_card(one, _write_one(one, read_once, out, known)))
            tell(str(out / f"{one.name}.html"))
        except CudaGainsError as error:
            made.failed.append({"question": one.question, "why": str(error).rstrip(".")})
            tell(f"{one.name}: {error}")
    lead = "Each line is a question; its page holds every case, interval and reason behind the answer."
    answer = claimed.section(*known.claims())
    text = writer.render(
        "index.html.j2", title=claimed.ASKED, answer=answer, lead=lead, reports=made.cards, failed=made.failed
    )
    return writer.write_text(text, out / INDEX)


def _write_one(one: Listed, results: Results, out: Path, known: asking.Known) -> Subject:
    asked = (one.sides, one.campaign, results, one.contrast, one.check)
    subject = asking.reported(*asked, known, one.question)
    writer.write(subject.title, report.sections(subject), out / f"{one.name}.html", INDEX)
    return subject


def _card(one: Listed, subject: Subject) -> Card:
    comparison, more = subject.comparison, report.sentences(subject)
    return Card(
        file=f"{one.name}.html",
        question=one.question,
        tally=answers.tally(comparison),
        answer=answers.sentences(comparison, more),
        where=answers.where(comparison, subject.data),
    )


def read(path: Path) -> list[Listed]:
    """The reports that a list names. Raises UsageError, naming file, entry and key, for anything unknown."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{path} is not there, and it lists the reports to make; write one as results/README.md shows, "
            "or name two sides"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    entries = table.pop("report", [])
    if table or not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} holds {', '.join(table) or 'no report'}; expected [[report]] entries alone")
    listed = [_listed(f"{path}, report {number}", entry) for number, entry in enumerate(entries, start=1)]
    names = [one.name for one in listed]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(
            f"{path} names {', '.join(sorted(twice))} twice; each report needs a name of its own"
        )
    return listed


def _listed(where: str, entry: Any) -> Listed:
    known = tuple(Listed.__dataclass_fields__)
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is {entry!r}, expected a table with {', '.join(known)}")
    for key in entry:
        if key not in known:
            raise UsageError(f"{where} has the unknown key {key!r}; {nearest(key, known)}")
    for key in ("name", "question", "campaign"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise UsageError(f"{where} has {key} = {entry.get(key)!r}, expected a text")
    sides = entry.get("sides", [])
    if not isinstance(sides, list) or not all(isinstance(side, str) for side in sides):
        raise UsageError(f"{where} has sides = {sides!r}, expected a list of names")
    if check_name("report", entry["name"]) == Path(INDEX).stem:
        raise UsageError(f"{where} is called {entry['name']!r} as their index; give it another name")
    return Listed(**{**entry, "sides": tuple(sides)})


def only_all(sides: Sequence[str] | None, *others: str | None) -> None:
    """Raise UsageError where `--all` is asked for beside what it takes from the list."""
    if sides or any(others):
        raise UsageError(f"--all makes what {LIST} lists; name no sides, campaign, contrast or check with it")
