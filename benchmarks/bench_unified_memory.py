"""What it costs to move managed memory: by page faults, by prefetch, under advice, beside plain copies.

All of `migrate` is host time from the call until the bytes are there: prefetch and pageable copies
work inside the call, so their stream cannot be held. Every repetition begins with all pages on one
side, which is checked. At most 4 GiB of managed memory and never more than half of what the GPU has
free: nothing here oversubscribes.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench_lib.device.cudart import Runtime
    from bench_lib.device.gpu import Gpu
    from bench_lib.memory.managed import Managed
    from bench_lib.memory.migration import MemoryKernels
    from bench_lib.memory.moves import Blocks
    from bench_lib.model import Policy, Series

FAMILY = "unified_memory"
MARGIN = 0.05
MIB = 1 << 20
QUICK_SIZES = [64 * MIB, 256 * MIB]
SIZES = [2 * MIB, 16 * MIB, *QUICK_SIZES, 1024 * MIB]
FULL_SIZES = [MIB << power for power in range(1, 11)]
USUAL = 256 * MIB  # where one size stands for all
SWAP_TURNS, QUICK_SWAP_TURNS = 6, 4
REACH_STEP = 64 << 10  # between two addresses of a chase: few enough lines for the L2, all the pages
ALLOC_PAIRS = 10

Move = tuple[str, str, str, str, str, int]


def moves(sizes: list[int], usual: list[int]) -> Iterator[Move]:
    """direction, way, order, advise, access, nbytes: every plain way by size, the rest at `usual`."""
    for nbytes in sizes:
        for direction in ("to_gpu", "to_cpu"):
            for way in ("faults", "prefetch", "pinned", "pageable"):
                yield direction, way, "sequential", "none", "write", nbytes
    for nbytes in usual:
        for order in ("strided", "random"):
            yield "to_gpu", "faults", order, "none", "write", nbytes
        yield "to_cpu", "faults", "random", "none", "write", nbytes
        for direction in ("to_gpu", "to_cpu"):
            yield direction, "second_touch", "sequential", "none", "write", nbytes
        for advise in ("preferred_location", "accessed_by"):
            yield "to_gpu", "faults", "sequential", advise, "write", nbytes
        for advise in ("none", "read_mostly"):  # a write would end what read_mostly is for
            yield "to_gpu", "faults", "sequential", advise, "read", nbytes


def quick_moves() -> Iterator[Move]:
    """What --quick keeps."""
    for nbytes in QUICK_SIZES:
        for way in ("faults", "prefetch", "pinned"):
            yield "to_gpu", way, "sequential", "none", "write", nbytes
        yield "to_cpu", "faults", "sequential", "none", "write", nbytes


def planned() -> Iterator[Any]:
    """All moves as parameters: core ones for --quick too, the largest set with --full only."""
    default, core = set(moves(SIZES, [USUAL])), set(quick_moves())
    for move in moves(FULL_SIZES, FULL_SIZES):
        marks = [pytest.mark.core] if move in core else [] if move in default else [pytest.mark.full]
        yield pytest.param(*move, marks=marks)


def shorter(policy: Policy) -> Policy:
    """The run's policy for samples of up to half a second: fewer, and a bounded warm-up."""
    return replace(
        policy,
        samples=min(policy.samples, 25),
        budget_seconds=0.4,
        min_samples=3,
        warmup_seconds=0.02,
        max_warmup_seconds=0.2,
    )


@pytest.fixture(scope="module")
def memory_kernels(gpu: Gpu, campaign_folder: Path) -> Iterator[MemoryKernels]:
    """The kernels of this family: one cubin a campaign."""
    from bench_lib.device import kernels
    from bench_lib.memory import memory_kernels
    from bench_lib.memory.migration import MemoryKernels

    made = MemoryKernels(gpu, kernels.cubin(gpu.context, campaign_folder, memory_kernels.PTX))
    yield made
    made.close()


@pytest.fixture(scope="module")
def attributes(gpu: Gpu) -> dict[str, int]:
    """What the device says of managed memory."""
    from bench_lib.memory import memory_mode

    return memory_mode.attributes(gpu.context)


