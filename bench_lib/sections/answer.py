"""A comparison in, the first screen of its report out: question, answer, trust, what differs, canaries.

Every sentence says what was shown and no more; none is printed that the cases do not carry.
"""

from collections.abc import Callable, Sequence

import pandas as pd

from bench_lib.comparing.stats import FEWEST
from bench_lib.comparing.store import Data
from bench_lib.comparing.verdicts import Pairing, effect_text
from bench_lib.drawing import charts
from bench_lib.drawing.canvas import interval_text
from bench_lib.model import BAD, CaseChange, Change, Comparison, Status
from bench_lib.pages.page import Bullets, Code, Inline, Mark, Number, Part, Place, Section, Table, Tally
from bench_lib.pages.render import change_text
from bench_lib.sections.metrics import ONCE

Sentence = tuple[Part, ...]
_MOVED = (Change.FASTER, Change.SLOWER)
_UNITS = {
    Pairing.ROUNDS: "rounds",
    Pairing.RUNS: "runs",
    Pairing.INSTALLATIONS: "pairs of installations",
    Pairing.UNPAIRED: "runs a side",
}
_NOT_DONE = (Status.SKIPPED, Status.NOT_APPLICABLE)


def answer(
    comparison: Comparison,
    data: Data,
    steps: Sequence[str] = (),
    more: Sequence[str] = (),
) -> Section:
    """The question, the answer in three sentences, where it was measured, and what to know about it.

    `steps`: of a bridge, the stacks between its ends. `more`: sentences of other sections that belong
    to the answer, such as that on claims.
    """
    notes = (Bullets(comparison.notes),) if comparison.notes else ()
    blocks = (
        _question(comparison, steps),
        tally(comparison),
        text(comparison, more),
        _trust(comparison),
        *_missing(comparison, data),
        where(comparison, data),
        *notes,
    )
    return Section("The answer", blocks, Place.ANSWER)


def tally(comparison: Comparison) -> Tally:
    """Cases by change."""
    return Tally(tuple((str(change), n) for change, n in comparison.counts().items()))


def text(comparison: Comparison, more: Sequence[str] = ()) -> Inline:
    """The answer itself: counts by change, the biggest gain and loss, and `more` sentences."""
    sentences = (_counts(comparison), _extremes(comparison.cases), *((one,) for one in more))
    return tuple(part for sentence in sentences if sentence for part in (*sentence, " "))[:-1]


def _question(comparison: Comparison, steps: Sequence[str]) -> Inline:
    over = [part for step in steps for part in (", ", Code(step))][1:]
    way: Sentence = (", step by step over ", *over) if steps else ()
    return ("What changes from ", Code(comparison.baseline), " to ", Code(comparison.candidate), *way, "?")


def _counts(comparison: Comparison) -> Sentence:
    """The sentence on how many cases came out how."""
    cases = comparison.cases
    compared = [row for row in cases if row.change is not Change.NOT_COMPARABLE]
    apart = len(cases) - len(compared)
    if not cases:
        return ("No case was measured on both sides, so 0 cases were compared.",)
    if not compared:
        reasons = [row.reason for row in cases]
        often = "" if len(set(reasons)) == 1 else "most often "
        which = f"None of {apart} cases could" if apart > 1 else "The one case there is could not"
        return (f"{which} be compared; {often}{max(reasons, key=reasons.count)}.",)
    told = [
        f"{n} {change}"
        for change, n in comparison.counts().items()
        if change is not Change.NOT_COMPARABLE and (n or change in _MOVED)
    ]
    more = f"; {apart} more could not be compared" if apart else ""
    number = f"{len(compared)} case{' was' if len(compared) == 1 else 's were'}"
    return (f"{number} compared: {', '.join(told)}{_thin(compared, comparison.pairing)}{more}.",)


