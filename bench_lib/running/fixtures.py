"""Fixtures for benchmark files in any folder: the raw launch APIs, torch and CuPy, all on one stream.

A fixture of the same name in a conftest.py or a benchmark file goes before.
"""

from __future__ import annotations

import os
from ctypes import c_uint8, c_uint32, c_uint64
from typing import TYPE_CHECKING

import pytest

from bench_lib.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from bench_lib.device.cudart import Runtime
    from bench_lib.device.gpu import Gpu
    from bench_lib.device.kernels import Cubin
    from bench_lib.stacking.stacks import StackEntry


FORKED = {"workers", "profiling"}  # fixtures whose processes are forked from a server that knows torch


@pytest.fixture(scope="session")
def cubin(gpu: Gpu, campaign_folder: Path) -> Cubin:
    """The kernels of every raw case: one cubin a campaign."""
    from bench_lib.device import kernels

    return kernels.cubin(gpu.context, campaign_folder)


@pytest.fixture
def device_buffer(gpu: Gpu, cubin: Cubin) -> Iterator[Callable[[int], int]]:
    """Device memory by size in bytes, filled with pseudo-random words, freed after the case."""
    fill = gpu.context.function(gpu.context.load(cubin.data), "fill")
    taken: list[int] = []

    def take(nbytes: int) -> int:
        pointer = gpu.context.alloc(nbytes)
        taken.append(pointer)
        words = nbytes // 4
        arguments = [c_uint64(pointer), c_uint64(words), c_uint32(len(taken))]
        gpu.context.launch(fill, (1024, 1, 1), (256, 1, 1), arguments, gpu.stream)
        gpu.synchronize()
        return pointer

    yield take
    gpu.synchronize()
    for pointer in taken:
        gpu.context.free(pointer)


@pytest.fixture
def pinned_buffer(gpu: Gpu) -> Iterator[Callable[[int], int]]:
    """Pinned host memory by size in bytes, filled with random bytes, freed after the case."""
    import numpy as np

    taken: list[int] = []

    def take(nbytes: int) -> int:
        address, _ = gpu.context.host_alloc(nbytes)
        taken.append(address)
        view = np.ctypeslib.as_array((c_uint8 * nbytes).from_address(address))
        view[:] = np.frombuffer(np.random.default_rng(len(taken)).bytes(nbytes), dtype=np.uint8)
        return address

    yield take
    gpu.synchronize()
    for address in taken:
        gpu.context.host_free(address)


@pytest.fixture(scope="session")
def runtime(stack: StackEntry, wheels: Path | None, gpu: Gpu) -> Runtime:
    """The libcudart of this stack."""
    from bench_lib.device import cudart

    return cudart.Runtime.load(cudart.of_stack(stack, wheels))


@pytest.fixture(scope="session")
def torch(request: pytest.FixtureRequest, stack: StackEntry, on_gpu: bool) -> Iterator[ModuleType]:
    """Torch, with the suite's stream as its current stream on a GPU."""
    from bench_lib.processes import worker
    from bench_lib.stack_packages import package_of
    from bench_lib.stacking import stacks

    forked = any(not FORKED.isdisjoint(getattr(item, "fixturenames", ())) for item in request.session.items)
    if forked and stacks.holds(stack, "torch"):
        worker.begin_server()  # it imports torch beside us
    torch = package_of(stack, "torch")
    with pytest.MonkeyPatch.context() as patch:
        keep_compiled_code(patch, torch)
        yield from on_suites_stream(request, torch, on_gpu)


def keep_compiled_code(patch: pytest.MonkeyPatch, torch: ModuleType) -> None:
    """Keep what is compiled from run to run, apart for each torch, unless somebody said where.

    Said before anything uses torch: Inductor settles on a folder for temporary files with the first
    step of an optimizer, and what a run compiles would lie here or there by the order of its cases.
    """
    from bench_lib.compiling.compile_children import cache_environment, default_caches

    for name, folder in cache_environment(default_caches(torch.__version__)).items():
        if name not in os.environ:
            patch.setenv(name, folder)


def on_suites_stream(request: pytest.FixtureRequest, torch: ModuleType, on_gpu: bool) -> Iterator[ModuleType]:
    """Torch, with the suite's stream as its current one on a GPU."""
    if not on_gpu:
        yield torch
        return
    gpu: Gpu = request.getfixturevalue("gpu")
    if not torch.cuda.is_available():
        raise Unavailable(f"torch {torch.__version__} sees no GPU, though the driver has one")
    with torch.cuda.stream(torch.cuda.ExternalStream(gpu.stream)):
        yield torch


@pytest.fixture(scope="session")
def cupy(stack: StackEntry, gpu: Gpu) -> Iterator[ModuleType]:
    """CuPy, with the suite's stream as its current stream."""
    from bench_lib.stack_packages import package_of

    cupy = package_of(stack, "cupy", "CuPy")
    with cupy.cuda.ExternalStream(gpu.stream):
        yield cupy
