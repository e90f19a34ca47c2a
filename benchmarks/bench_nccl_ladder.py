"""The NCCL ladder: several libnccls in one group of ranks, their AllReduces timed in turns.

Whatever the machine does in a turn, it does to all of them: `--contrast nccl=2.21.5+cu11:2.21.5+cu12`
compares the same NCCL as it is built for CUDA 11 and for CUDA 12. The null is a second copy of the
baseline's file. One rank is enough to see that it works; it moves nothing between GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.collectives.asked import KIB, MIB, Collective, sizes
from bench_lib.errors import NotApplicable, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench_lib.collectives.asked import Loaded
    from bench_lib.collectives.choices import Choices
    from bench_lib.collectives.sweep import Group, Start
    from bench_lib.model import Series
    from bench_lib.ranks.world import World

FAMILY = "nccl_ladder"
MARGIN = 0.02
pytestmark = [
    pytest.mark.needs_gpu,
    pytest.mark.budget(500),  # of the first case; the driver may have to compile an NCCL
]
BASELINE = "2.21.5+cu11"  # where it is not at hand, the lowest version that is
SIZES = sizes(8, 256 * MIB)
CORE = [8, 64 * KIB, MIB, 64 * MIB]
TURNS, QUICK_TURNS = 100, 20


def at_hand(wheels: Path | None, given: list[str]) -> dict[str, Callable[[], Path]]:
    """The libraries by name, the baseline first: of the cache, of `wheels`, of --nccl, and the machine's."""
    from bench_lib.nccl import found
    from bench_lib.stacking.stacks import HERE

    entries = found.at_hand(wheels)
    known: dict[str, Callable[[], Path]] = {
        name: lambda entry=entry: found.component(entry, wheels) for name, entry in entries.items()
    }
    known |= {name: lambda path=path: path for name, path in found.named(given).items()}
    try:
        here = found.of_stack(HERE)
        known[found.HERE] = lambda: here
    except Unavailable:
        pass
    return {name: known[name] for name in sorted(known, key=lambda name: name != BASELINE)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item a library at hand and the null; one that is skipped without any."""
    from bench_lib.model import NULL_SUFFIX

    option = metafunc.config.getoption
    names = list(at_hand(option("wheels"), option("nccl")))
    null = [names[0] + NULL_SUFFIX] if names and "launch" in metafunc.fixturenames else []
    metafunc.parametrize("nccl", [*names, *null] or ["none"])


@pytest.fixture(scope="module")
def libraries(request: pytest.FixtureRequest, stack, wheels, on_gpu: bool, tmp_path_factory) -> list[Loaded]:
    """All libraries, the null last."""
    import shutil

    from bench_lib.collectives.asked import Loaded
    from bench_lib.model import NULL_SUFFIX

    if stack.kind != "here":
        raise NotApplicable(f"the ladder loads its libraries itself and runs in stack here, not {stack.name}")
    if not on_gpu:
        raise Unavailable("no GPU: NCCL connects GPUs")
    found = at_hand(wheels, request.config.getoption("nccl"))
    if not found:
        raise Unavailable(
            "no NCCL at hand; fetch some with `cuda-gains stacks create nccl-2.21.5-cu11 nccl-2.21.5-cu12`"
        )
    made = [Loaded(name, get()) for name, get in found.items()]
    copy = tmp_path_factory.mktemp("null") / f"null-{made[0].path.name}"
    shutil.copyfile(made[0].path, copy)
    return [*made, Loaded(made[0].name + NULL_SUFFIX, copy)]


@pytest.fixture(scope="module")
def starts(world: World, libraries: list[Loaded]) -> dict[str, Start | Exception]:
    """What each library took in a process alone, in which the driver compiles what it must; or its fault."""
    from bench_lib.collectives.sweep import compiled
    from bench_lib.errors import CudaGainsError

    def start(one: Loaded) -> Start | Exception:
        try:
            return compiled(world, one)
        except (CudaGainsError, MemoryError) as error:
            return error

    return {one.name: start(one) for one in libraries[:-1]}  # the null would find what was compiled


def of(found: dict[str, Any], name: str) -> Any:
    """What was found for a library, the null's being its original's; raises where that is a fault."""
    from bench_lib.model import NULL_SUFFIX
    from bench_lib.running.outcomes import given

    return given(found[name.removesuffix(NULL_SUFFIX)])


@pytest.fixture(scope="module")
def good(libraries: list[Loaded], starts) -> list[Loaded]:
    """The libraries that work alone: one that does not costs the others nothing."""
    from bench_lib.model import NULL_SUFFIX

    bad = {name for name, start in starts.items() if isinstance(start, Exception)}
    return [one for one in libraries if one.name.removesuffix(NULL_SUFFIX) not in bad]


@pytest.fixture(scope="module")
def group(world: World, good: list[Loaded]) -> Iterator[Group]:
    """The ranks, with a communicator of every library."""
    from bench_lib.collectives.sweep import Group

    made = Group(world, "cuda", "", good, max(SIZES))
    yield made
    made.ranks.close()


@pytest.fixture(scope="module")
def choices(world: World, good: list[Loaded]) -> Iterator[dict[str, Choices]]:
    """What each library chooses, by its log; in processes that time nothing."""
    from bench_lib.collectives.choices import Choices
    from bench_lib.model import NULL_SUFFIX

    made = {one.name: Choices(world, one) for one in good if not one.name.endswith(NULL_SUFFIX)}
    yield made
    for one in made.values():
        one.close()


@pytest.fixture(scope="module")
def measured(group: Group, good, bench_policy, order_seed) -> Callable[[int, str], dict[str, Series]]:
    """Size and launch -> the series of every library, measured in the same turns; once, also if it fails."""
    from bench_lib.collectives.ladder import in_turns
    from bench_lib.running.outcomes import Outcomes

    outcomes: Outcomes[dict[str, Series]] = Outcomes()

    def measure(nbytes: int, launch: str) -> dict[str, Series]:
        asked = Collective("all_reduce", nbytes, "fp32", group.connected().size, "in", launch)
        turns = QUICK_TURNS if bench_policy.name == "quick" else TURNS
        return in_turns(group, good, asked, turns, order_seed)

    return lambda nbytes, launch: outcomes.of((nbytes, launch), lambda: measure(nbytes, launch))


@pytest.mark.core(nbytes=CORE)
@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize("dtype", ["fp32"])
@pytest.mark.parametrize("place", ["in"])
@pytest.mark.parametrize("launch", ["call", "graph"])
@pytest.mark.parametrize("nbytes", SIZES)
def bench_all_reduce(
    bench, starts, group, measured, choices, nccl, nbytes, launch, place, dtype, metric
) -> None:
    """The sum over all ranks, in place: back to back, or as one replay of a CUDA graph."""
    from bench_lib.model import NULL_SUFFIX

    of(starts, nccl)
    ranks = group.connected()
    bench.over(ranks.size, ranks.interconnect)
    bench.record(measured(nbytes, launch)[nccl])
    asked = Collective("all_reduce", nbytes, dtype, ranks.size, place, launch)
    bench.facts(choices[nccl.removesuffix(NULL_SUFFIX)].facts(asked))


@pytest.mark.margin(0.10)
@pytest.mark.core
@pytest.mark.parametrize("metric", ["init", "first"])
def bench_alone(bench, starts, nccl, metric) -> None:
    """One process alone: the communicator and the first collective, with what the driver must compile."""
    bench.record(of(starts, nccl).series(metric))
