"""One training step in several precisions, in turns: a series or an error for each precision."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from bench_lib.compiling.compiled_model import EAGER
from bench_lib.compiling.executions import release, told
from bench_lib.compiling.training import Arm, Setup, distance
from bench_lib.convolution.precision import InEffect, Precision, check_supported, in_precision
from bench_lib.device.telemetry import Reader
from bench_lib.errors import WrongResult
from bench_lib.model import Policy, Series, Timing
from bench_lib.timing.turns import STEP, Clock, Parts, in_turns

NO_SPEEDUP = 1.1
_STEPS = 2  # in a block: steps of some ten milliseconds need no more
_CHECKED_IMAGES = 8
# Largest relative distance (norm) from fp64. A gradient also depends on which ReLU is open, and
# rounding opens and shuts some: with fp32 it was seen 0.003 off, with bf16 0.1. Wrong code is off by 1.
_TOLERANCE = {
    "output": {"": 1e-4, "tf32": 0.02, "float16": 0.02, "bfloat16": 0.1},
    "gradient": {"": 0.05, "tf32": 0.3, "float16": 0.3, "bfloat16": 0.5},
}

Outcome = Series | Exception


@dataclass(frozen=True)
class _Made:
    arm: Arm
    errors: Mapping[str, float]
    effect: InEffect


def measure(
    setup: Setup,
    precisions: Sequence[Precision],
    device: str,
    capability: tuple[int, int] | None,
    clock: Clock,
    policy: Policy,
    seed: int = 0,
    telemetry: Reader | None = None,
) -> dict[Precision, Outcome]:
    """Whole training steps of every precision that works here, in turns of two.

    Before, the first pass of each is checked against fp64. `setup.precision` is not looked at.
    """
    import torch

    outcomes: dict[Precision, Outcome] = {}
    try:
        exact = Arm(replace(setup, precision=Precision.FP32), EAGER, device).exact(_CHECKED_IMAGES)
        made: dict[Precision, _Made] = {}
        for precision in precisions:
            try:
                check_supported(precision, device, capability)
                made[precision] = _make(torch, replace(setup, precision=precision), device, exact)
            except Exception as error:  # one precision that fails leaves the others to be measured
                outcomes[precision] = told(precision, error)
        timing = Timing.BATCH if device == "cuda" else Timing.HOST
        parts: dict[str, Parts] = {
            str(p): {STEP: _step(torch, p, one.arm, device)} for p, one in made.items()
        }
        name = f"{setup.network}-{setup.layout}-{setup.batch}"
        queued = device == "cuda"
        series = in_turns(parts, clock, policy, name, seed, timing, telemetry, _STEPS, queued) if made else {}
        outcomes |= {p: _told_more(series[str(p)][STEP], one) for p, one in made.items()}
        return _mark_no_speedup(outcomes, device, capability)
    finally:
        release(torch, device)


def _make(torch: Any, setup: Setup, device: str, exact: Mapping[str, Any]) -> _Made:
    with in_precision(torch, setup.precision, device) as effect:
        arm = Arm(setup, EAGER, device)
        errors = distance(arm.once(_CHECKED_IMAGES), dict(exact))
    form = setup.precision.half or ("tf32" if setup.precision is Precision.TF32 else "")
    for what, error in errors.items():
        allowed = _TOLERANCE[what][form]
        if not error <= allowed:
            raise WrongResult(
                f"the {what} of one step is {error:.2g} from fp64, relative; {setup.precision} allows "
                f"{allowed:g}: this training computes wrong numbers here"
            )
    return _Made(arm, errors, effect)


def _step(torch: Any, precision: Precision, arm: Arm, device: str) -> Callable[[], None]:
    """One step under the precision's flags; setting them takes microseconds, a step milliseconds."""

    def step() -> None:
        with in_precision(torch, precision, device):
            arm.step()

    return step


def _told_more(series: Series, made: _Made) -> Series:
    errors = {f"{what}_relative_error": error for what, error in made.errors.items()}
    return replace(series, quantities={**series.quantities, **errors}, facts=made.effect.facts())


def _mark_no_speedup(
    outcomes: dict[Precision, Outcome], device: str, capability: tuple[int, int] | None
) -> dict[Precision, Outcome]:
    reference = outcomes.get(Precision.FP32)
    if not isinstance(reference, Series) or device != "cuda":
        return outcomes
    found = dict(outcomes)
    for precision, one in outcomes.items():
        if isinstance(one, Series):
            text = no_speedup(precision, median(reference.seconds), median(one.seconds), capability)
            found[precision] = replace(one, warnings=(*one.warnings, *text))
    return found


def no_speedup(
    precision: Precision, fp32_seconds: float, seconds: float, capability: tuple[int, int] | None
) -> tuple[str, ...]:
    """The warning of an AMP case that gains less than 1.1x over fp32 on a GPU with tensor cores."""
    speedup = fp32_seconds / seconds
    if not precision.autocast or (capability or (0, 0)) < (7, 0) or speedup >= NO_SPEEDUP:
        return ()
    return (f"no-speedup: {speedup:.2f}x of fp32, on a GPU with tensor cores",)
