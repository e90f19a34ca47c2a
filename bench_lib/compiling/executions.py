"""One set-up run eager and compiled, in turns: an outcome for each execution.

What goes wrong with one execution is that one's outcome, and the others are measured.
"""

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench_lib.compiling import compile_preflight
from bench_lib.compiling.compiled_model import EAGER, NULL, forget, no_recompiles
from bench_lib.compiling.training import Arm, Setup, check_agrees, distance, prepared, reference
from bench_lib.convolution.precision import in_precision
from bench_lib.device.telemetry import Reader
from bench_lib.errors import CudaError, CudaGainsError, first_sentence
from bench_lib.model import Policy, Series, Timing
from bench_lib.timing.timer import nothing
from bench_lib.timing.turns import Clock, in_turns

Outcome = dict[str, Series] | Exception  # series by metric, or why there are none


def measure(
    setup: Setup,
    executions: Sequence[str],
    device: str,
    clock: Clock,
    policy: Policy,
    seed: int = 0,
    telemetry: Reader | None = None,
    before_turns: Callable[[], object] = nothing,
) -> dict[str, Outcome]:
    """Steps of every execution in turns; the metrics are `step` and the step's parts.

    `before_turns` is called once all arms are made: what may run beside their making has to end there.
    EAGER is among the executions: the others must agree with it. What concerns all of them (a
    precision that is not to be had, an eager arm that fails, a recompilation) is the outcome of all.
    """
    import torch

    forget(torch)
    try:
        return _measure(setup, executions, device, clock, policy, seed, telemetry, before_turns)
    except Exception as error:  # kept as an outcome, without the frames that hold the arms
        return dict.fromkeys(executions, told(setup.name, error))
    finally:
        release(torch, device)


def _measure(
    setup: Setup,
    executions: Sequence[str],
    device: str,
    clock: Clock,
    policy: Policy,
    seed: int,
    telemetry: Reader | None,
    before_turns: Callable[[], object],
) -> dict[str, Outcome]:
    import torch

    timing = Timing.BATCH if device == "cuda" else Timing.HOST
    with kept_warnings() as said, in_precision(torch, setup.precision, device) as effect:
        made, outcomes = _prepare(setup, executions, device)
        before_turns()
        with no_recompiles(torch):
            parts = {name: one.arm.parts for name, one in made.items()}
            series = in_turns(
                parts, clock, policy, setup.name, seed, timing, telemetry, queued=device == "cuda"
            )
    for name, by_metric in series.items():
        errors = {f"relative_error.{what}": f"{error:.3g}" for what, error in made[name].errors.items()}
        facts = {**effect.facts(), **made[name].facts, **errors}
        outcomes[name] = {
            metric: replace(one, facts=facts, warnings=(*one.warnings, *said))
            for metric, one in by_metric.items()
        }
    return outcomes


@dataclass(frozen=True)
class _Made:
    arm: Arm
    facts: Mapping[str, str]
    errors: Mapping[str, float]  # of the first pass against fp32


def _prepare(
    setup: Setup, executions: Sequence[str], device: str
) -> tuple[dict[str, _Made], dict[str, Outcome]]:
    """The arms that work, and the outcomes of those that do not."""
    made: dict[str, _Made] = {}
    outcomes: dict[str, Outcome] = {}
    expected = reference(setup, device)
    for name in sorted(executions, key=lambda one: one != EAGER):
        try:
            if name not in (EAGER, NULL):
                compile_preflight.check(device)
            arm, result, facts = prepared(setup, name, device)
            errors = distance(result, expected)
            check_agrees(name, errors, errors if name == EAGER else made[EAGER].errors)
            made[name] = _Made(arm, facts, errors)
        except Exception as error:  # whatever a compiler does, the other arms are still worth measuring
            if name == EAGER:
                raise
            outcomes[name] = told(name, error)
    return made, outcomes


def told(execution: str, error: Exception) -> Exception:
    """The error as one sentence, without the frames that keep its tensors alive.

    Errors of ours keep their kind, and out of memory stays out of memory.
    """
    if isinstance(error, CudaError):
        return CudaError(error.call, error.code)
    if isinstance(error, CudaGainsError):
        return type(error)(str(error))
    text = f"{execution}: {type(error).__name__}: {first_sentence(str(error))}"
    return MemoryError(text) if "OutOfMemory" in type(error).__name__ else CudaGainsError(text)


def release(torch: Any, device: str) -> None:
    """Give the memory of arms that are gone back: what comes next finds the device as it was."""
    forget(torch)
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """What is warned of inside, each once, in one line: the compiler's advice must not stop it."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
        lines = [str(one.message).strip().splitlines()[0] for one in caught if str(one.message).strip()]
        said += dict.fromkeys(lines)
