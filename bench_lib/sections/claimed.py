"""All claims judged on a results folder in, what its index says first out: the answer and a table of it."""

import math
from collections.abc import Iterable, Sequence

from bench_lib.claims import pages
from bench_lib.claims.judged import Verdicts
from bench_lib.claims.words import SETTLED, Finding, Judged, Verdict
from bench_lib.pages.page import Bullets, Code, Inline, Part, Section, Table

ASKED = "Are the claimed gains real?"
_HEAD = ("claim", "claimed", "measured [95 % interval]", "verdict")
_OF_EACH = 2  # findings of each verdict that a row shows
_ORDER = list(Verdict)


def section(found: Verdicts | None, why_none: str = "") -> Section:
    """The answer in at most four sentences, and a row a claim that was measured; else that none was."""
    if found is None:
        return Section(ASKED, (f"No claim is judged: {why_none}.",))
    ours = sorted(pages.measured(found), key=lambda one: _ORDER.index(one.verdict))
    if not ours:
        return Section(ASKED, ("No published claim was measured in these results.",))
    return Section(ASKED, (Bullets(tuple(_answer(found, ours))), Table(_HEAD, tuple(map(_row, ours)))))


def _answer(found: Verdicts, ours: Sequence[Judged]) -> Iterable[Inline]:
    """How many came out how; which are supported and which refuted; and what of the driver is open."""
    others = "; the others are facts that are looked up, or need other measurements, says "
    more: tuple[Part, ...] = (others, Code("cuda-gains claims")) if len(ours) < len(found.claims) else ()
    were = "was" if len(ours) == 1 else "were"
    yield (f"{len(ours)} of {len(found.claims)} claims {were} measured: {pages.tally(ours)}", *more, ".")
    for verdict in (Verdict.SUPPORTED, Verdict.REFUTED):
        if told := [one for one in ours if one.verdict is verdict]:
            yield f"{str(verdict).capitalize()}: {pages.quoted(told, after=_alone)}."
    if kept := [one for one in ours if one.driver_kept]:
        of = "1 claim" if len(kept) == 1 else f"{len(kept)} claims"
        yield (
            f"Of {of} the effect would live in the driver, and one driver served both sides: the verdict is "
            "on the toolkit alone, and what another driver does was not measured."
        )


def _alone(one: Judged) -> str:
    return f" ({pages.BY_THE_TOOLKIT})" if one.driver_kept else ""


def _row(one: Judged) -> tuple[Inline, ...]:
    named: Inline = (one.claim.text, " (", Code(one.claim.id), ")")
    return (named, pages.claimed(one) or str(one.claim.kind), _measured(one), pages.verdict_cell(one))


def _measured(one: Judged) -> str:
    """The number of the only finding; of several, the most precise of each verdict, with their places."""
    there = sorted((each for each in one.findings if each.shown), key=_width)
    if not there:
        return one.reason
    if len(one.findings) == 1:
        return there[0].shown
    told = SETTLED if one.verdict in SETTLED else _ORDER  # what settles nothing is counted alone
    alike = ([each for each in there if each.verdict is verdict] for verdict in told)
    shown = [each for of in alike for each in of[:_OF_EACH]]
    more = f"; {len(there) - len(shown)} more" if len(there) > len(shown) else ""
    return "; ".join(_told(each, one.verdict) for each in shown) + more


def _width(finding: Finding) -> float:
    return math.inf if finding.low is None or finding.high is None else abs(finding.high - finding.low)


def _told(finding: Finding, verdict: Verdict) -> str:
    other = f"{pages.verdict_text(finding)}: " if finding.verdict is not verdict else ""
    return f"{other}{finding.shown} ({pages.place(finding)})"
