"""Exchanging a model's parameters between GPU and CPU in every step, and what the exchange costs.

A step is a pass of the GPU over all weights (as a backward pass writes gradients), then one of the
CPU (as an optimizer on the host). Each pass runs twice in a turn, the second time on weights that are
already there: what the step takes longer than two such passes is the exchange.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ctypes import c_float
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bench_lib.errors import WrongResult
from bench_lib.memory.migration import Block
from bench_lib.memory.residency import PAGE_NBYTES
from bench_lib.model import Series, Timing, Work

if TYPE_CHECKING:
    from bench_lib.memory.managed import Managed
    from bench_lib.memory.migration import MemoryKernels

WAYS = ("faults", "prefetch", "pinned")
METRICS = ("step", "exchange")
_WORD_NBYTES = 4
# What both passes do to a weight, so that after every step all weights are known exactly.
_FACTOR, _SHIFT = 1.0, 1.0
_PASSES = 4


class Shape(NamedTuple):
    """A Transformer encoder, of which only the weights count."""

    layers: int = 12
    width: int = 768

    def weights(self) -> list[int]:
        """Words of each weight: per layer QKV, output, and the two of a feed-forward four times as wide."""
        square = self.width**2
        return [3 * square, square, 4 * square, 4 * square] * self.layers

    @property
    def nbytes(self) -> int:
        """Of all weights in fp32."""
        return sum(self.weights()) * _WORD_NBYTES


class Times(NamedTuple):
    """Seconds of one turn: the step, and each pass again on weights that are already there."""

    step: float
    gpu_pass: float
    cpu_pass: float


class Way(Protocol):
    """A way to bring weights to the side that works on them."""

    def weights(self) -> Sequence[NDArray[np.float32]]:
        """The weights as the CPU sees them."""
        ...

    def to_gpu(self) -> None:
        """Queue what brings them to the GPU."""
        ...

    def gpu_pass(self) -> None:
        """Queue the GPU's pass."""
        ...

    def to_cpu(self) -> None:
        """Queue what brings them to the CPU."""
        ...

    def check_home(self) -> None:
        """Raise WrongResult unless all are on the CPU."""
        ...


class InManagedMemory:
    """Weights in managed memory; they move by page faults, or by prefetch."""

    def __init__(
        self, managed: Managed, kernels: MemoryKernels, blocks: Sequence[Block], prefetch: bool
    ) -> None:
        self._managed = managed
        self._kernels = kernels
        self._blocks = blocks
        self._prefetch = prefetch

    def weights(self) -> Sequence[NDArray[np.float32]]:
        """One array a weight."""
        return [block.words.view(np.float32) for block in self._blocks]

    def to_gpu(self) -> None:
        """Prefetch each weight, or leave it to the faults."""
        for block in self._blocks if self._prefetch else ():
            self._managed.prefetch_to_gpu(block.address, block.nbytes, self._kernels.gpu.stream)

    def gpu_pass(self) -> None:
        """One kernel a weight."""
        for block in self._blocks:
            self._kernels.gradient(block.address, block.words.size, _FACTOR, _SHIFT)

    def to_cpu(self) -> None:
        """Prefetch each weight back, or leave it to the faults."""
        for block in self._blocks if self._prefetch else ():
            self._managed.prefetch_to_cpu(block.address, block.nbytes, self._kernels.gpu.stream)

    def check_home(self) -> None:
        """Ask for every weight's pages."""
        for block in self._blocks:
            block.check_home()


class ByCopies:
    """Weights in pinned memory with a twin on the device: what managed memory stands in for."""

    def __init__(self, kernels: MemoryKernels, words: Sequence[int], pinned: int, device: int) -> None:
        self._kernels = kernels
        offsets = np.cumsum([0, *words[:-1]]) * _WORD_NBYTES
        self._copies = [(pinned + int(at), device + int(at), n) for at, n in zip(offsets, words, strict=True)]
        self._weights = [
            np.ctypeslib.as_array((c_float * n).from_address(host)) for host, _, n in self._copies
        ]

    def weights(self) -> Sequence[NDArray[np.float32]]:
        """One array a weight."""
        return self._weights

    def to_gpu(self) -> None:
        """Copy each weight."""
        gpu = self._kernels.gpu
        for host, device, words in self._copies:
            gpu.context.copy_async(device, host, words * _WORD_NBYTES, gpu.stream)

    def gpu_pass(self) -> None:
        """One kernel a weight."""
        for _, device, words in self._copies:
            self._kernels.gradient(device, words, _FACTOR, _SHIFT)

    def to_cpu(self) -> None:
        """Copy each weight back."""
        gpu = self._kernels.gpu
        for host, device, words in self._copies:
            gpu.context.copy_async(host, device, words * _WORD_NBYTES, gpu.stream)

    def check_home(self) -> None:
        """Copies leave the CPU's own where they are."""