@pytest.fixture
def mode(bench, attributes: dict[str, int]) -> str:
    """How this machine moves memory: part of the case, as its times compare with no other mode's."""
    from bench_lib.memory import memory_mode

    for name, text in memory_mode.facts(attributes).items():
        bench.fact(name, text)
    found = memory_mode.mode(attributes)
    bench.parameter("mode", found)
    return found


@pytest.fixture(scope="module")
def managed(runtime: Runtime, gpu: Gpu) -> Managed:
    """Managed memory through this stack's libcudart."""
    from bench_lib.memory.managed import Managed

    return Managed(runtime, gpu.context.ordinal)


@pytest.fixture(scope="module")
def moving(attributes: dict[str, int]) -> None:
    """Skips what needs managed memory to move by faults and prefetch, where it does not."""
    from bench_lib.memory import memory_mode

    memory_mode.need_faults(attributes)


@pytest.fixture(scope="module")
def blocks(moving, managed: Managed, memory_kernels: MemoryKernels) -> Iterator[Blocks]:
    """Blocks of managed memory by size."""
    from bench_lib.memory.moves import Blocks

    made = Blocks(managed, memory_kernels)
    yield made
    made.clear()


@pytest.mark.parametrize(("direction", "way", "order", "advise", "access", "nbytes"), list(planned()))
def bench_migrate(bench, request, mode, direction, way, order, advise, access, nbytes) -> None:
    """Moving that many bytes; `pinned` and `pageable` are the copies of the same bytes."""
    if way in ("pinned", "pageable"):
        measure_copy(bench, request, direction, way, nbytes)
        return
    from bench_lib.memory.moves import Moves

    blocks, managed = request.getfixturevalue("blocks"), request.getfixturevalue("managed")
    block = blocks.get(nbytes)
    moves = Moves(block, managed, request.getfixturevalue("memory_kernels"), mode)
    bench.fact("prefetch", managed.form.prefetch)
    bench.fact("residency", "by speed" if block.present() is None else "present bits")
    with moves.advised(advise):
        measure_move(bench, moves.by(direction, way, order, access, advise))


def measure_move(bench: Any, move: Any) -> None:
    """Measure one move of a block, after its check, which makes it once from where it begins."""
    move.check()
    bench(
        move.act,
        timing="host",
        nbytes=move.nbytes,
        before=move.before,
        policy=shorter(bench.policy),
    )


def measure_copy(bench: Any, request: Any, direction: str, way: str, nbytes: int) -> None:
    """Measure a plain copy of as many bytes."""
    from bench_lib.memory.moves import host_memory

    gpu: Gpu = request.getfixturevalue("gpu")
    device = request.getfixturevalue("device_buffer")(nbytes)
    with host_memory(gpu.context, way, nbytes) as host:
        source, target = (host, device) if direction == "to_gpu" else (device, host)
        bench(
            lambda: gpu.context.copy_async(target, source, nbytes, gpu.stream),
            timing="host",
            nbytes=nbytes,
            synchronize=gpu.synchronize,
            policy=shorter(bench.policy),
        )


@pytest.mark.parametrize("way", ["faults", "prefetch"])
@pytest.mark.parametrize("nbytes", [USUAL])
def bench_migrate_cupy(bench, cupy, mode, moving, managed, memory_kernels, way: str, nbytes: int) -> None:
    """The same to the GPU with memory that CuPy allocated and prefetches: a cross-check by another road."""
    from bench_lib.memory.migration import Block
    from bench_lib.memory.moves import Moves

    managed.check_room(nbytes)
    memory = cupy.cuda.malloc_managed(nbytes)
    moves = Moves(Block(memory.ptr, nbytes, memory_kernels), managed, memory_kernels, mode)
    move = moves.by("to_gpu", way, "sequential", "write")
    if way == "prefetch":
        gpu = memory_kernels.gpu

        def prefetch() -> None:
            memory.mem.prefetch(cupy.cuda.get_current_stream())
            gpu.synchronize()

        move = move._replace(act=prefetch)
    measure_move(bench, move)


