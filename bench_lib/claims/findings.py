"""A claim and what was measured in, its findings out: one a pair of sides and group."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench_lib.claims import judging, selecting
from bench_lib.claims.bounds import scale_of
from bench_lib.claims.derived import DERIVED
from bench_lib.claims.measured import Arm, Compared, Measured
from bench_lib.claims.values import CaseValues
from bench_lib.claims.words import Claim, Contrast, Effect, Finding, Verdict
from bench_lib.comparing import ahead
from bench_lib.comparing.changes import CaseChange, Comparison
from bench_lib.comparing.verdicts import Pairing
from bench_lib.errors import UsageError

_INTERLEAVE = "measure both in interleaved rounds, and let the machine stand still"
_CONFOUNDED = "confounded"
_DRIVER_KEPT = (
    "the effect would live in the driver, and one driver served both sides: exchanging the toolkit cannot "
    "show what another driver does"
)
_AROUND = (
    *("campaign", "baseline", "candidate", "group", "stacks", "confounders", "gpu", "driver"),
    *("on_cpu", "driver_kept"),
)


@dataclass(frozen=True)
class _Selection:
    """The selected cases of one pair of sides and group, and everything that a finding says of them."""

    cases: tuple[CaseValues, ...]
    around: Finding  # everything but the verdict and the numbers
    unusable: str = ""  # why no verdict can be drawn from these sides, whatever the numbers
    unpaired: Mapping[str, Any] = field(default_factory=dict)  # value and interval where nothing is paired
    arms: tuple[Arm, ...] = ()
    pairing: str = Pairing.RUNS


def findings(claim: Claim, measured: Measured) -> tuple[Finding, ...]:
    """Every finding that the results give of a claim; none where no side or no case is there."""
    selections = list(_selections(claim, measured))
    tests = sum(judging.counted(one.cases) for one in selections)
    return tuple(_finding(claim, one, tests, measured.folder) for one in selections)


def unmeasured(claim: Claim, measured: Measured) -> str:
    """Why nothing is judged of a claim although its cases are there: a CPU's, or without its quantity.

    "" where no case is there, or none of this is the reason.
    """
    taken = [one.parameter for one in claim.contrasts] or [""]
    there = [
        arm for arm in measured.stacks if any(selecting.measured(arm.cases, claim, one) for one in taken)
    ]
    if there and claim.on_gpu and not any(arm.on_gpu for arm in there):
        return (
            f"its cases were measured on the CPU, and the claim needs {claim.needs}; "
            'write needs = "no GPU" where they are to count'
        )
    units = {unit for arm in there for unit in selecting.units(arm.replicates, claim)}
    if units and claim.unit not in units | {*DERIVED}:
        return f"its cases hold no quantity {claim.unit!r}; there: {', '.join(sorted(units))}"
    return ""


def _finding(claim: Claim, one: _Selection, tests: int, results: Path) -> Finding:
    found = judging.judge(claim, one.cases, tests)
    if one.unusable:
        found = replace(
            found,
            verdict=Verdict.INCONCLUSIVE,
            and_more=False,
            reason=one.unusable,
            next_step=_INTERLEAVE,
            lacking=0,
            **one.unpaired,
        )
    if found.lacking:
        seconds = ahead.seconds_each(one.pairing, [arm.side for arm in one.arms], results)
        found = replace(found, next_step=ahead.priced(found.next_step, found.lacking, seconds))
    around = {name: getattr(one.around, name) for name in _AROUND}
    return replace(found, **around)


def _selections(claim: Claim, measured: Measured) -> Iterator[_Selection]:
    if claim.baseline:
        for found in measured.pairs(claim.baseline, claim.candidate, partial(_usable, claim)):
            yield from _of_comparison(claim, found)
    if claim.effect is Effect.VALUE:
        for arm in measured.once:
            if arm.holds(claim.inside) and _usable(claim, arm):
                yield from _of_values(claim, arm)
    for arm in measured.stacks:
        if not arm.holds(claim.inside):
            continue
        for asked in claim.contrasts:
            if _usable(claim, arm, asked.parameter) and _has_both(claim, arm, asked):
                yield from _contrasted(claim, measured, arm, asked)


def _usable(claim: Claim, arm: Arm, ignoring: str = "") -> bool:
    """Whether what an arm measured of a claim was measured where the claim says: on GPUs, on so many."""
    return (arm.on_gpu or not claim.on_gpu) and selecting.measured(arm.cases, claim, ignoring)


def _has_both(claim: Claim, arm: Arm, asked: Contrast) -> bool:
    there = selecting.values_of(arm.cases, claim, asked.parameter)
    return {asked.baseline, asked.candidate} <= there


def _contrasted(claim: Claim, measured: Measured, arm: Arm, asked: Contrast) -> Iterator[_Selection]:
    try:
        found = measured.contrast(arm, asked)
    except UsageError:  # the two values were never measured with the same other parameters
        return
    beside = [one for one in measured.stacks if one.side.campaign == arm.side.campaign]
    yield from _of_comparison(claim, found, asked, arm.side.label if len(beside) > 1 else "")


def _of_comparison(
    claim: Claim, found: Compared, asked: Contrast | None = None, stack: str = ""
) -> Iterator[_Selection]:
    """By group; `stack` names the one inside whose runs was compared, where its campaign has several."""
    comparison = found.comparison
    several = asked is not None and len(claim.contrasts) > 1
    sides = f"{asked.parameter}={asked.baseline}:{asked.candidate}" if asked and several else ""
    groups: dict[str, list[CaseChange]] = {}
    for row in selecting.of_comparison(claim, comparison, found.parameter):
        own = selecting.group_of(claim, row.family, row.op, row.params)
        groups.setdefault(", ".join(part for part in (stack, sides, own) if part), []).append(row)
    around = _around(claim, found.arms, comparison)
    for name, rows in sorted(groups.items()):
        cases = tuple(selecting.case_values(row) for row in rows)
        unpaired = _unpaired(claim, rows) if comparison.pairing == Pairing.UNPAIRED else {}
        told = replace(around, group=name)
        yield _Selection(cases, told, _unusable(comparison), unpaired, found.arms, comparison.pairing)


def _unpaired(claim: Claim, rows: Sequence[CaseChange]) -> dict[str, Any]:
    """The case that gained most, with the comparison's interval; or the mean over them, which has none."""
    scale = scale_of(claim)
    there = [row for row in rows if row.ratio]
    if not there:
        return {}
    gains = [scale.sign * math.log(row.ratio or 1.0) for row in there]
    number = {"n": min(row.n for row in there), "n_cases": len(there), "left_out": len(rows) - len(there)}
    if len(there) > 1 and not judging.existential(claim):
        mean = scale.share(sum(gains) / len(gains))
        return {**number, "value": mean, "shown": scale.text(mean), "of": f"the mean of {len(there)} cases"}
    gain, row = max(zip(gains, there, strict=True), key=lambda one: one[0])
    ends = sorted(scale.share(scale.sign * math.log(end)) for end in (row.low, row.high) if end)
    low, high = ends if len(ends) == 2 else (None, None)
    value = scale.share(gain)
    told = {"value": value, "low": low, "high": high, "shown": scale.text(value, low, high)}
    return {**number, **told, "of": row.case_id, "n": row.n}