def _thin(compared: Sequence[CaseChange], pairing: str) -> str:
    """What to add on cases that rest on too few replicates for any verdict."""
    few = [row.n for row in compared if row.n < FEWEST]
    unit = _UNITS[Pairing(pairing)]
    if not few:
        return ""
    if len(few) == len(compared):
        there = ("none holds both sides", "there is 1", "there are 2")[max(few)]
        return f", because a verdict needs {FEWEST} {unit} and {there}"
    return f" ({len(few)} of them rest on fewer than {FEWEST} {unit}, which allow no verdict)"


def _extremes(cases: Sequence[CaseChange]) -> Sentence:
    """The biggest gain and loss of those that count as such; what happens once a process is told apart."""
    once = [row for row in cases if row.metric in ONCE]
    steady = [row for row in cases if row.metric not in ONCE]
    if not _moved(once) or not any(row.change is not Change.NOT_COMPARABLE for row in steady):
        return _furthest_moved(cases)
    return (*_furthest_moved(steady), " ", *_of_what_is_once(once))


def _of_what_is_once(once: Sequence[CaseChange]) -> Sentence:
    """The sentence on times that a process has once, some of which moved."""
    compared = [row for row in once if row.change is not Change.NOT_COMPARABLE]
    counts = ", ".join(f"{sum(row.change is change for row in compared)} {change}" for change in _MOVED)
    are = "are times" if len(compared) > 1 else "is a time"
    metrics = ", ".join(sorted({row.metric for row in compared}))
    told = f"{len(compared)} of all {are} that a process has once ({metrics}): {counts}; "
    return (told, *_furthest_moved(once, "there "))


def _moved(cases: Sequence[CaseChange]) -> bool:
    return any(row.change in _MOVED for row in cases)


def _furthest_moved(cases: Sequence[CaseChange], of: str = "Of these ") -> Sentence:
    """The sentence on the biggest gain and the biggest loss among some cases."""
    faster = [row for row in cases if row.change is Change.FASTER]
    slower = [row for row in cases if row.change is Change.SLOWER]
    if not faster and not slower:
        return _nothing_shown(cases)
    nothing = "no case is shown to be {} by more than its margin"
    gain = _named("the biggest gain", min(faster, key=_ratio)) if faster else (nothing.format("faster"),)
    loss = _named("the biggest loss", max(slower, key=_ratio)) if slower else (nothing.format("slower"),)
    return (of, *gain, ", and ", *loss, ".")


def _nothing_shown(cases: Sequence[CaseChange]) -> Sentence:
    """The sentence where no case counts as faster or slower: what is known, and what leans."""
    compared = [row for row in cases if row.change is not Change.NOT_COMPARABLE]
    if not compared:
        return ()
    if all(row.change is Change.SAME for row in compared):
        which = "It is" if len(compared) == 1 else "Every one of them is"
        return (f"{which} shown to differ by less than its margin.",)
    text = "No case is shown to be faster or slower by more than its margin"
    unclear = [row for row in compared if row.change is Change.UNCLEAR]
    leaning = [row for row in unclear if row.low and row.high and not row.low <= 1 <= row.high]
    if leaning:
        lean = f"{len(leaning)} lean{'s' * (len(leaning) == 1)} to one side without being settled"
        return (f"{text}; {lean}, ", *_named("the furthest", _furthest(leaning)), ".")
    bare = [row for row in unclear if row.ratio and row.low is None]
    if bare:
        return (
            f"{text}; ",
            *_named("the largest difference seen", _furthest(bare)),
            ", without an interval.",
        )
    return (f"{text}.",)


def _furthest(rows: Sequence[CaseChange]) -> CaseChange:
    return max(rows, key=lambda row: max(_ratio(row), 1 / _ratio(row)))


def _ratio(row: CaseChange) -> float:
    return row.ratio or 1.0


def _named(what: str, row: CaseChange) -> Sentence:
    return (f"{what} is ", Code(row.case_id), f" with {effect_text(row)}, ratio {interval_text(row)}")


