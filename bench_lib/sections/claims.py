"""Claims judged on a campaign in, their section of its report out, and the sentence that sums it up."""

from collections.abc import Collection, Sequence

from bench_lib.claims.bounds import bound_text
from bench_lib.claims.combining import combined
from bench_lib.claims.judged import Verdicts
from bench_lib.claims.pages import BY_THE_TOOLKIT, inside, plain_text, quoted, verdict_cell
from bench_lib.claims.words import Finding, Judged, Kind, Verdict
from bench_lib.pages.page import Code, Inline, Number, Section, Table

_NONE = "No published claim that this campaign measured is about these sides. "
_HEAD = ("claim", "claimed", "verdict", "measured [95 % interval]", "of", "cases", "n", "why")


def sentence(found: Verdicts | None, sides: Collection[str]) -> str:
    """The claims about these sides by verdict, by name, in a sentence; "" where none could be judged."""
    ours, _ = _split(found, sides)
    kept = sum(one.driver_kept for one in ours)
    if len(ours) == 1:
        alone = f": {BY_THE_TOOLKIT}" if kept else ""
        return f"The published claim {quoted(ours)} is {plain_text(ours[0])} on these sides{alone}."
    of_each: dict[str, list[Judged]] = {}
    for one in sorted(ours, key=lambda one: list(Verdict).index(one.verdict)):
        of_each.setdefault(plain_text(one), []).append(one)
    told = [f"{len(some)} {verdict} ({quoted(some)})" for verdict, some in of_each.items()]
    which = "all" if kept == len(ours) else f"{kept} of them"
    alone = f"; {which} {BY_THE_TOOLKIT}" if kept else ""
    return f"Of {len(ours)} published claims about these sides: {', '.join(told)}{alone}." if told else ""


def section(found: Verdicts | None, why_none: str, sides: Collection[str]) -> Section | None:
    """Every claim that the campaign measured something of between these sides, and how many between others.

    Where the claims could not be judged, why; None where the campaign measured nothing of any.
    """
    if why_none:
        return Section("Claims", (f"No claim is judged: {why_none}.",))
    ours, others = _split(found, sides)
    if found is None or not (ours or others):
        return None
    absent = len(found.claims) - len(ours) - others
    says: Inline = (
        "Published sentences against what was measured of these sides. " if ours else _NONE,
        f"{others} more {_are(others)} judged on other sides of this campaign, and " if others else "",
        f"{absent} {_are(absent)} facts that are looked up, or need other measurements; which, says ",
        Code("cuda-gains claims"),
        ".",
    )
    rows = tuple(row for one in ours for row in _rows(one))
    return Section("Claims", (says, Table(_HEAD, rows, "claims")) if rows else (says,))


def _are(number: int) -> str:
    return "claim is" if number == 1 else "claims are"


def _split(found: Verdicts | None, sides: Collection[str]) -> tuple[list[Judged], int]:
    """The claims as judged between these sides, and how many were judged between others only."""
    measured = [
        one for one in (found.claims if found else ()) if one.findings and one.claim.kind is not Kind.FACT
    ]
    between = [_between(one, sides) for one in measured]
    ours = [one for one in between if one.findings]
    return ours, len(measured) - len(ours)


def _between(one: Judged, sides: Collection[str]) -> Judged:
    """A claim judged by its findings between these sides alone."""
    own = [each for each in one.findings if {each.baseline, each.candidate} <= set(sides)]
    return one if len(own) == len(one.findings) else combined(one.claim, own, one.takes)


def _rows(one: Judged) -> Sequence[tuple[Inline, ...]]:
    """A row a finding: the claim, in words once; its bound, the verdict and what it rests on."""
    named, bound = Code(one.claim.id), bound_text(one.claim) or str(one.claim.kind)
    return [
        (
            (named, f": {one.claim.text}") if number == 0 else named,
            ", ".join(part for part in (bound, inside(finding)) if part),
            verdict_cell(finding),
            finding.shown,
            Code(finding.of) if "/" in finding.of else finding.of,
            Number(str(finding.n_cases), finding.n_cases),
            Number(str(finding.n), finding.n),
            _why(finding, one.takes if number == 0 else ""),
        )
        for number, finding in enumerate(one.findings)
    ]


def _why(finding: Finding, takes_of_claim: str) -> str:
    """The reason, what weakens it, where it holds, and what would settle the claim: said once."""
    takes = [f"To settle it: {takes_of_claim}"] if takes_of_claim else []
    return "; ".join([finding.reason, *finding.confounders, finding.where, *takes]) + "."
