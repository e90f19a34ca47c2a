"""Collectives over all ranks by message size: torch.distributed's, and NCCL's own called by path.

An iteration is the slowest rank's; `--ranks` says how many there are, and under torchrun it is all of its
world. Each result is checked exactly before it is timed. `init` and `first` are what the communicator and
the first collective take; algorithm and protocol come from NCCL's log, in processes that time nothing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.collectives.asked import GIB, KIB, MIB, Collective, sizes
from bench_lib.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench_lib.collectives.asked import Loaded
    from bench_lib.collectives.choices import Choices
    from bench_lib.collectives.sweep import Group
    from bench_lib.ranks.world import World

FAMILY = "allreduce"
MARGIN = 0.05
pytestmark = [
    pytest.mark.needs_gpu(backend="nccl"),
    pytest.mark.budget(500),  # of the first case; the driver may have to compile an NCCL
]

SIZES, BIG = sizes(8, GIB), [2 * GIB, 4 * GIB]
CORE = [8, 64 * KIB, MIB, 64 * MIB]
GLOO = [8, KIB, 64 * KIB, MIB]
OTHERS = [8, KIB, 32 * KIB, MIB, 32 * MIB, GIB]  # of the other collectives

# api, backend, place, launch. torch's own form is in place.
TORCH, NATIVE, REPLAY = (
    ("torch", "nccl", "in", "call"),
    ("nccl", "nccl", "in", "call"),
    ("nccl", "nccl", "in", "graph"),
)
OUT, OUT_REPLAY = ("nccl", "nccl", "out", "call"), ("nccl", "nccl", "out", "graph")
ON_CPU = ("torch", "gloo", "in", "call")
OF_STACK = "stack"  # the name of a stack's own library
NAMES = "api,backend,place,launch,dtype,nbytes"


def grid() -> list[Any]:
    """Every case of all_reduce, with what makes it one of --quick or of --full."""
    cases = []
    for form in (TORCH, NATIVE, REPLAY, OUT, OUT_REPLAY, ON_CPU):
        for dtype in ("fp32", "bf16"):
            for nbytes in GLOO if form is ON_CPU else SIZES + BIG:
                full = nbytes in BIG or form is OUT_REPLAY or (form is OUT and dtype == "bf16")
                core = nbytes in CORE and dtype == "fp32" and form is not OUT_REPLAY
                marks = [pytest.mark.full] * full + [pytest.mark.core] * core
                cases.append(pytest.param(*form, dtype, nbytes, marks=marks))
    return cases


def other_grid() -> list[Any]:
    """The cases of another collective, all of --full; torch's are out of place where they share."""
    return [
        pytest.param(*form, dtype, nbytes)
        for form in (TORCH, NATIVE, OUT, ON_CPU)
        for dtype in ("fp32", "bf16")
        for nbytes in (GLOO if form is ON_CPU else OTHERS)
    ]


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, stack, wheels) -> Callable[[], Loaded]:
    """The libnccl that is called by path: the first of --nccl, by its name there, else the stack's.

    It is loaded in this process too, so that the run's identity has it; nothing of it is called.
    """
    from bench_lib.collectives.asked import Loaded
    from bench_lib.nccl import found

    @cache
    def get() -> Loaded:
        from bench_lib.nccl.library import Nccl

        given = [Loaded(*one) for one in found.named(request.config.getoption("nccl")).items()]
        one = given[0] if given else Loaded(OF_STACK, found.of_stack(stack, wheels))
        Nccl(one.path)
        return one

    return get


@pytest.fixture(scope="module")
def groups(request: pytest.FixtureRequest, world: World, stack, library) -> Iterator[Callable[..., Group]]:
    """API and backend -> its ranks, brought up when they are first asked for."""
    from bench_lib.collectives.sweep import Group
    from bench_lib.stack_packages import need_distributed

    made: list[Group] = []

    @cache
    def get(api: str, backend: str) -> Group:
        if api == "torch":
            need_distributed(stack, backend)
            device = "cpu" if backend == "gloo" else "cuda"
            made.append(Group(world, device, backend, largest_nbytes=largest(request, api, backend)))
        else:
            made.append(Group(world, "cuda", "", (library(),), largest(request, api, backend)))
        return made[-1]

    yield get
    for group in made:
        group.ranks.close()


