"""Collectives on a real GPU: one rank is enough for the same code; two NCCLs by path where they are at hand.

NCCL_LIBRARIES names more of them, NAME=PATH separated by blanks; the machine's own beside torch's is found.
"""

import os
import shutil

import pytest

from bench_lib.collectives.asked import OPS, Collective, Loaded
from bench_lib.collectives.choices import Choices
from bench_lib.collectives.ladder import in_turns
from bench_lib.collectives.sweep import Group, compiled
from bench_lib.device.c_library import known_to_ldconfig
from bench_lib.errors import Unavailable
from bench_lib.model import QUICK_POLICY, Timing
from bench_lib.nccl import found
from bench_lib.ranks.world import World
from bench_lib.stacking.stacks import HERE

pytestmark = pytest.mark.gpu

SECONDS = 120.0
SIZES = [8, 64 << 10, 64 << 20]


@pytest.fixture(scope="module")
def world():
    made = World()  # a rank on every GPU
    yield made
    made.close()


@pytest.fixture(scope="module")
def library():
    try:
        return Loaded("here", found.of_stack(HERE))
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def by_torch(world):
    pytest.importorskip("torch")
    group = Group(world, "cuda", "nccl", largest_nbytes=max(SIZES))
    yield group
    group.ranks.close()


@pytest.fixture(scope="module")
def by_path(world, library):
    group = Group(world, "cuda", libraries=[library], largest_nbytes=max(SIZES))
    yield group
    group.ranks.close()


def asked(group, op="all_reduce", nbytes=8, dtype="fp32", place="in", launch="call"):
    return Collective(op, nbytes, dtype, group.connected().size, place, launch)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("op", OPS)
def test_torch_over_nccl_is_right_and_timed(by_torch, op, dtype):
    for nbytes in SIZES:
        series = by_torch.series(asked(by_torch, op, nbytes, dtype), QUICK_POLICY, None, SECONDS)
        assert series.timing is Timing.HOST
        assert 0 < min(series.seconds) < 1
    assert series.facts["nccl.version"]
    assert series.facts["nccl.header"]


@pytest.mark.parametrize("launch", ["call", "graph"])
@pytest.mark.parametrize("place", ["in", "out"])
@pytest.mark.parametrize("op", OPS)
def test_nccl_by_path_is_right_and_timed(by_path, op, place, launch):
    for dtype in ("fp32", "bf16"):
        for nbytes in SIZES:
            wanted = asked(by_path, op, nbytes, dtype, place, launch)
            series = by_path.series(wanted, QUICK_POLICY, None, SECONDS)
            assert series.timing is Timing.NATIVE
            assert 0 < min(series.seconds) < 1
    assert series.facts["nccl.path"] == str(found.of_stack(HERE))


def test_torch_and_the_path_load_the_same_nccl(by_torch, by_path):
    assert by_torch.start().facts["nccl.sha256"] == by_path.start().facts["nccl.sha256"]


def test_starting_takes_time_and_large_messages_take_longer(by_path):
    start = by_path.start()
    assert start.init_seconds > 1e-3
    assert start.first_seconds > 1e-6
    small, large = (
        by_path.series(asked(by_path, nbytes=nbytes, place="out"), QUICK_POLICY, None, SECONDS)
        for nbytes in (8, max(SIZES))
    )
    assert min(large.seconds) > 2 * min(small.seconds)


def test_a_replay_is_no_slower_than_calls_one_by_one(by_path):
    """Of 8 bytes the host's submission is most; a graph submits once for all."""
    call, graph = (
        by_path.series(asked(by_path, launch=launch, place="out"), QUICK_POLICY, None, SECONDS)
        for launch in ("call", "graph")
    )
    assert min(graph.seconds) < 1.2 * min(call.seconds)


@pytest.fixture(scope="module")
def given(library):
    """Other builds of NCCL at hand: those that are named, and that of the machine's own packages."""
    named = [Loaded(*one) for one in found.named(os.environ.get("NCCL_LIBRARIES", "").split()).items()]
    of_machine = [path.resolve() for path in known_to_ldconfig(r"libnccl\.so\.\d\S*")]
    others = [path for path in dict.fromkeys(of_machine) if not path.samefile(library.path)]
    return [*named, *(Loaded(f"machine-{n}", path) for n, path in enumerate(others))]


def test_two_versions_by_path_in_turns(world, library, given):
    """A smoke test: on one GPU a collective has no bandwidth to speak of."""
    if not given:
        pytest.skip("one NCCL is at hand; name another with NCCL_LIBRARIES=NAME=PATH")
    group = Group(world, "cuda", libraries=[library, given[0]], largest_nbytes=64 << 10)
    try:
        for launch in ("call", "graph"):
            what = asked(group, nbytes=64 << 10, launch=launch, place="out")
            series = in_turns(group, [library, given[0]], what, 50, 1)
            versions = {one.facts["nccl.version"] for one in series.values()}
            assert len({one.facts["nccl.path"] for one in series.values()}) == 2
            assert all(min(one.seconds) > 0 for one in series.values())
            print(f"{launch}: {versions}")
    finally:
        group.ranks.close()


def test_two_nccls_by_path_in_turns(world, library, given, tmp_path):
    copy = tmp_path / "null-libnccl.so.2"
    shutil.copyfile(library.path, copy)
    libraries = [library, *given, Loaded("here#2", copy)]
    for one in libraries[:-1]:
        assert compiled(world, one).init_seconds > 0
    group = Group(world, "cuda", libraries=libraries, largest_nbytes=64 << 10)
    try:
        for launch in ("call", "graph"):
            series = in_turns(
                group, libraries, asked(group, nbytes=64 << 10, launch=launch, place="out"), 50, 1
            )
            assert len({one.turns for one in series.values()}) == 1
            here, null = (sorted(series[name].seconds)[25] for name in ("here", "here#2"))
            assert 0.8 < null / here < 1.25
        assert len({one.facts["nccl.path"] for one in series.values()}) == len(libraries)
    finally:
        group.ranks.close()


def test_what_nccl_chose_is_told_where_there_are_several_ranks(world, library, by_path):
    choices = Choices(world, library)
    facts = choices.facts(asked(by_path, nbytes=1 << 20))
    choices.close()
    assert not facts["nccl.algorithm"].startswith("unknown")


def test_ranks_are_distinct_gpus(by_path):
    uuids = [fact.uuid for fact in by_path.connected().facts]
    assert all(uuid.startswith("GPU-") for uuid in uuids)
    assert len(set(uuids)) == len(uuids)
    several = by_path.connected().size > 1
    assert by_path.connected().interconnect in (("nvlink", "pcie", "unknown") if several else ("none",))