def measure(
    managed: Managed, kernels: MemoryKernels, turns: int, seed: int = 0, shape: Shape | None = None
) -> dict[tuple[str, str], Series]:
    """Series by (way, metric), measured in turns: each turn takes one step by each way.

    Raises WrongResult when weights are not where or what they should be.
    """
    shape = shape or Shape()
    order = random.Random(seed)
    times: dict[str, list[Times]] = {way: [] for way in WAYS}
    with _ways(managed, kernels, shape) as ways:
        for way in WAYS:
            _turn(ways[way], kernels.gpu.synchronize)  # untimed: loads the kernel, populates pages
        for _ in range(turns):
            for way in order.sample(WAYS, len(WAYS)):
                times[way].append(_turn(ways[way], kernels.gpu.synchronize))
    return {(way, metric): series for way in WAYS for metric, series in _series(times[way], shape).items()}


def _series(times: Sequence[Times], shape: Shape) -> dict[str, Series]:
    """Step and exchange; the passes alone are the median of all turns, as one may have been disturbed."""
    passes = median(taken.gpu_pass for taken in times) + median(taken.cpu_pass for taken in times)
    steps = tuple(taken.step for taken in times)
    exchanges = tuple(step - passes for step in steps)
    if min(exchanges) <= 0:
        raise WrongResult("a step took no longer than its passes over weights already there: nothing moved")
    step = Series(steps, timing=Timing.HOST, turns="param_swap", warmup_calls=1)
    return {"step": step, "exchange": replace(step, seconds=exchanges, work=Work(nbytes=2 * shape.nbytes))}


@contextmanager
def _ways(managed: Managed, kernels: MemoryKernels, shape: Shape) -> Iterator[Mapping[str, Way]]:
    """The ways by name, each with weights of its own kind of memory, freed afterwards."""
    words, context = shape.weights(), kernels.gpu.context
    with ExitStack() as stack:
        blocks = []
        for n in words:
            nbytes = -(-n * _WORD_NBYTES // PAGE_NBYTES) * PAGE_NBYTES
            blocks.append(Block(stack.enter_context(managed.memory(nbytes)), nbytes, kernels))
        pinned, _ = context.host_alloc(shape.nbytes)
        stack.callback(context.host_free, pinned)
        device = context.alloc(shape.nbytes)
        stack.callback(context.free, device)
        stack.callback(kernels.gpu.synchronize)
        yield {
            "faults": InManagedMemory(managed, kernels, blocks, prefetch=False),
            "prefetch": InManagedMemory(managed, kernels, blocks, prefetch=True),
            "pinned": ByCopies(kernels, words, pinned, device),
        }


def _turn(way: Way, synchronize: Callable[[], None]) -> Times:
    """One turn of one way: from zeros, both passes twice, so every weight ends at the number of passes."""
    weights = way.weights()
    for weight in weights:
        weight.fill(0)
    synchronize()
    way.check_home()

    def timed(*acts: Callable[[], None]) -> float:
        start = time.perf_counter()
        for act in acts:
            act()
        return time.perf_counter() - start

    def cpu_pass() -> None:
        for weight in weights:
            np.add(weight, np.float32(_SHIFT), out=weight)

    there = timed(way.to_gpu, way.gpu_pass, synchronize)
    gpu_again = timed(way.gpu_pass, synchronize)
    back = timed(way.to_cpu, synchronize, cpu_pass)
    cpu_again = timed(cpu_pass)
    _check_weights(weights)
    return Times(there + back, gpu_again, cpu_again)


def _check_weights(weights: Sequence[NDArray[np.float32]]) -> None:
    wrong = sum(int(np.count_nonzero(weight != _PASSES)) for weight in weights)
    if wrong:
        raise WrongResult(f"{wrong} weights are not what {_PASSES} passes over all of them make")