def largest(request: pytest.FixtureRequest, api: str, backend: str) -> int:
    """The largest size that the selected cases of an API have; of those that all memories hold."""
    cases = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    of_api = [case.params for case in cases if case and case.params.get("api") == api]
    found = [one["nbytes"] for one in of_api if one["backend"] == backend and "nbytes" in one]
    return max((nbytes for nbytes in found if nbytes not in BIG), default=8)


@pytest.fixture
def group(request: pytest.FixtureRequest, groups, on_gpu: bool, api: str, backend: str) -> Group:
    """The ranks of the case; skipped without a GPU where it needs one."""
    if backend == "nccl" and not on_gpu:
        raise Unavailable("no GPU: NCCL connects GPUs")
    return groups(api, backend)


@pytest.fixture(scope="module")
def choices(world: World, library) -> Iterator[Callable[[], Choices]]:
    """What NCCL chooses, by its log."""
    from bench_lib.collectives.choices import Choices

    made: list[Choices] = []

    def get() -> Choices:
        if not made:
            made.append(Choices(world, library()))
        return made[0]

    yield get
    for one in made:
        one.close()


def over(bench: Any, group: Group) -> None:
    """What the machine adds to the key of a case: its ranks, what connects them, an NCCL given by path."""
    ranks = group.connected()
    bench.over(ranks.size, ranks.interconnect)
    if group.library not in ("", OF_STACK):
        bench.parameter("nccl", group.library)


@pytest.fixture
def measure(
    bench, group: Group, choices, api: str, backend: str, place: str, launch: str, dtype: str, nbytes: int
) -> Callable[[str], None]:
    """Measures a collective in the form of the case, and keeps what NCCL chose for it."""

    def measured(op: str) -> None:
        asked = Collective(op, nbytes, dtype, group.ranks.size, place, launch)
        try:
            over(bench, group)
            bench.record(group.series(asked, bench.policy, bench.telemetry, bench.budget_seconds))
        except MemoryError as error:
            if nbytes not in BIG:
                raise
            raise Unavailable(f"the GPU has not the memory for {nbytes >> 30} GiB: {error}") from None
        if backend == "nccl":
            bench.facts(choices().facts(asked))

    return measured


@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize(NAMES, grid())
def bench_all_reduce(bench, measure, metric) -> None:
    """The sum over all ranks."""
    measure("all_reduce")


@pytest.mark.full
@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize(NAMES, other_grid())
def bench_all_gather(bench, measure, metric) -> None:
    """Every rank gets the parts of all; the size is that of all parts."""
    measure("all_gather")


@pytest.mark.full
@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize(NAMES, other_grid())
def bench_reduce_scatter(bench, measure, metric) -> None:
    """Every rank gets its part of the sum; the size is that of all parts."""
    measure("reduce_scatter")


@pytest.mark.full
@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize(NAMES, other_grid())
def bench_broadcast(bench, measure, metric) -> None:
    """All ranks get what rank 0 has."""
    measure("broadcast")


@pytest.mark.margin(0.10)
@pytest.mark.core(backend="nccl")
@pytest.mark.parametrize("metric", ["init", "first"])
@pytest.mark.parametrize(("api", "backend"), [("torch", "nccl"), ("nccl", "nccl"), ("torch", "gloo")])
def bench_start(bench, group, api: str, backend: str, metric: str) -> None:
    """What bringing the communicator up takes, and after it the first collective, of 8 bytes."""
    start = group.start()
    over(bench, group)
    bench.record(start.series(metric))
