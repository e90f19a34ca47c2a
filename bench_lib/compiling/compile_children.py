"""The first step of a fresh process, with caches of its own; and the memory that one arm needs.

A cold first step finds its caches empty, a warm one finds what a cold one left. The process holds one
arm and nothing else, so its peak is that arm's. Several can be brought up side by side: each waits,
its arm made, until it is asked for its step.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_lib.compiling import compile_preflight
from bench_lib.compiling.compiled_model import EAGER, NULL, check_compiled, count
from bench_lib.compiling.training import Arm, Setup
from bench_lib.convolution.precision import in_precision
from bench_lib.errors import CudaGainsError
from bench_lib.processes.worker import Worker
from bench_lib.stacking import cache
from bench_lib.timing.timer import nothing

CHILD_SECONDS = 900.0
_STEPS_TO_SETTLE = 3  # CUDA graphs are recorded in the second and third step
_FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "driver"}


@dataclass(frozen=True)
class First:
    """What one child saw."""

    seconds: float  # of the first step, compilation included, until the device was done
    cache_hits: int
    cache_misses: int
    quantities: Mapping[str, float] = field(default_factory=dict)  # peak_nbytes, peak_reserved_nbytes
    facts: Mapping[str, str] = field(default_factory=dict)


def cache_environment(caches: Path) -> dict[str, str]:
    """The variables that put every cache of compiled code under `caches`."""
    return {name: str(caches / folder) for name, folder in _FOLDERS.items()}


def default_caches(torch_version: str) -> Path:
    """Where compiled code is kept from run to run: apart for each torch, in the user's cache folder."""
    return cache.root() / "compile" / torch_version


class FirstStep:
    """A process with one arm whose first step has not been taken yet; `start` does not wait for it."""

    def __init__(self, setup: Setup, execution: str, device: str, caches: Path) -> None:
        self._execution, self._device = execution, device
        # Older torches compile in processes that they fork, which a daemon may not.
        variables = cache_environment(caches)
        self._worker = Worker(waiting_arm, setup, execution, device, daemon=False, variables=variables)
        self.start, self.up, self.close = self._worker.start, self._worker.up, self._worker.close

    def take(self, cold: bool) -> First:
        """Take it, and end the process. `cold` promises empty caches, and its hits are held to that.

        Raises Unavailable without what compiling needs, CaseTimeout for a process that does not
        answer, MemoryError for one that ran out of memory, else CudaGainsError with what it said.
        """
        try:
            if self._execution not in (EAGER, NULL):
                compile_preflight.check(self._device)
            first: First = self._worker.ask(None, CHILD_SECONDS)
        finally:
            self.close()
        if cold and first.cache_hits:
            raise CudaGainsError(
                f"the caches of a cold first step gave {first.cache_hits} hits, expected none; "
                "is a remote cache of Inductor set up in the environment?"
            )
        return first


def waiting_arm(setup: Setup, execution: str, device: str) -> Callable[[None], First]:
    """In the process: the arm, made; what is returned takes its first step."""
    import torch

    held = ExitStack()  # for the life of the process
    effect = held.enter_context(in_precision(torch, setup.precision, device))
    arm = Arm(setup, execution, device)
    synchronize = torch.cuda.synchronize if device == "cuda" else nothing
    synchronize()

    def take(_: None, held: ExitStack = held) -> First:
        """The first step timed, then a few more for the peak of memory."""
        begin = perf_counter()
        arm.step()
        synchronize()
        seconds = perf_counter() - begin
        done = count(torch)
        check_compiled(done, execution)
        peak = _peak(torch, arm) if device == "cuda" else {}
        return First(seconds, done.cache_hits, done.cache_misses, peak, {**effect.facts(), **done.facts()})

    return take


def _peak(torch: Any, arm: Arm) -> dict[str, float]:
    """Most bytes in steady steps: the compiler's own trials are over by then."""
    for _ in range(_STEPS_TO_SETTLE):
        arm.step()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(_STEPS_TO_SETTLE):
        arm.step()
    torch.cuda.synchronize()
    return {
        "peak_nbytes": float(torch.cuda.max_memory_allocated()),
        "peak_reserved_nbytes": float(torch.cuda.max_memory_reserved()),
    }