def _of_values(claim: Claim, arm: Arm) -> Iterator[_Selection]:
    around = _about((arm,), claim)
    around = replace(around, baseline=arm.side.label, candidate=arm.side.label, stacks=_versions(arm))
    found = selecting.of_values(claim, arm.side.data, arm.replicates)
    for name, cases in sorted(found.items()):
        yield _Selection(tuple(cases), replace(around, group=name), arms=(arm,))


def _around(claim: Claim, arms: tuple[Arm, ...], comparison: Comparison) -> Finding:
    around = _about(arms, claim)
    told = comparison.attribution if len(arms) > 1 else f"inside each run of {_versions(arms[0])}"
    confounders = [comparison.attribution] if comparison.attribution.startswith(_CONFOUNDED) else []
    notes = [note for note in comparison.notes if not note.startswith("A/A: ") or "DOUBT" in note]
    return replace(
        around,
        campaign=comparison.campaign,
        baseline=comparison.baseline,
        candidate=comparison.candidate,
        stacks=told,
        confounders=(*around.confounders, *confounders, *notes),
    )


def _about(arms: tuple[Arm, ...], claim: Claim) -> Finding:
    """What runs of these arms ran on; and where the effect lives, if exchanging stacks cannot reach it."""
    gpus, drivers = (
        " / ".join(sorted({arm.told(key) for arm in arms} - {""})) for key in ("gpu.name", "driver.version")
    )
    one_driver = len({arm.told("driver.version") for arm in arms}) == 1
    kept = claim.lives_in == "driver" and claim.effect is not Effect.VALUE and one_driver
    return Finding(
        Verdict.INCONCLUSIVE,
        "",
        campaign=arms[0].side.campaign,
        gpu=gpus,
        driver=drivers,
        on_cpu=not any(arm.on_gpu for arm in arms),
        confounders=(_DRIVER_KEPT,) if kept else (),
        driver_kept=kept,
    )


def _unusable(comparison: Comparison) -> str:
    """Why a comparison settles no claim: the machine changed, or the sides never shared a round."""
    if comparison.canaries_moved:
        return "the canaries moved, so the machine changed between the sides"
    if comparison.pairing == Pairing.UNPAIRED:
        return "the sides never shared a round, so the stack is not told from the session"
    return ""


def _versions(arm: Arm) -> str:
    """The main components that the runs of an arm had loaded."""
    names = ("torch", "cudart", "cudnn", "nccl", "triton")
    told = [f"{name} {arm.told(f'{name}.version')}" for name in names if arm.told(f"{name}.version")]
    return f"{arm.side.label}: {', '.join(told)}" if told else arm.side.label
