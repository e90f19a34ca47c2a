"""What torch's CUDA allocator reserves for traces of allocations, and what an allocation costs.

Read it with `--contrast backend=native:expandable_segments`. Each backend has a process of its own; a
trace is held to its own account there, or the case has no time. Metrics: `first` with an empty cache,
`again` with one that has seen the same; `limited` in the least memory that suffices; `soak` over minutes
(`--soak MINUTES`). Times are per allocation, its release included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench_lib.errors import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_lib.alloc_traces.children import Allocators

FAMILY = "allocator"
MARGIN = 0.05

pytestmark = pytest.mark.margin(0.10, metric=["first", "limited"])

MIB = 1 << 20
TRACES = ["transformer", "diffusion", "adversarial"]
CACHING = ["native", "expandable_segments"]  # torch's own; the third is a pool of the driver's
BACKENDS = [*CACHING, "cudaMallocAsync"]


@pytest.fixture(scope="module")
def allocators(request, gpu) -> Iterator[Allocators]:
    """The processes of all backends; they import torch while this one does."""
    from bench_lib.alloc_traces.children import Allocators

    made = Allocators()
    try:
        made.start()
        request.getfixturevalue("torch")
        yield made
    finally:
        made.close()


@pytest.mark.core(trace="transformer")
@pytest.mark.parametrize("metric", ["first", "again"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trace", TRACES)
def bench_replay(bench, allocators: Allocators, trace: str, backend: str, metric: str) -> None:
    """A trace played from its first event to its last."""
    from bench_lib.alloc_traces import replay
    from bench_lib.alloc_traces.made import TRACES

    answer = allocators.ask(
        backend, bench.budget_seconds, replay.replayed, TRACES[trace](), replay.shorter(bench.policy)
    )
    bench.record(answer[metric])


@pytest.mark.full(trace="diffusion")
@pytest.mark.parametrize("metric", ["limited"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trace", TRACES)
def bench_limit(bench, allocators: Allocators, trace: str, backend: str, metric: str) -> None:
    """A trace played in the least memory that suffices: `needed_peaks` says how much that is."""
    from bench_lib.alloc_traces import replay
    from bench_lib.alloc_traces.made import TRACES

    if backend not in CACHING:
        raise NotApplicable("a limit on the driver's pool counts the bytes in use, not those reserved")
    bench.record(allocators.ask(backend, bench.budget_seconds, replay.fitted, TRACES[trace]())[metric])


@pytest.mark.full(nbytes=64 << 10)
@pytest.mark.parametrize("metric", ["first", "again"])
@pytest.mark.parametrize("nbytes", [64 << 10, 2 * MIB, 64 * MIB, 1024 * MIB])
@pytest.mark.parametrize("backend", BACKENDS)
def bench_block(bench, allocators: Allocators, backend: str, nbytes: int, metric: str) -> None:
    """One block: `first` asks the driver for it, `again` finds it in the cache."""
    from bench_lib.alloc_traces import replay

    answer = allocators.ask(
        backend, bench.budget_seconds, replay.single, nbytes, replay.shorter(bench.policy)
    )
    bench.record(answer[metric])


@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize("nbytes", [64 * MIB])
def bench_transfer(bench, allocators: Allocators, nbytes: int, metric: str) -> None:
    """`.to("cuda")` of pageable memory, again and again, with the allocator that torch has by itself."""
    from bench_lib.alloc_traces import replay

    answer = allocators.ask(
        "native", bench.budget_seconds, replay.transferred, nbytes, replay.shorter(bench.policy)
    )
    bench.record(answer[metric])


@pytest.mark.soak
@pytest.mark.parametrize("metric", ["soak"])
@pytest.mark.parametrize("backend", BACKENDS)
def bench_soak(bench, allocators: Allocators, soak_minutes: float, backend: str, metric: str) -> None:
    """All traces in random order for minutes: sample i is what an allocation took in part i of the time."""
    from bench_lib.alloc_traces.soak import SEED, soaked

    bench.parameter("minutes", soak_minutes)
    bench.record(allocators.ask(backend, bench.budget_seconds, soaked, soak_minutes, SEED)[metric])
