"""What a process pays once: making its context, and the first use of its libraries, lazy and eager.

Every number is of a fresh child process, so each is a series of one; runs are its replicates. Lazy and
eager are what CUDA_MODULE_LOADING asks for, and what the driver then says it does. The files are in the
page cache. Metrics: `init`, loading a library and making its handle; `first`, the first time itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bench_lib.device.gpu import Gpu
    from bench_lib.module_loading.children import Children, Took
    from bench_lib.stacking.stacks import StackEntry

FAMILY = "module_loading"
MARGIN = 0.10
LOADINGS = ["lazy", "eager"]


@pytest.fixture(scope="module")
def children(gpu: Gpu, stack: StackEntry) -> Children:
    """Fresh processes on the GPU that is measured."""
    from bench_lib.module_loading.children import Children

    return Children(stack, gpu.context.uuid)


def record(bench: Any, took: Took, step: str) -> None:
    """Record one step of a child: its seconds, the memory it took, its facts."""
    from bench_lib.model import Series, Timing

    found = took.steps[step]
    bench.record(Series((found.seconds,), timing=Timing.HOST, facts=took.facts))
    if found.nbytes is not None:
        bench.quantity("taken_nbytes", found.nbytes)


@pytest.mark.core
@pytest.mark.parametrize("metric", ["first"])
@pytest.mark.parametrize("loading", LOADINGS)
@pytest.mark.parametrize("api", ["cudart", "driver"])
def bench_context(bench, request, children: Children, api: str, loading: str, metric: str) -> None:
    """A context from nothing, through the stack's libcudart or through the driver alone."""
    cudart = request.getfixturevalue("runtime").path if api == "cudart" else None
    record(bench, children.context(loading, cudart), metric)


@pytest.mark.core(library="cublas")
@pytest.mark.parametrize("metric", ["init", "first"])
@pytest.mark.parametrize("loading", LOADINGS)
@pytest.mark.parametrize("library", ["cublas", "cudnn"])
def bench_library(bench, children: Children, library: str, loading: str, metric: str) -> None:
    """A library by its path, in a process that has a context: its handle, and its first product."""
    record(bench, children.library(library, loading), metric)


@pytest.mark.budget(300)
@pytest.mark.parametrize("metric", ["first"])
@pytest.mark.parametrize("loading", LOADINGS)
@pytest.mark.parametrize("work", ["import", "cuda_init", "matmul", "convolution"])
def bench_torch(bench, children: Children, work: str, loading: str, metric: str) -> None:
    """Torch's import, its start of CUDA, its first product and then its first convolution, in one child."""
    record(bench, children.torch(loading), work)
