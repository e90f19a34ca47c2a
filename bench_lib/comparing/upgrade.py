"""A comparison in, what it says to whoever asks whether to upgrade out: one sentence.

It counts what was shown, gains and losses, and recommends nothing: what a loss weighs is known where the work
is. Where most cases are unclear it begins with that, for no loss shown is not yet no loss.
"""

from collections.abc import Sequence
from enum import Enum

from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.comparing.implementations import tried, tries
from bench_lib.comparing.verdicts import Pairing
from bench_lib.model import NULL_SUFFIX

QUESTION = "Should we upgrade?"


class _Cure(Enum):
    """Whether trying every algorithm first, as cudnn.benchmark does, mends a loss."""

    MENDED = "mended"
    NOT = "not mended"
    UNCLEAR = "unclear"
    NOT_TRIED = "not tried"


def sentence(comparison: Comparison) -> str:
    """How many cases got faster and slower, and what mends the losses; "" where no upgrade is compared.

    None is in a contrast, nor where a stack is compared with itself.
    """
    itself = comparison.candidate == f"{comparison.baseline}{NULL_SUFFIX}"
    if comparison.pairing == Pairing.RUNS or itself or not comparison.compared:
        return ""
    if comparison.canaries_moved:
        return "That cannot be told: the machine itself changed between the sides, its canaries moved."
    session = comparison.pairing == Pairing.UNPAIRED
    doubt = "; not interleaved, so the session may be the cause" if session else ""
    return f"{_counts(comparison)}{doubt}."


def _counts(comparison: Comparison) -> str:
    counts, cases, n = comparison.counts(), comparison.cases, len(comparison.compared)
    faster, unclear = counts[Change.FASTER], counts[Change.UNCLEAR]
    slower = [row for row in cases if row.change is Change.SLOWER]
    of = f"of {n} case{'s' * (n > 1)}"
    are = f"{'is' if unclear == 1 else 'are'} unclear"
    if comparison.mostly_unclear:
        told = f"That cannot be said yet: {unclear} {of} {are}"
        return f"{told}; {_moved(faster, slower, '', cases)}" if unclear < n else told
    if n == counts[Change.SAME] == 1:
        return "The one case is shown to be neither faster nor slower by more than its margin"
    told = _moved(faster, slower, f" {of}", cases)
    told = told[0].upper() + told[1:]
    return f"{told}; {unclear} {of} {are}" if unclear and not slower else told


def _moved(faster: int, slower: Sequence[CaseChange], of: str, cases: Sequence[CaseChange]) -> str:
    """The gains, then the losses and what mends them; `of` says of how many."""
    if slower:
        their = "their" if faster + len(slower) > 1 else "its"
        losses = f"{len(slower)} slower by more than {their} margin{_mended(slower, cases)}"
        return f"{faster or 'none'}{of} got faster, {losses}"
    if faster:
        return f"{faster}{of} got faster, none is shown to be slower by more than its margin"
    return f"none{of} is shown to be faster or slower by more than its margin"


def _mended(slower: Sequence[CaseChange], cases: Sequence[CaseChange]) -> str:
    """The clause on what mends them; it names cudnn.benchmark only where some case was measured with it."""
    found = [_cure(row, cases) for row in slower]
    counts = {cure: found.count(cure) for cure in _Cure}
    if counts[_Cure.NOT_TRIED] == len(slower):
        return ", and nothing that might mend " + ("it" if len(slower) == 1 else "them") + " was measured"

    def them(n: int) -> str:
        return str(n) if n < len(slower) else "it" if n == 1 else "them"

    shown = [
        f"{verb} {them(counts[cure])}"
        for cure, verb in ((_Cure.MENDED, "mends"), (_Cure.NOT, "does not mend"))
        if counts[cure]
    ]
    trying = "trying every algorithm, as cudnn.benchmark does,"
    unclear, untried = counts[_Cure.UNCLEAR] + counts[_Cure.NOT_TRIED], counts[_Cure.NOT_TRIED]
    if not shown:
        return f"; whether {trying} mends {them(len(slower))} is unclear"
    if not unclear:
        return f": {trying} {' and '.join(shown)}"
    why = "" if not untried else " (not tried there)" if untried == unclear else f" (not tried in {untried})"
    return f": {trying} {', '.join(shown)}, and for {unclear} that is unclear{why}"


def _cure(row: CaseChange, cases: Sequence[CaseChange]) -> _Cure:
    """What the same case says in which every algorithm was tried first; with it on, a loss is a loss."""
    if tries(row):
        return _Cure.NOT
    other = tried(row, cases)
    if other is None or other.high is None or other.candidate is None or row.baseline is None:
        return _Cure.NOT_TRIED
    if other.change is Change.SLOWER:
        return _Cure.NOT
    # Not slower than itself was, and no slower than what ran before without it.
    bound = 1 + row.margin
    mended = other.high < bound and other.candidate < bound * row.baseline
    return _Cure.MENDED if mended else _Cure.UNCLEAR
