"""The rules for claims about the whole scope: `at least`, `about`, `range`, and a cost `up to` so much.

The mean is taken over the cases of each pair first, then over the pairs: cases that share their runs move
together, and taken as independent they would make the interval far too narrow.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from bench_lib.claims.bounds import bound_text
from bench_lib.claims.values import Judging, case_effects, interval, shown, unsettled
from bench_lib.claims.words import Finding, Kind, Verdict
from bench_lib.comparing import stats
from bench_lib.comparing.stats import ALPHA, FEWEST, Effects
from bench_lib.comparing.verdicts import Pairing, at_least

_INSIDE = 1 - 2 * ALPHA  # the level of the interval that must lie inside: two one-sided tests


@dataclass(frozen=True)
class _Bounds:
    """Gains: what the interval must lie inside, and beyond which it contradicts the claim."""

    low: float
    high: float
    wide_low: float
    wide_high: float


def judge(judging: Judging) -> Finding:
    """The finding, with the geometric mean over the cases as its value."""
    names = _shared(judging)
    if len(names) < FEWEST:
        pairs = "1 pair holds" if len(names) == 1 else f"{len(names)} pairs hold"
        why = f"only {pairs} all {len(judging.cases)} cases, a verdict needs {FEWEST}"
        lacking = FEWEST - len(names)
        step = f"{at_least(lacking, Pairing.ROUNDS)}, with all cases"
        return Finding(Verdict.INCONCLUSIVE, why, n=len(names), next_step=step, lacking=lacking)
    effects = _mean_over_cases(judging, names)
    number = len(judging.cases)
    of = judging.cases[0].case_id if number == 1 else f"the mean of {number} cases"
    bounds = _bounds(judging)
    finding = _placed(effects, shown(judging, effects, 0, of), bounds)
    return replace(finding, details=_each_case(judging, bounds))


def _placed(effects: Effects, finding: Finding, bounds: _Bounds) -> Finding:
    inside = [float(end[0]) for end in interval(effects, _INSIDE)]
    wide = [float(end[0]) for end in interval(effects)]
    if inside[0] >= bounds.low and inside[1] <= bounds.high:
        return replace(finding, verdict=Verdict.SUPPORTED, reason="the 90 % interval lies inside the claim")
    if wide[0] > bounds.wide_high:
        why = "the 95 % interval lies wholly on the better side of the claim"
        return replace(finding, verdict=Verdict.SUPPORTED, and_more=True, reason=why)
    if wide[1] < bounds.wide_low:
        why = "the 95 % interval lies wholly on the worse side of the claim"
        return replace(finding, verdict=Verdict.REFUTED, reason=why)
    near = min((bounds.low, bounds.high), key=lambda bound: abs(float(effects.mean[0]) - bound))
    return unsettled(finding, effects, "the interval reaches across the bound of the claim", near)


def _bounds(judging: Judging) -> _Bounds:
    claim, scale = judging.claim, judging.scale
    claimed = claim.high or 0.0
    if claim.low is None:  # a cost of up to so much: the turned scale has that as its least
        least = scale.gain(claimed + claim.off(claimed))
        return _Bounds(least, math.inf, least, math.inf)
    if claim.high is None:
        least = scale.gain(claim.low - claim.off(claim.low))
        return _Bounds(least, math.inf, least, math.inf)
    low, high = scale.between(claim.low, claim.high)
    wide_low, wide_high = scale.between(claim.low - claim.off(claim.low), claimed + claim.off(claimed))
    if claim.kind is Kind.ABOUT:
        return _Bounds(wide_low, wide_high, wide_low, wide_high)
    return _Bounds(low, high, wide_low, wide_high)


def _shared(judging: Judging) -> list[str]:
    """The pairs in which every case has a value, in their order."""
    held = set.intersection(*(set(case.pairs) for case in judging.cases))
    return [name for name in judging.cases[0].pairs if name in held]


def _mean_over_cases(judging: Judging, names: list[str]) -> Effects:
    by_name = [dict(zip(case.pairs, case.logs, strict=True)) for case in judging.cases]
    logs = np.array([[own[name] for name in names] for own in by_name])
    mean = judging.scale.sign * logs.mean(axis=0, keepdims=True)
    floor = np.mean([case.floor for case in judging.cases]) / np.sqrt(len(judging.cases))
    return stats.paired(mean, np.array([floor]))


def _each_case(judging: Judging, bounds: _Bounds) -> tuple[str, ...]:
    """The stricter reading of a range: each case of its own inside, outside, or across its ends."""
    if judging.claim.kind is not Kind.RANGE or len(judging.cases) < 2:
        return ()
    low, high = interval(case_effects(judging))
    inside = int(((low >= bounds.low) & (high <= bounds.high)).sum())
    outside = int(((low > bounds.high) | (high < bounds.low)).sum())
    across = len(judging.cases) - inside - outside
    told = f"{inside} cases lie inside {bound_text(judging.claim)}"
    return (f"{told}, {outside} outside, {across} across its ends",)
