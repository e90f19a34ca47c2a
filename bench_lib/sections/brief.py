"""A comparison in, its answer in at most three sentences out: for who asks whether to upgrade."""

from collections.abc import Sequence

from bench_lib.comparing.case_words import case_text
from bench_lib.comparing.changes import MOVED, CaseChange, Change
from bench_lib.comparing.kinds import steps_and_calls
from bench_lib.comparing.verdicts import effect_text
from bench_lib.drawing.canvas import interval_text
from bench_lib.sections.extremes import cure, furthest

_MARGIN = "by more than its margin"


def sentences(cases: Sequence[CaseChange]) -> list[str]:
    """The gains, the losses and how much is unclear, and what mends the biggest loss where that is known."""
    compared = [row for row in cases if row.change is not Change.NOT_COMPARABLE]
    faster, slower = ([row for row in compared if row.change is change] for change in MOVED)
    if not faster and not slower:
        return [_none_moved(compared)] if compared else []
    cures = [told for row in _furthest_of_each(slower) if (told := cure(row, cases))]
    gains, losses = (_moved(*each, len(compared)) for each in zip(MOVED, (faster, slower), strict=True))
    unclear = sum(row.change is Change.UNCLEAR for row in compared)
    open_ = f"; {unclear} of {len(compared)} {'is' if unclear == 1 else 'are'} unclear" if unclear else ""
    return [f"{gains}.", f"{losses}{open_}.", *cures[:1]]


def _none_moved(compared: Sequence[CaseChange]) -> str:
    same = sum(row.change is Change.SAME for row in compared)
    if same == len(compared):
        which = f"Each of the {same} cases" if same > 1 else "The one case"
        return f"{which} is shown to differ by less than its margin."
    counts = f"{same} same, {len(compared) - same} unclear"
    return f"None of the {len(compared)} cases is shown to be faster or slower {_MARGIN}: {counts}."


def _moved(change: Change, rows: Sequence[CaseChange], of: int) -> str:
    """How many moved so, and the furthest: with all its parameters, since a card stands beside others."""
    if not rows:
        return f"No case is shown to be {change} {_MARGIN}"
    named = _furthest_of_each(rows)
    kinds = ("of whole steps ", "of single calls ") if len(named) > 1 else ("",)
    told = (
        f"{kind}up to {effect_text(row)}, in {case_text(row)}, ratio {interval_text(row)}"
        for kind, row in zip(kinds, named, strict=True)
    )
    return f"{len(rows)} of {of} cases {'is' if len(rows) == 1 else 'are'} {change}: {'; '.join(told)}"


def _furthest_of_each(rows: Sequence[CaseChange]) -> list[CaseChange]:
    """The furthest whole step and the furthest single call; where there are none, of all."""
    steps, calls = steps_and_calls(rows)
    return [furthest(kind) for kind in ((steps, calls) if steps or calls else (rows,)) if kind]
