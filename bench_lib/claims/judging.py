"""Values of selected cases and a claim in, a finding out. Pure: no files, no names of stacks."""

from collections.abc import Sequence
from dataclasses import replace

from bench_lib.claims import average, single
from bench_lib.claims.bounds import scale_of
from bench_lib.claims.values import CaseValues, Judging, spread_over_cases
from bench_lib.claims.words import Claim, Finding, Kind, Verdict
from bench_lib.comparing.stats import FEWEST
from bench_lib.comparing.verdicts import Pairing, at_least

_MEND = "mend it and measure again"


def counted(cases: Sequence[CaseValues]) -> int:
    """How many of the cases have pairs enough to be judged."""
    return len(_enough(cases))


def existential(claim: Claim) -> bool:
    """Whether one case can show the claim; the others are about all cases of the scope together."""
    return claim.kind is Kind.EXISTS or (claim.kind is Kind.UP_TO and not claim.cost)


def judge(claim: Claim, cases: Sequence[CaseValues], tests: int = 0) -> Finding:
    """The finding that the selected cases of one pair of sides give.

    `tests` is the number of cases over all findings of the claim, which the bounds of `up to` and
    `exists` are adjusted for (Bonferroni); by default those given here.
    """
    failed = tuple(case for case in cases if case.failed)
    enough = _enough(cases)
    if not enough:
        return _too_few(cases, failed)
    thin = tuple(case for case in cases if case not in enough and not case.failed)
    judging = Judging(claim, scale_of(claim), enough, max(tests, len(enough)), failed, thin)
    found = (single if existential(claim) else average).judge(judging)
    found = _with_failed(found, judging)
    return replace(
        found,
        n_cases=len(enough),
        left_out=len(thin),
        cases=tuple(case.case_id for case in enough),
        details=(*spread_over_cases(judging), *found.details),
    )


def _enough(cases: Sequence[CaseValues]) -> tuple[CaseValues, ...]:
    return tuple(case for case in cases if not case.failed and len(case.logs) >= FEWEST)


def _too_few(cases: Sequence[CaseValues], failed: Sequence[CaseValues]) -> Finding:
    if failed:
        why = f"{failed[0].case_id}: {failed[0].failed}"
        return Finding(Verdict.NOT_MEASURED, why, next_step=_MEND)
    most = max((len(case.logs) for case in cases), default=0)
    why = f"no selected case has {FEWEST} pairs (the most are {most})"
    step, lacking = at_least(FEWEST - most, Pairing.ROUNDS), FEWEST - most
    return Finding(Verdict.INCONCLUSIVE, why, n=most, left_out=len(cases), next_step=step, lacking=lacking)


def _with_failed(finding: Finding, judging: Judging) -> Finding:
    """Nothing is said of a scope in which a case failed, but that one of the others shows it."""
    shows_it = existential(judging.claim) and finding.verdict is Verdict.SUPPORTED
    if not judging.failed or shows_it:
        return finding
    first = judging.failed[0]
    number = f"{len(judging.failed)} of {len(judging.failed) + len(judging.cases)} cases"
    why = f"{number} could not be compared ({first.case_id}: {first.failed}), the number is of the others"
    return replace(
        finding,
        verdict=Verdict.NOT_MEASURED,
        and_more=False,
        reason=why,
        next_step=_MEND,
        lacking=0,
    )
