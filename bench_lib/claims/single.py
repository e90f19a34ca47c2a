"""The rules for claims that one case can show: `up to` and `exists`."""

from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from bench_lib.claims.values import Judging, case_effects, directions, shown, unsettled
from bench_lib.claims.words import Finding, Kind, Verdict
from bench_lib.comparing.changes import Change
from bench_lib.comparing.stats import ALPHA, FEWEST, Effects, Floats


def judge(judging: Judging) -> Finding:
    """The finding, with the case that gained most as its value."""
    effects = case_effects(judging)
    best = int(np.argmax(effects.mean))
    finding = shown(judging, effects, best, judging.cases[best].case_id)
    rule = up_to if judging.claim.kind is Kind.UP_TO else exists
    return replace(rule(judging, effects, finding), details=_second_estimate(judging))


def up_to(judging: Judging, effects: Effects, finding: Finding) -> Finding:
    """Some case reaches the bound (adjusted), or every case stays below it (no adjustment is needed).

    Refuting is an intersection-union test: all bounds must lie below, each at its plain 95 %.
    """
    claim, scale = judging.claim, judging.scale
    claimed = claim.high or 0.0
    least, most = scale.between(claimed - claim.off(claimed), claimed + claim.off(claimed))
    adjusted = _lower(effects, ALPHA / judging.tests)
    if (adjusted >= least).any():
        why = f"a case reaches it{_adjusted(judging)}"
        more = bool((adjusted > most).any())
        return replace(finding, verdict=Verdict.SUPPORTED, and_more=more, reason=why)
    upper = -_lower(replace(effects, mean=-effects.mean), ALPHA)
    if (upper < least).all():
        why = "no case comes near it: the 95 % bound of each lies below"
        return _unless_thin(replace(finding, verdict=Verdict.REFUTED, reason=why), judging, least)
    why = "no case is shown to reach it, and not all are shown to stay below"
    return unsettled(finding, effects, why, least)


def exists(judging: Judging, effects: Effects, finding: Finding) -> Finding:
    """Some case moves beyond its margin (adjusted), or every case is the same or moves the other way."""
    margins = np.log1p([case.margin for case in judging.cases])
    if (_lower(effects, ALPHA / judging.tests) > margins).any():
        why = f"a case moves beyond its margin{_adjusted(judging)}"
        return replace(finding, verdict=Verdict.SUPPORTED, reason=why)
    against = (Change.SAME, directions(judging.scale)[1])
    if all(case.change in against for case in judging.cases):
        why = "every case is the same within its margin, or moves the other way"
        beyond = float(margins.max())
        return _unless_thin(replace(finding, verdict=Verdict.REFUTED, reason=why), judging, beyond)
    why = "no case is shown to move beyond its margin, and not all are shown to be the same"
    return unsettled(finding, effects, why, float(margins[int(np.argmax(effects.mean))]))


def _adjusted(judging: Judging) -> str:
    return f", adjusted for {judging.tests} cases" if judging.tests > 1 else ""


def _unless_thin(refuted: Finding, judging: Judging, bound: float) -> Finding:
    """A refutation is about every case: none that was hardly measured may have been seen beyond the bound."""
    if not (beyond := judging.thin_beyond(bound)):
        return refuted
    cases = f"{beyond} case{'s' * (beyond > 1)} with fewer than {FEWEST} pairs"
    why = f"{cases} {'were' if beyond > 1 else 'was'} seen beyond the bound"
    step = f"measure these cases at least {FEWEST} times"
    return replace(refuted, verdict=Verdict.INCONCLUSIVE, reason=why, next_step=step, lacking=0)


def _lower(effects: Effects, alpha: float) -> Floats:
    """The one-sided lower bound of each gain at 1 - alpha."""
    bound: Floats = effects.mean + stdtrit(effects.df, alpha) * effects.se
    return bound


def _second_estimate(judging: Judging) -> tuple[str, ...]:
    """The winner of several cases is partly luck: chosen on half of its pairs, it is read on the others."""
    names = list(dict.fromkeys(name for case in judging.cases for name in case.pairs))
    if len(judging.cases) < 2 or len(names) < 2 * FEWEST:
        return ()
    halves = (set(names[::2]), set(names[1::2]))
    read = [_read_apart(judging, *pair) for pair in (halves, halves[::-1])]
    known = [value for value in read if value is not None]
    if not known:
        return ()
    text = judging.scale.text(judging.scale.share(float(np.mean(known))))
    return (f"chosen on half of the pairs and read on the others, the best is {text}",)


def _read_apart(judging: Judging, choosing: set[str], reading: set[str]) -> float | None:
    found = []
    for case in judging.cases:
        gains = dict(zip(case.pairs, judging.scale.sign * np.array(case.logs), strict=True))
        parts = [[gains[name] for name in case.pairs if name in half] for half in (choosing, reading)]
        if all(parts):
            found.append((float(np.mean(parts[0])), float(np.mean(parts[1]))))
    return max(found)[1] if found else None
