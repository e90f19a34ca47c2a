"""Copies and matrix products of equal length, queued on one stream and on two: what runs side by side.

The products need nothing of the copies: two streams may overlap all of them, so the most is twice as fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from bench_lib.device.telemetry import Reader
from bench_lib.errors import CudaGainsError, WrongResult
from bench_lib.model import Policy, Series, Work
from bench_lib.timing.turns import STEP, Clock, block, in_turns

MIB = 1 << 20
ONE, TWO = "one", "two"
PINNED, PAGEABLE = "pinned", "pageable"
TO_GPU, TO_CPU = "to_gpu", "to_cpu"
CONTROL = (PINNED, TO_GPU)
LEAST_RATIO = 1.5  # of the control, on a GPU with copy engines
ASYNC_ENGINE_COUNT = 40  # CUdevice_attribute of cuda.h
_CALIBRATIONS = 5
_BALANCED = 0.2  # how far the length of copies and products may be apart
_SEED = 11


@dataclass(frozen=True)
class Size:
    """How much is copied, in how many pieces, and the side of the matrices.

    Products of small matrices end sooner than Python launches the next: then the host is timed, not the
    overlap. Seen on an H200: a side of 512 (13 us each) gave 1.2 to 1.55 times, one of 1024 1.86 to 1.90.
    """

    chunks: int = 8
    chunk_nbytes: int = 16 * MIB
    side: int = 1024

    @property
    def nbytes(self) -> int:
        """All that one pass copies."""
        return self.chunks * self.chunk_nbytes


class Passes:
    """One kind of host memory and one direction: a pass on one stream, on two, and each part alone."""

    def __init__(self, torch: Any, memory: str, direction: str, size: Size) -> None:
        self._torch, self.size = torch, size
        self.repeats = 1  # products to one copy
        made = torch.Generator().manual_seed(_SEED)
        words = torch.randint(1 << 62, (size.nbytes // 8,), dtype=torch.int64, generator=made)
        self._given = [words[i :: size.chunks].contiguous() for i in range(size.chunks)]
        host = [one.pin_memory() if memory == PINNED else one.clone() for one in self._given]
        device = [one.to("cuda") for one in self._given]
        self._sources, self._targets = (host, device) if direction == TO_GPU else (device, host)
        self._a, self._b = (torch.randn(size.side, size.side, device="cuda") for _ in range(2))
        self._expected = torch.mm(self._a, self._b)
        self._product = torch.zeros_like(self._expected)
        self._copying, self._computing = torch.cuda.Stream(), torch.cuda.Stream()

    def one(self) -> None:
        """Copies and products in turns, on the stream that is current."""
        for chunk in range(self.size.chunks):
            self._copy(chunk)
            self._compute()

    def two(self) -> None:
        """The same calls in the same order, copies on one stream and products on another."""
        cuda = self._torch.cuda
        main = cuda.current_stream()
        for stream in (self._copying, self._computing):
            stream.wait_stream(main)
        for chunk in range(self.size.chunks):
            with cuda.stream(self._copying):
                self._copy(chunk)
            with cuda.stream(self._computing):
                self._compute()
        for stream in (self._copying, self._computing):
            main.wait_stream(stream)

    def copies(self) -> None:
        """The copies of a pass alone."""
        for chunk in range(self.size.chunks):
            self._copy(chunk)

    def products(self) -> None:
        """The products of a pass alone."""
        for _ in range(self.size.chunks):
            self._compute()

    def clear(self) -> None:
        """Wipe all that a pass writes."""
        for target in (*self._targets, self._product):
            target.zero_()

    def check(self) -> None:
        """Raise WrongResult unless every byte has arrived and the product is that of one stream."""
        wrong = [
            chunk
            for chunk, target in enumerate(self._targets)
            if not self._torch.equal(target.cpu(), self._given[chunk])
        ]
        if wrong:
            raise WrongResult(f"chunks {wrong} of {self.size.chunks} do not hold the bytes that were copied")
        # Not bit by bit: with several streams at work cuBLAS may choose another kernel.
        if not self._torch.allclose(self._product, self._expected, rtol=1e-3, atol=1e-3):
            raise WrongResult("the product beside copies is not that without them")

    def _copy(self, chunk: int) -> None:
        self._targets[chunk].copy_(self._sources[chunk], non_blocking=True)

    def _compute(self) -> None:
        for _ in range(self.repeats):
            self._torch.mm(self._a, self._b, out=self._product)


def calibrate(passes: Passes, clock: Clock) -> dict[str, float]:
    """Choose how many products make up a copy; what each takes alone, and the most that overlap can give."""

    def alone(part: Any) -> float:
        return median(block({STEP: part}, clock, 1).seconds[STEP] for _ in range(_CALIBRATIONS))

    for part in (passes.copies, passes.products):
        part()
    copy = alone(passes.copies)
    passes.repeats = max(1, round(copy / alone(passes.products)))
    compute = alone(passes.products)
    return {
        "copy_alone_seconds": copy,
        "compute_alone_seconds": compute,
        "overlap_bound": (copy + compute) / max(copy, compute),
        "products_a_chunk": float(passes.repeats),
    }


def measured(
    passes: Passes, clock: Clock, policy: Policy, turns: str, seed: int, telemetry: Reader | None = None
) -> Mapping[str, Series]:
    """Series by number of streams, in turns; `overlap_ratio` is time on one stream over time on two.

    Raises WrongResult where bytes or products are wrong after a pass, either way.
    """
    quantities = calibrate(passes, clock)
    for way in (passes.one, passes.two):
        passes.clear()
        clock.synchronize()
        way()
        clock.synchronize()
        passes.check()
    arms = {ONE: {STEP: passes.one}, TWO: {STEP: passes.two}}
    found = in_turns(arms, clock, policy, turns, seed, telemetry=telemetry, steps=1)
    passes.check()
    one, two = (found[name][STEP] for name in (ONE, TWO))
    ratios = [a / b for a, b in zip(one.seconds, two.seconds, strict=True)]
    quantities["overlap_ratio"] = median(ratios)
    apart = abs(quantities["copy_alone_seconds"] / quantities["compute_alone_seconds"] - 1)
    doubts = (f"copies and products differ by {apart:.0%}",) if apart > _BALANCED else ()
    return {
        name: replace(series, quantities=quantities, work=Work(nbytes=passes.size.nbytes), warnings=doubts)
        for name, series in ((ONE, one), (TWO, two))
    }


def check_control(found: Mapping[str, Series], copy_engines: int) -> None:
    """Hold pinned memory to what it must give where copies have an engine of their own; CudaGainsError."""
    quantities = found[TWO].quantities
    ratio, bound = quantities["overlap_ratio"], quantities["overlap_bound"]
    if copy_engines and ratio <= LEAST_RATIO:
        raise CudaGainsError(
            f"copies of pinned memory beside products gave {ratio:.2f} times the pace of one stream, at most "
            f"{bound:.2f} is possible; expected more than {LEAST_RATIO} on a GPU with {copy_engines} copy "
            "engines, so nothing of this family is measured: is a profiler or CUDA_LAUNCH_BLOCKING at work?"
        )
