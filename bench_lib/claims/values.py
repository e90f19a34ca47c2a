"""Selected cases as numbers to judge, and what every rule tells of them: value, interval, next step.

All rules work on gains (bench_lib.claims.bounds): the claimed direction is up. The replicate is the pair
(a round or a run), as in every comparison.
"""

from dataclasses import dataclass, replace

import numpy as np

from bench_lib.claims.bounds import Scale
from bench_lib.claims.words import Claim, Finding, Verdict
from bench_lib.comparing import stats
from bench_lib.comparing.changes import Change
from bench_lib.comparing.stats import ALPHA, MOST_MORE, MOST_ROUNDS, Effects, Floats
from bench_lib.comparing.verdicts import Pairing, more


@dataclass(frozen=True)
class CaseValues:
    """One selected case: a log ratio (or log value) a pair, in the order of `pairs`."""

    case_id: str
    logs: tuple[float, ...]
    pairs: tuple[str, ...]
    floor: float = 0.0  # the least spread its timer can show
    margin: float = 0.05
    change: Change | None = None  # what the comparison found; None for values that are not compared
    failed: str = ""  # why there is nothing to judge


@dataclass(frozen=True)
class Judging:
    """One claim and the cases that have pairs enough; `tests` is what bounds are adjusted for."""

    claim: Claim
    scale: Scale
    cases: tuple[CaseValues, ...]
    tests: int
    failed: tuple[CaseValues, ...] = ()
    thin: tuple[CaseValues, ...] = ()  # cases with too few pairs to be judged

    def thin_beyond(self, bound: float) -> int:
        """How many of the thin cases were seen beyond a bound: they could contradict `none reaches it`."""
        return sum(self.scale.sign * float(np.mean(case.logs)) > bound for case in self.thin if case.logs)


def case_effects(judging: Judging) -> Effects:
    """The gain of each case over its own pairs."""
    pairs = max(len(case.logs) for case in judging.cases)
    gains = np.full((len(judging.cases), pairs), np.nan)
    for line, case in zip(gains, judging.cases, strict=True):
        line[: len(case.logs)] = judging.scale.sign * np.array(case.logs)
    return stats.paired(gains, np.array([case.floor for case in judging.cases]))


def interval(effects: Effects, level: float = 1 - ALPHA) -> tuple[Floats, Floats]:
    """The t interval of each gain."""
    half = effects.half_width(level)
    return effects.mean - half, effects.mean + half


def shown(judging: Judging, effects: Effects, place: int, of: str) -> Finding:
    """A finding without a verdict yet: the value at `place` with its 95 % interval."""
    scale = judging.scale
    low, high = (float(end[place]) for end in interval(effects))
    value, *ends = (scale.share(gain) for gain in (float(effects.mean[place]), low, high))
    ends.sort()
    return Finding(
        Verdict.INCONCLUSIVE,
        "",
        value=value,
        low=ends[0],
        high=ends[1],
        shown=scale.text(value, *ends),
        of=of,
        n=int(effects.n[place]),
    )


def unsettled(finding: Finding, effects: Effects, why: str, bound: float) -> Finding:
    """Inconclusive, and about how many more pairs would settle it: the bound at the spread that was seen."""
    place = int(np.argmax(effects.mean))
    gap = abs(float(effects.mean[place]) - bound)
    needed = MOST_ROUNDS + 1
    if gap > 0:
        needed = int(stats.rounds_to_resolve(effects.sd[place : place + 1], gap)[0])
    lacking = max(needed - finding.n, 1)
    step = f"about {more(lacking, Pairing.ROUNDS)} should settle it"
    if lacking > MOST_MORE:
        lacking, step = 0, "more rounds will hardly settle it: the value lies at the bound"
    return replace(finding, verdict=Verdict.INCONCLUSIVE, reason=why, next_step=step, lacking=lacking)


def spread_over_cases(judging: Judging) -> tuple[str, ...]:
    """The middle case, and how many moved: `up to` is true of almost nothing having changed."""
    number = len(judging.cases)
    if number < 2:
        return ()
    middle = float(np.median(case_effects(judging).mean))
    told = f"median of {number} cases: {judging.scale.text(judging.scale.share(middle))}"
    if any(case.change is None for case in judging.cases):
        return (told,)
    toward, against = directions(judging.scale)
    moved = [sum(case.change is change for case in judging.cases) for change in (toward, against)]
    return (told, f"{moved[0]} of {number} moved in the claimed direction, {moved[1]} against it")


def directions(scale: Scale) -> tuple[Change, Change]:
    """The change in the claimed direction, and the opposite one."""
    return (Change.FASTER, Change.SLOWER) if scale.sign < 0 else (Change.SLOWER, Change.FASTER)
