"""A comparison in, the first screen of its report out: question, answer, trust, what differs, canaries.

Every sentence says what was shown and no more; none is printed that the cases do not carry.
"""

from collections.abc import Callable, Sequence

import pandas as pd

from bench_lib.comparing import machines, titles, upgrade
from bench_lib.comparing.changes import MOVED, CaseChange, Change, Comparison
from bench_lib.comparing.stats import FEWEST
from bench_lib.comparing.store import Data
from bench_lib.comparing.verdicts import Pairing
from bench_lib.drawing import charts
from bench_lib.drawing.canvas import interval_text
from bench_lib.model import BAD, HOST_BOUND, Status
from bench_lib.pages.page import Bullets, Code, Inline, Mark, Number, Part, Place, Section, Table, Tally
from bench_lib.pages.render import change_text
from bench_lib.sections import brief, extremes, losses

Sentence = tuple[Part, ...]
_UNITS = {
    Pairing.ROUNDS: "rounds",
    Pairing.RUNS: "runs",
    Pairing.INSTALLATIONS: "pairs of installations",
    Pairing.UNPAIRED: "runs a side",
}
_CANARIES_MOVED = (
    "The canaries moved, so the machine itself changed between the sides, and nothing here can be put "
    "down to the stack."
)
_SHORT = 3  # sentences
_LONGEST = 60  # characters of a value in what differs
_NO_DIFFERENCE = ("nothing ", "no ")  # how an attribution begins that is a sentence by itself
_NOT_DONE = (Status.SKIPPED, Status.NOT_APPLICABLE)


def answer(
    comparison: Comparison,
    data: Data,
    steps: Sequence[str] = (),
    more: Sequence[str] = (),
    question: str = "",
) -> Section:
    """The question, the answer in three sentences, where it was measured, and what to know about it.

    `steps`: of a bridge, the stacks between its ends. `more`: sentences of other sections that belong
    to the answer, such as that on claims. `question`: in words of its own, where there are some.
    """
    notes = (Bullets(comparison.notes),) if comparison.notes else ()
    blocks = (
        question or _question(comparison),
        _sides(comparison, steps),
        tally(comparison),
        Bullets(sentences(comparison, more)),
        _trust(comparison, data),
        *_next(comparison),
        *_missing(comparison, data),
        where(comparison, data),
        *notes,
    )
    return Section("The answer", blocks, Place.ANSWER)


def tally(comparison: Comparison) -> Tally:
    """Cases by change."""
    return Tally(tuple((str(change), n) for change, n in comparison.counts().items()))


