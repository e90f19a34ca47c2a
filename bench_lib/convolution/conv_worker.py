"""Convolutions timed in a process that knows one tuning from its start to its end.

Torch remembers the plan of a convolution whatever the tuning is set to later (see `tuning`), so
each tuning has its own process. None of these ever profiles.
"""

import importlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from bench_lib.convolution.convolutions import Convolution
from bench_lib.convolution.precision import Precision, in_precision
from bench_lib.convolution.tuning import Tuning, in_tuning
from bench_lib.model import Policy, Series, Work
from bench_lib.processes.worker import Handler
from bench_lib.timing.measure import measure
from bench_lib.timing.timer import Cold, Host, Timer

# Convolved first in every worker, so that cuDNN is up: none of the shapes measured, and small.
_THROWAWAY = "5x5-3-13-112"


@dataclass(frozen=True)
class Key:
    """Which convolution, on which device."""

    shape: str
    batch: int
    precision: Precision
    layout: str
    direction: str
    device: str

    def make(self, torch: Any) -> Convolution:
        """The convolution with its numbers on the device."""
        return Convolution(
            torch, self.shape, self.batch, self.precision, self.layout, self.direction, self.device
        )


@dataclass(frozen=True)
class Chosen:
    """The first call of a convolution in its process: an algorithm is chosen in it."""

    seconds: float
    quantities: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class First:
    """Asks for a `Chosen`."""

    key: Key


@dataclass(frozen=True)
class Steady:
    """Asks for a `Chosen`, the check of the result, then the series of its steady state."""

    key: Key
    policy: Policy


@dataclass(frozen=True)
class Walk:
    """Asks for the first walk over several shapes as a `Chosen`, and the series of later walks."""

    keys: tuple[Key, ...]
    policy: Policy

    @property
    def key(self) -> Key:
        """The first of them: they differ in nothing but the shape."""
        return self.keys[0]


def timing_worker(tuning: Tuning, device: str) -> Handler:
    """What a timing worker does; made in the worker."""
    return TimingWorker(tuning, device).answer


class TimingWorker:
    """One tuning on one device."""

    def __init__(self, tuning: Tuning, device: str) -> None:
        torch: Any = importlib.import_module("torch")
        self._torch, self._device, self._gpu = torch, device, None
        self._for_life = ExitStack()
        self._facts: Mapping[str, str] = {}
        if device == "cuda":
            from bench_lib.device.gpu import Gpu

            self._gpu = Gpu.open()
            self._for_life.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(self._gpu.stream)))
            self._facts = self._for_life.enter_context(in_tuning(torch, tuning))
        self._is_up = False

    def answer(self, request: First | Steady | Walk) -> Any:
        """Serve one request."""
        with in_precision(self._torch, request.key.precision, self._device) as effect:
            facts = {**self._facts, **effect.facts()}
            try:
                if isinstance(request, First):
                    return self._first(request.key, facts)[0]
                if isinstance(request, Steady):
                    return self._steady(request, facts)
                return self._walk(request, facts)
            finally:
                if self._gpu is not None:
                    self._torch.cuda.empty_cache()

    def _first(self, key: Key, facts: Mapping[str, str]) -> tuple[Chosen, Convolution]:
        self._throw_away(key)
        made = key.make(self._torch)
        before = self._allocated()
        begin = perf_counter()
        results = made.run()
        self._synchronize()
        seconds = perf_counter() - begin
        kept = sum(result.numel() * result.element_size() for result in results)
        quantities = {}
        if self._gpu is not None:
            peak = self._torch.cuda.max_memory_allocated()
            quantities = {"workspace_nbytes": max(0.0, float(peak - before - kept))}
        return Chosen(seconds, quantities, facts), made

    def _steady(self, request: Steady, facts: Mapping[str, str]) -> tuple[Chosen, Series]:
        chosen, made = self._first(request.key, facts)
        error, checksum = made.check()
        self._allocated()
        timer = Host(1, drain=True) if self._gpu is None else Cold(self._gpu)
        series = self._measure(made.run, timer, request.policy, Work(made.flop))
        quantities = {"relative_error": error}
        if self._gpu is not None:
            quantities["peak_nbytes"] = float(self._torch.cuda.max_memory_allocated())
        return chosen, replace(series, quantities=quantities, facts={**facts, "checksum": checksum})

    def _walk(self, request: Walk, facts: Mapping[str, str]) -> tuple[Chosen, Series]:
        self._throw_away(request.key)
        batches = [key.make(self._torch) for key in request.keys]

        def walk() -> None:
            for batch in batches:
                batch.run()

        self._synchronize()
        begin = perf_counter()
        walk()
        self._synchronize()
        first = Chosen(perf_counter() - begin, {}, facts)
        timer = Host(1, self._synchronize, drain=True)
        return first, replace(self._measure(walk, timer, request.policy, Work()), facts=facts)

    def _throw_away(self, key: Key) -> None:
        if not self._is_up:
            replace(key, shape=_THROWAWAY).make(self._torch).run()
            self._is_up = True

    def _measure(self, fn: Any, timer: Timer, policy: Policy, work: Work) -> Series:
        return measure(fn, timer, policy, None if self._gpu is None else self._gpu.telemetry, work)

    def _synchronize(self) -> None:
        if self._gpu is not None:
            self._gpu.synchronize()

    def _allocated(self) -> int:
        """Bytes in use, once all work is done; the peak counts from here."""
        self._synchronize()
        if self._gpu is None:
            return 0
        self._torch.cuda.reset_peak_memory_stats()
        return int(self._torch.cuda.memory_allocated())
