"""The reports that a results folder lists in its reports.toml: a page each, and an index that links them."""

import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench_lib import suite_files
from bench_lib.comparing import sides
from bench_lib.comparing.store import Results
from bench_lib.errors import Crashed, CudaGainsError, UsageError, nearest
from bench_lib.html import asking, writer
from bench_lib.layout import check_name
from bench_lib.pages import bridge_page, destination, report
from bench_lib.pages.page import Inline, Section
from bench_lib.pages.report import Subject
from bench_lib.sections import answer as answers
from bench_lib.sections import claimed

LIST = "reports.toml"
INDEX = "index.html"
_AT_ONCE = min(os.cpu_count() or 1, 4)  # processes, of some 400 MB each


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
    answer: tuple[str, ...]
    where: Inline


def write(results: Path, out: Path, tell: Callable[[str], None] = lambda line: None) -> Path:
    """Make every listed report as a page in the folder `out`, and index.html over them; returns its path.

    A report that cannot be made is named there with the reason, and the others are made. Raises
    UsageError for a list that is missing or wrong in any way, and where `out` is a file or is called so;
    Crashed when a process that makes pages is ended from outside.
    """
    destination.check_folder(out, "all reports together are")
    listed = read(results / LIST)
    names = list(dict.fromkeys(one.campaign for one in listed))
    of_campaign = [[one for one in listed if one.campaign == name] for name in names]
    of_campaign.sort(key=len, reverse=True)  # the longest begins first: no core is idle beside it at the end
    opened, made = Results(results), dict[str, Card | str]()
    for name in sides.campaigns(results):
        opened.campaign(name)  # once, for all processes
    try:
        # A page keeps one core busy, and pages of two campaigns share nothing else. Not forked: reading
        # starts threads. Charts are many objects, few of them garbage: to look for it as often as usual
        # takes a tenth of the time.
        with ProcessPoolExecutor(_AT_ONCE, get_context("spawn"), gc.set_threshold, (50_000,)) as pool:
            answer = pool.submit(_answer, opened)
            for cards in pool.map(partial(_pages, opened, out), of_campaign):
                made |= cards
                for name, card in cards.items():
                    tell(f"{name}: {card}" if isinstance(card, str) else str(out / card.file))
            judged = answer.result()
    except BrokenProcessPool:
        raise Crashed(
            "a process that makes pages was ended from outside, as happens where memory runs out; what was "
            "written stays, the index is missing: make room, or make one page at a time "
            "(cuda-gains report A B)"
        ) from None
    found = [(one, made[one.name]) for one in listed]
    text = writer.render(
        "index.html.j2",
        title="What the measurements say",
        claims=judged,
        lead="Each question leads to its page, with every case, interval and reason behind the answer.",
        reports=[card for _, card in found if isinstance(card, Card)],
        failed=[
            {"question": one.question, "why": why.rstrip(".")} for one, why in found if isinstance(why, str)
        ],
    )
    return writer.write_text(text, out / INDEX)


def _answer(results: Results) -> Section:
    """What the index says of the claims, judged on all campaigns."""
    return claimed.section(*asking.Known(results).claims())


def _pages(results: Results, out: Path, listed: Sequence[Listed]) -> dict[str, Card | str]:
    """The pages of one campaign written; by name the card of each, or why it could not be made."""
    known, made = asking.Known(results), dict[str, Card | str]()
    for one in listed:
        asked = (one.sides, one.campaign, results, one.contrast, one.check)
        try:
            subject = asking.reported(*asked, known, one.question)
            writer.write(subject.title, report.sections(subject), out / f"{one.name}.html", INDEX)
            made[one.name] = _card(one, subject)
        except CudaGainsError as error:
            made[one.name] = str(error)
    return made


def _card(one: Listed, subject: Subject) -> Card:
    comparison, bridge = subject.comparison, subject.bridge
    return Card(
        file=f"{one.name}.html",
        question=one.question,
        answer=answers.short(comparison, [bridge_page.answer(bridge)] if bridge else []),
        where=answers.where(comparison, subject.data),
    )


def read(path: Path) -> list[Listed]:
    """The reports that a list names. Raises UsageError, naming file, entry and key, for anything unknown."""
    if not path.exists():
        raise UsageError(
            f"{path} is not there, and it lists the reports to make; write one as results/README.md shows, "
            "or name two sides"
        )
    table = suite_files.content(path, "reports")
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