@pytest.mark.parametrize("metric", ["fault"])
@pytest.mark.parametrize("order", ["sequential", "random"])
def bench_fault(bench, mode, blocks: Blocks, managed, memory_kernels, order: str, metric: str) -> None:
    """One fault: what a hop more costs in a dependent chain with one word in each 2 MiB block."""
    from bench_lib.memory.chains import FaultChain
    from bench_lib.memory.moves import Moves

    block = blocks.get(USUAL)
    chain = FaultChain(block, memory_kernels, order)
    short, long = chain.slots // 8, chain.slots
    home = Moves(block, managed, memory_kernels, mode).home

    def from_home(hops: int) -> float:
        home()
        return chain.follow(hops)

    def slope() -> float:
        """Medians, as one disturbed chase would turn a slope around."""
        seconds = [median(from_home(hops) for _ in range(3)) for hops in (short, long)]
        return (seconds[1] - seconds[0]) / (long - short)

    bench.native(slope, calls=long - short, policy=shorter(bench.policy))


@pytest.fixture(scope="module")
def swapped(moving, managed, memory_kernels, bench_policy, order_seed) -> dict[tuple[str, str], Series]:
    """Steps of every way, measured in turns: (way, metric) -> series."""
    from bench_lib.memory import param_swap

    turns = QUICK_SWAP_TURNS if bench_policy.name == "quick" else SWAP_TURNS
    return param_swap.measure(managed, memory_kernels, turns, order_seed)


@pytest.mark.core(way=["faults", "prefetch"])
@pytest.mark.parametrize("metric", ["step", "exchange"])
@pytest.mark.parametrize("way", ["faults", "prefetch", "pinned"])
def bench_param_swap(bench, mode, swapped, way: str, metric: str) -> None:
    """A step that works on all weights of a small Transformer on the GPU, then on the CPU."""
    bench.record(swapped[way, metric])


@pytest.mark.full(nbytes=[32 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB])
@pytest.mark.parametrize("metric", ["hop"])
@pytest.mark.parametrize("nbytes", [MIB << power for power in range(4, 13)])
@pytest.mark.parametrize("memory", ["device", "managed"])
def bench_tlb_reach(
    bench, request, gpu: Gpu, mode, managed: Managed, memory_kernels, memory: str, nbytes: int, metric: str
) -> None:
    """One hop of a pointer chase over that many bytes, an address each 64 KiB, in random order."""
    from bench_lib.memory import chains

    if memory == "managed":
        request.getfixturevalue("blocks").clear()  # 4 GiB in all
        address, free = managed.allocate(nbytes), managed.free
        chains.on_gpu(managed, memory_kernels, address, nbytes)
    else:
        managed.check_free(nbytes)
        address, free = gpu.context.alloc(nbytes), gpu.context.free
    try:
        hops = nbytes // REACH_STEP
        chase = chains.reach(memory_kernels, address, nbytes, REACH_STEP)
        bench.native(chase, calls=hops, policy=shorter(bench.policy))
        bench.quantity("cycles_a_hop", memory_kernels.chased()[0] / hops)
    finally:
        free(address)


@pytest.mark.parametrize("metric", ["alloc", "free"])
@pytest.mark.parametrize("nbytes", [2 * MIB, 64 * MIB, 1024 * MIB])
@pytest.mark.parametrize("api", ["cudaMalloc", "cudaMallocAsync", "cudaMallocManaged"])
def bench_alloc(bench, gpu: Gpu, runtime, mode, managed: Managed, api: str, nbytes: int, metric: str) -> None:
    """Allocating and freeing that many bytes; managed memory gets its pages only when touched."""
    from bench_lib.memory.allocation import Allocator

    managed.check_room(nbytes)
    allocator = Allocator(runtime, api, nbytes, gpu.stream)
    bench.native(lambda: allocator.mean(metric, ALLOC_PAIRS), calls=ALLOC_PAIRS, policy=shorter(bench.policy))