def sentences(comparison: Comparison, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The answer: whether to upgrade, else counts by change, then the biggest gain and loss, and `more`.

    The counts stand over it as a tally; in words they follow where some rest on too little for a verdict.
    """
    upgraded = upgrade.sentence(comparison)
    thin = _thin(comparison.compared, comparison.pairing)
    found = (
        f"{upgrade.QUESTION} {upgraded}" if upgraded else "",
        _counts(comparison) if thin or not upgraded else "",
        extremes.answer(comparison.cases),
        *more,
    )
    return tuple(one for one in found if one)


def short(comparison: Comparison, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The answer in at most three sentences; a machine that moved under it comes first."""
    found = (
        _CANARIES_MOVED if comparison.canaries_moved else "",
        *(brief.sentences(comparison.cases) or [_counts(comparison)]),
        _without_canary(comparison),
        machines.sentence(comparison),
        *more,
    )
    return tuple(one for one in found if one)[:_SHORT]


def _next(comparison: Comparison) -> list[Inline]:
    """What is left to measure, with its command as one."""
    command, dash, why = comparison.next_step.partition("  # ")
    if dash:
        return [("Next: ", Code(command), f" ({why}).")]
    return [f"Next: {command}."] if command else []


def _question(comparison: Comparison) -> str:
    baseline, candidate = (
        titles.side(comparison, one) for one in (comparison.baseline, comparison.candidate)
    )
    return f"What changes from {baseline} to {candidate}?"


def _sides(comparison: Comparison, steps: Sequence[str]) -> Inline:
    """What the words of the tables stand for, in the letters that the commands take."""
    over = [part for step in steps for part in (", ", Code(step))][1:]
    way: Sentence = (", step by step over ", *over) if steps else ()
    baseline, candidate = (
        (Code(label), f" ({known})" if (known := titles.components(comparison, label)) else "")
        for label in (comparison.baseline, comparison.candidate)
    )
    return ("Baseline ", *baseline, ", candidate ", *candidate, *way, ".")


def _counts(comparison: Comparison) -> str:
    """The sentence on how many cases came out how."""
    cases = comparison.cases
    compared = [row for row in cases if row.change is not Change.NOT_COMPARABLE]
    apart = len(cases) - len(compared)
    if not cases:
        return "No case was measured on both sides, so 0 cases were compared."
    if not compared:
        reasons = [row.reason for row in cases]
        often = "" if len(set(reasons)) == 1 else "most often "
        which = f"None of {apart} cases could" if apart > 1 else "The one case there is could not"
        return f"{which} be compared; {often}{max(reasons, key=reasons.count)}."
    told = [
        f"{n} {change}"
        for change, n in comparison.counts().items()
        if change is not Change.NOT_COMPARABLE and (n or change in MOVED)
    ]
    more = f"; {apart} more could not be compared" if apart else ""
    number = f"{len(compared)} case{' was' if len(compared) == 1 else 's were'}"
    return f"{number} compared: {', '.join(told)}{_thin(compared, comparison.pairing)}{more}."


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


def _trust(comparison: Comparison, data: Data) -> str:
    """The sentences on canaries, what the changes may be put down to, machines, and the host as the limit."""
    found = (_attributed(comparison), machines.sentence(comparison), _host_bound(data))
    return " ".join(one for one in found if one)


def _host_bound(data: Data) -> str:
    """In how many cases the CPU was the limit, so that another one gives other numbers; "" for none."""
    warned = data.cases.explode("warnings")
    cases = warned.loc[warned["warnings"] == HOST_BOUND, "case_id"].nunique()
    return f"In {_count(cases, 'case', HOST_BOUND)}." if cases else ""


def _attributed(comparison: Comparison) -> str:
    """The sentences on canaries, and on what the changes may be put down to."""
    of_contrast = comparison.pairing == Pairing.RUNS
    what = f"{titles.against(comparison)}, and nothing else" if of_contrast else comparison.attribution
    nothing = what.startswith(_NO_DIFFERENCE)
    differs = f"{what[0].upper()}{what[1:]}." if nothing else f"What differs: {what}."
    if comparison.canaries_moved:
        return f"{_CANARIES_MOVED} {differs}"
    seen = [row.change for row in comparison.canaries if row.change is not Change.NOT_COMPARABLE]
    if seen:
        return f"{_still(seen)}. {differs}"
    if of_contrast:
        return f"Both sides were measured inside each run, so the machine is the same for both. {differs}"
    return f"{_without_canary(comparison)} {differs}".strip()


def _without_canary(comparison: Comparison) -> str:
    note = comparison.without_canary
    return f"{note[0].upper()}{note[1:]}." if note else ""


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
        _count(
            data.cases.loc[data.cases["warnings"].str.len() > 0, "case_id"].nunique(), "case", "with warnings"
        ),
        _count(len(data.runs[~data.runs["complete"]]), "run", "ended early"),
        _left_out(len({name for names in losses.left_out(comparison.left_out).values() for name in names})),
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


def what_differs(comparison: Comparison) -> Section | None:
    """What the two sides differ in, as loaded; None where nothing does, as inside a run."""
    rows = tuple(
        (d.axis, Code(d.component), Code(_brief(d.baseline)), Code(_brief(d.candidate)))
        for d in comparison.differences
    )
    table = Table(("axis", "component", "baseline", "candidate"), rows)
    return Section("What differs", (table,), Place.BESIDE) if rows else None


def _brief(value: str) -> str:
    """A value that a first screen has room for; a search path stands whole in the appendix."""
    return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}… (whole in the appendix)"


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
