"""The first step of a fresh process, with caches of its own; and the memory that one arm needs.

A cold first step finds its caches empty, a warm one finds what a cold one left. The process holds one
arm and nothing else, so its peak is that arm's. Several come up side by side: each imports what it needs
and touches no GPU, then is asked to make its arm, then for its step.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_lib.compiling import compile_preflight
from bench_lib.compiling.compiled_model import EAGER, NULL, check_compiled, count
from bench_lib.compiling.training import Arm, Setup
from bench_lib.convolution.precision import InEffect, in_precision
from bench_lib.errors import CudaGainsError
from bench_lib.processes.worker import Worker
from bench_lib.stacking import cache
from bench_lib.timing.timer import nothing

CHILD_SECONDS = 900.0
MAKE, TAKE = "make the arm", "take its first step"  # what a process is asked, in this order
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
    """A process for one arm whose first step has not been taken yet; `start` does not wait for it."""

    def __init__(self, setup: Setup, execution: str, device: str, caches: Path) -> None:
        self._execution, self._device = execution, device
        # Older torches compile in processes that they fork, which a daemon may not.
        variables = cache_environment(caches)
        self._worker = Worker(waiting_arm, setup, execution, device, daemon=False, variables=variables)
        self.start, self.up, self.close = self._worker.start, self._worker.up, self._worker.close
        self._is_asked = self._is_made = False

    def place(self) -> None:
        """Have the arm made, and do not wait for it."""
        self._worker.send(MAKE)
        self._is_asked = True

    def placed(self) -> None:
        """Wait until the arm is made; what its making raised is raised here, each time it is asked for."""
        if self._is_made:
            return
        if not self._is_asked:
            self.place()
        self._is_asked = False
        self._worker.answer(CHILD_SECONDS)
        self._is_made = True

    def take(self, cold: bool) -> First:
        """Take it, and end the process. `cold` promises empty caches, and its hits are held to that.

        Raises Unavailable without what compiling needs, CaseTimeout for a process that does not
        answer, MemoryError for one that ran out of memory, else CudaGainsError with what it said.
        """
        try:
            if self._execution not in (EAGER, NULL):
                compile_preflight.check(self._device)
            self.placed()
            first: First = self._worker.ask(TAKE, CHILD_SECONDS)
        finally:
            self.close()
        if cold and first.cache_hits:
            raise CudaGainsError(
                f"the caches of a cold first step gave {first.cache_hits} hits, expected none; "
                "is a remote cache of Inductor set up in the environment?"
            )
        return first


class FirstSteps:
    """The first steps of several set-ups, their processes up side by side: one by one takes ten seconds each.

    `firsts` are execution and metric of each; those of one execution share the caches in one `folder()`.
    """

    def __init__(self, firsts: Sequence[tuple[str, str]], device: str, folder: Callable[[], Path]) -> None:
        self._firsts, self._device, self._folder = firsts, device, folder
        self._begun: dict[Setup, dict[tuple[str, str], FirstStep]] = {}
        self._unplaced: list[FirstStep] = []

    def start(self, setups: Iterable[Setup]) -> None:
        """Begin the processes of these set-ups, if they are not, and do not wait for them."""
        for setup in setups:
            if setup in self._begun:
                continue
            caches = {execution: self._folder() for execution in dict(self._firsts)}
            self._begun[setup] = {
                (execution, metric): FirstStep(setup, execution, self._device, caches[execution])
                for execution, metric in self._firsts
            }
            self._unplaced += self._begun[setup].values()
        for process in self._unplaced:
            process.start()

    def ready(self) -> None:
        """Wait until all have imported what they need: from then on they disturb nothing."""
        self._each(lambda process: process.up())

    def of(self, setup: Setup) -> Mapping[tuple[str, str], FirstStep]:
        """The first steps of a set-up, all arms made."""
        self.start([setup])
        self._each(lambda process: process.place())
        self._each(lambda process: process.placed())
        self._unplaced.clear()
        return self._begun[setup]

    def close(self) -> None:
        """End all processes."""
        for made in self._begun.values():
            for process in made.values():
                process.close()

    def _each(self, act: Callable[[FirstStep], None]) -> None:
        for process in self._unplaced:
            with suppress(Exception):  # it says so when it is asked
                act(process)


def waiting_arm(setup: Setup, execution: str, device: str) -> Callable[[str], First | None]:
    """In the process, all imported: what is returned makes the arm, then takes its first step."""
    import torch

    with suppress(ImportError):  # making the arm says so
        importlib.import_module("torchvision.models")
    held = ExitStack()  # for the life of the process
    made: list[tuple[Arm, InEffect]] = []
    synchronize = torch.cuda.synchronize if device == "cuda" else nothing

    def answer(request: str) -> First | None:
        if request == TAKE:
            return _first(torch, *made[0], execution, device, synchronize)
        effect = held.enter_context(in_precision(torch, setup.precision, device))
        made.append((Arm(setup, execution, device), effect))
        synchronize()
        return None

    return answer


def _first(
    torch: Any, arm: Arm, effect: InEffect, execution: str, device: str, synchronize: Callable[[], object]
) -> First:
    """The first step timed, then a few more for the peak of memory."""
    begin = perf_counter()
    arm.step()
    synchronize()
    seconds = perf_counter() - begin
    done = count(torch)
    check_compiled(done, execution)
    peak = _peak(torch, arm) if device == "cuda" else {}
    return First(seconds, done.cache_hits, done.cache_misses, peak, {**effect.facts(), **done.facts()})


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