def _trust(comparison: Comparison) -> str:
    """The sentences on canaries and on what the changes may be put down to."""
    differs = f"What differs: {comparison.attribution}."
    if comparison.canaries_moved:
        return (
            "The canaries moved, so the machine itself changed between the sides, and nothing here can be "
            f"put down to the stack. {differs}"
        )
    seen = [row.change for row in comparison.canaries if row.change is not Change.NOT_COMPARABLE]
    if seen:
        return f"{_still(seen)}. {differs}"
    if comparison.pairing == Pairing.RUNS:
        return f"Both sides were measured inside each run, so the machine is the same for both. {differs}"
    return (
        f"No canary was measured on both sides, so nothing shows that the machine stayed the same. {differs}"
    )


def _still(seen: Sequence[Change]) -> str:
    unclear = seen.count(Change.UNCLEAR)
    if unclear == len(seen):
        return f"Whether the machine stayed the same is unclear: no canary (of {unclear}) is shown to have"
    moved = f"None of the {len(seen)} canaries moved" if len(seen) > 1 else "The one canary did not move"
    return moved + (f" ({unclear} of them unclear)" if unclear else "")


def _missing(comparison: Comparison, data: Data) -> list[Inline]:
    """The line on what has no number: whoever reads only this far learns of every failure."""
    told = [
        _of_status(data.cases, "failed", [str(one) for one in BAD]),
        _of_status(data.cases, "skipped or not applicable", [str(one) for one in _NOT_DONE]),
        _flagged(data.cases),
        _count(len(data.runs[~data.runs["complete"]]), "run", "ended early"),
        _left_out(len({name for name, _ in comparison.left_out})),
    ]
    text = "; ".join(one for one in told if one)
    return [f"Not in these numbers, or in doubt: {text}."] if text else []


def _of_status(cases: pd.DataFrame, what: str, statuses: Sequence[str]) -> str:
    return _count(cases.loc[cases["status"].isin(statuses), "case_id"].nunique(), "case", what)


def _flagged(cases: pd.DataFrame) -> str:
    flagged = cases.loc[cases["n_flagged"] > 0, "case_id"].nunique()
    return _count(flagged, "case", "with flagged samples")


def _left_out(n: int) -> str:
    return f"{n} left out of the comparison" if n else ""


def _count(n: int, noun: str, what: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)} {what}" if n else ""


def where(comparison: Comparison, data: Data) -> Inline:
    """Where, when and with what it was measured, in one sentence."""
    runs = data.runs
    boots = len(set(runs["boot_id"]) - {""})
    facts = [
        f"{len(runs)} run{'s' * (len(runs) != 1)}",
        f"from {boots} boots or machines, which may differ in what their CPUs can do" if boots > 1 else "",
        ", ".join(sorted(set(runs["gpu_name"]) - {""})) or "no GPU",
        charts.time_span(data),
        "suite " + ", ".join(sorted(set(runs["suite_version"]))),
    ]
    named = "Measured in campaign ", Code(comparison.campaign)
    return (*named, ": ", "; ".join(fact for fact in facts if fact), ".")


def what_differs(comparison: Comparison) -> Section:
    """What the two sides differ in, as loaded."""
    short = f"In short: {comparison.attribution}."
    rows = tuple(
        (d.axis, Code(d.component), Code(d.baseline), Code(d.candidate)) for d in comparison.differences
    )
    table = (Table(("axis", "component", "baseline", "candidate"), rows),) if rows else ()
    return Section("What differs", (short, *table), Place.BESIDE)


def canaries(comparison: Comparison, shown: Callable[[float], str]) -> Section | None:
    """The canaries with their ratios and what became of them; None where there are none."""
    if not comparison.canaries:
        return None
    rows = tuple(
        (
            Code(row.case_id),
            "" if row.baseline is None else Number(shown(row.baseline), row.baseline),
            Number(interval_text(row), row.ratio),
            Mark(change_text(row), row.change),
            Number(str(row.n), row.n),
        )
        for row in comparison.canaries
    )
    head = ("case", "baseline", "ratio [95 % interval]", "change", "n")
    says = "Cases that no software upgrade should move."
    return Section("Canaries", (says, Table(head, rows)), Place.BESIDE)
