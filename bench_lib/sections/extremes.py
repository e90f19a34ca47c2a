"""Cases in, the sentences on those that moved furthest out: whole steps and calls before their parts."""

from collections.abc import Sequence

from bench_lib.comparing.case_words import case_text, value_text
from bench_lib.comparing.changes import MOVED, CaseChange, Change
from bench_lib.comparing.implementations import changed, tried
from bench_lib.comparing.kinds import ONCE, PARTS, steps_and_calls
from bench_lib.comparing.verdicts import effect_text
from bench_lib.drawing.canvas import interval_text

_FEW = 3  # cases that moved: of so few two gains or losses are named


def answer(cases: Sequence[CaseChange]) -> str:
    """The biggest gain and loss of whole steps and of single calls; of all, where none of these moved."""
    steps, calls = steps_and_calls(cases)
    if not (_moved(steps) and _moved(calls)):
        whole = _whole(cases)
        return _furthest_moved(cases, whole if _moved(whole) or not _moved(cases) else cases)
    both = ((steps, "Of whole steps "), (calls, "Of single calls "))
    return " ".join(_furthest_moved(cases, rows, of) for rows, of in both)


def apart(cases: Sequence[CaseChange]) -> list[str]:
    """A sentence each on the parts of a step and on what a process pays once, where any of them moved."""
    others = [
        (what, [row for row in cases if row.metric in metrics])
        for what, metrics in (("parts of a step", PARTS), ("times that a process has once", ONCE))
    ]
    return [_apart(what, rows, cases) for what, rows in others if _moved(rows) and _whole(cases)]


def _whole(cases: Sequence[CaseChange]) -> list[CaseChange]:
    """Whole steps and single calls, those that could be compared."""
    steps, calls = steps_and_calls(cases)
    return [row for row in (*steps, *calls) if row.change is not Change.NOT_COMPARABLE]


def _apart(what: str, rows: Sequence[CaseChange], cases: Sequence[CaseChange]) -> str:
    """The sentence on times of another kind, some of which moved."""
    compared = [row for row in rows if row.change is not Change.NOT_COMPARABLE]
    counts = ", ".join(f"{sum(row.change is change for row in compared)} {change}" for change in MOVED)
    metrics = ", ".join(sorted({row.metric for row in compared}))
    are = f"are {what}" if len(compared) > 1 else f"is one of the {what}"
    told = f"{len(compared)} of all {are} ({metrics}): {counts}; "
    return told + _furthest_moved(cases, rows, "there ")


def _moved(cases: Sequence[CaseChange]) -> bool:
    return any(row.change in MOVED for row in cases)


def _furthest_moved(cases: Sequence[CaseChange], some: Sequence[CaseChange], of: str = "Of these ") -> str:
    """The sentence on the biggest gain and loss among some of the cases; of few on the next ones too."""
    faster = [row for row in some if row.change is Change.FASTER]
    slower = [row for row in some if row.change is Change.SLOWER]
    if not faster and not slower:
        return _nothing_shown(cases, some)
    nothing = "no case is shown to be {} by more than its margin"
    gain, loss = (nothing.format(change) for change in MOVED)
    second = len(faster) + len(slower) <= _FEW and of != "there "
    if faster:
        gain = _named("the biggest gain", sorted(faster, key=_ratio)[: 1 + second], cases)
    if slower:
        loss = _named("the biggest loss", sorted(slower, key=_ratio)[::-1][: 1 + second], cases)
    told = f"{of}{gain}, and {loss}."
    mended = cure(furthest(slower), cases) if slower else ""
    return f"{told} {mended}" if mended else told


def cure(row: CaseChange, cases: Sequence[CaseChange]) -> str:
    """Of a loss that came with another implementation: which, and whether trying all of them mends it."""
    if not (ran := changed(row)):
        return ""
    told, other = f"What runs there changed ({ran})", tried(row, cases)
    if other is None or other.high is None:
        return f"{told}."
    unsettled = "it is slower too" if other.change is Change.SLOWER else "that is unclear"
    there = "it is not slower" if other.high < 1 + other.margin else unsettled
    return f"{told}; with {value_text('benchmark', 'on', row.op)} {there}: {interval_text(other)}."


def _nothing_shown(cases: Sequence[CaseChange], some: Sequence[CaseChange]) -> str:
    """The sentence where no case counts as faster or slower: what is known, and what leans."""
    compared = [row for row in some if row.change is not Change.NOT_COMPARABLE]
    if not compared:
        return ""
    if all(row.change is Change.SAME for row in compared):
        which = "It is" if len(compared) == 1 else "Every one of them is"
        return f"{which} shown to differ by less than its margin."
    text = "No case is shown to be faster or slower by more than its margin"
    unclear = [row for row in compared if row.change is Change.UNCLEAR]
    leaning = [row for row in unclear if row.low and row.high and not row.low <= 1 <= row.high]
    if leaning:
        lean = f"{len(leaning)} lean{'s' * (len(leaning) == 1)} to one side without being settled"
        return f"{text}; {lean}, {_named('the furthest', [furthest(leaning)], cases)}."
    bare = [row for row in unclear if row.ratio and row.low is None]
    if bare:
        seen = _named("the largest difference seen", [furthest(bare)], cases)
        return f"{text}; {seen}, without an interval."
    return f"{text}."


def furthest(rows: Sequence[CaseChange]) -> CaseChange:
    """The one with the largest effect in either direction."""
    return max(rows, key=lambda row: max(_ratio(row), 1 / _ratio(row)))


def _ratio(row: CaseChange) -> float:
    return row.ratio or 1.0


def _named(what: str, rows: Sequence[CaseChange], cases: Sequence[CaseChange]) -> str:
    told = (f"{case_text(row, cases)} with {effect_text(row)}, ratio {interval_text(row)}" for row in rows)
    return f"{what} is {', then '.join(told)}"
