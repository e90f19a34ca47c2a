"""Canaries: a few cases that no software upgrade should move. If they move, the machine changed.

All of them go through libcuda alone. They are compared first and stay out of the counts.
"""

from __future__ import annotations

from ctypes import c_uint64
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_lib.device.gpu import Gpu
    from bench_lib.device.kernels import Cubin

FAMILY = "canary"
MARGIN = 0.02
MIB = 1 << 20
SPIN_CYCLES = 1_000_000  # half a millisecond at 2 GHz: far above the resolution of events
CPU_ITERATIONS = 1_000_000

pytestmark = pytest.mark.core


def bench_sm_spin(bench, gpu: Gpu, cubin: Cubin) -> None:
    """One thread counts SM cycles: the SM clock, and nothing else."""
    context = gpu.context
    spin = context.function(context.load(cubin.data), "spin")
    cycles = [c_uint64(SPIN_CYCLES)]
    bench(lambda: context.launch(spin, (1, 1, 1), (1, 1, 1), cycles, gpu.stream), timing="batch")


def bench_device_copy(bench, gpu: Gpu, device_buffer: Callable[[int], int]) -> None:
    """A copy inside the GPU's memory, several times the L2."""
    nbytes = 256 * MIB
    source, target = device_buffer(nbytes), device_buffer(nbytes)
    bench(
        lambda: gpu.context.copy_async(target, source, nbytes, gpu.stream),
        timing="batch",
        nbytes=2 * nbytes,
    )


def bench_pinned_copy(
    bench, gpu: Gpu, device_buffer: Callable[[int], int], pinned_buffer: Callable[[int], int]
) -> None:
    """A copy from pinned host memory to the GPU: the link."""
    nbytes = 64 * MIB
    source, target = pinned_buffer(nbytes), device_buffer(nbytes)
    bench(
        lambda: gpu.context.copy_async(target, source, nbytes, gpu.stream),
        timing="batch",
        nbytes=nbytes,
    )


def bench_cpu_loop(bench) -> None:
    """A fixed dependent chain of integer operations on one core: the CPU's clock."""
    from bench_lib.device import native

    bench.native(lambda: native.spin_cpu(CPU_ITERATIONS), calls=1)
