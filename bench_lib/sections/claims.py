"""Claims judged on a campaign in, their section of its report out, and the sentence that sums it up."""

from collections import Counter
from collections.abc import Sequence

from bench_lib.claims.bounds import bound_text
from bench_lib.claims.judged import Verdicts
from bench_lib.claims.pages import verdict_text
from bench_lib.claims.words import Finding, Judged, Kind, Verdict
from bench_lib.page import Code, Inline, Mark, Number, Section, Table

_HEAD = ("claim", "claimed", "verdict", "measured [95 % interval]", "of", "cases", "n", "why")


def sentence(found: Verdicts | None) -> str:
    """Claims by verdict in a sentence; "" where none could be judged."""
    ours = _ours(found)
    if found is None or not ours:
        return ""
    counts = Counter(one.verdict for one in ours)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    number = "1 published claim is" if len(ours) == 1 else f"{len(ours)} published claims are"
    return f"{number} judged on this campaign: {told}."


def section(found: Verdicts | None, why_none: str = "") -> Section | None:
    """Every claim that the campaign measured something of, or why none could be judged; else None."""
    if why_none:
        return Section("Claims", (f"No claim is judged: {why_none}.",))
    ours = _ours(found)
    if found is None or not ours:
        return None
    others = len(found.claims) - len(ours)
    says = (
        f"Published sentences against what this campaign measured. {others} more claims are facts that are "
        "looked up, or need other measurements; which, says ",
        Code("cuda-gains claims"),
        ".",
    )
    return Section("Claims", (says, Table(_HEAD, tuple(row for one in ours for row in _rows(one)), "claims")))


def _ours(found: Verdicts | None) -> list[Judged]:
    return [
        one for one in (found.claims if found else ()) if one.findings and one.claim.kind is not Kind.FACT
    ]


def _rows(one: Judged) -> Sequence[tuple[Inline, ...]]:
    """A row a finding: the claim in words, its bound, the verdict and what it rests on."""
    claim = one.claim
    named: Inline = (Code(claim.id), f": {claim.text}")
    bound = bound_text(claim) or str(claim.kind)
    return [
        (
            named,
            ", ".join(part for part in (bound, finding.group) if part),
            Mark(verdict_text(finding), finding.verdict),
            finding.shown,
            Code(finding.of) if "/" in finding.of else finding.of,
            Number(str(finding.n_cases), finding.n_cases),
            Number(str(finding.n), finding.n),
            _why(one, finding),
        )
        for finding in one.findings
    ]


def _why(one: Judged, finding: Finding) -> str:
    """The reason, what weakens it, where it holds, and what would settle it."""
    takes = [f"To settle it: {one.takes}"] if one.takes else []
    return "; ".join([finding.reason, *finding.confounders, finding.where, *takes]) + "."
