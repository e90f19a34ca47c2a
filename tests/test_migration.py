"""Blocks that move on a pretended GPU whose managed memory really leaves the CPU's page table."""

import re
import subprocess

import fake_managed as fake
import numpy as np
import pytest
from assembling import ptxas
from fake_cuda import compiler

from bench_lib.errors import Unavailable
from bench_lib.memory import memory_kernels, memory_mode
from bench_lib.memory.migration import ORDERS, page_order
from bench_lib.memory.param_swap import Shape


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if compiler() is None:
        pytest.skip("no C compiler: the pretended CUDA cannot be built")
    folder = tmp_path_factory.mktemp("fake_managed")
    fake.build_driver(folder)
    return folder


@pytest.fixture
def on_moving_gpu(on_fake_gpu, built, tmp_path):
    """As on_fake_gpu, with managed memory that moves."""
    return lambda function, *arguments, **environment: on_fake_gpu(
        function, *arguments, **{**fake.environment(built, tmp_path), **environment}
    )


# What the functions below begin with, as each runs in a process of its own.
def begin():
    from bench_lib.device import kernels
    from bench_lib.device.cudart import Runtime, loaded_or_default
    from bench_lib.device.gpu import Gpu
    from bench_lib.memory import memory_kernels
    from bench_lib.memory.managed import Managed
    from bench_lib.memory.migration import Block, MemoryKernels

    gpu = Gpu.open()
    managed = Managed(Runtime.load(loaded_or_default()))
    made = MemoryKernels(gpu, kernels.cubin(gpu.context, None, memory_kernels.PTX))
    nbytes = 8 << 20
    return Block(managed.allocate(nbytes), nbytes, made), managed, made


def touches_and_places():
    import sys

    sys.path.insert(0, "tests")
    from test_migration import begin

    block, _, kernels = begin()
    seen = [block.present()]
    block.away()
    seen.append(block.present())
    kernels.gpu.synchronize()
    block.touch_by_cpu(list(range(100)))
    seen.append(block.present())
    block.home()
    seen.append(block.present())
    block.check_home()
    return [block.pages, *seen]


def test_pages_are_where_they_were_touched_last(on_moving_gpu):
    pages, *seen = on_moving_gpu(touches_and_places)
    assert seen == [pages, 0, 100, pages]


def every_move(mode):
    import sys

    sys.path.insert(0, "tests")
    from test_migration import begin

    from bench_lib.memory.moves import ADVICE, Moves

    block, managed, kernels = begin()
    moves = Moves(block, managed, kernels, mode)
    counted = {}
    for direction in ("to_gpu", "to_cpu"):
        for way in ("faults", "prefetch", "second_touch"):
            for order in ("sequential", "strided", "random"):
                move = moves.by(direction, way, order, "write")
                move.check()
                move.before()
                move.act()
                counted[f"{direction} {way}"] = [block.present(), move.nbytes]
    for advise in ADVICE:
        with moves.advised(advise):
            move = moves.by("to_gpu", "faults", "random", "read", advise)
            move.check()
            counted[advise] = [block.present(), move.nbytes]
        moves.by("to_gpu", "faults", "random", "read").check()  # the advice has left nothing behind
    return [block.pages, block.nbytes, counted]


@pytest.mark.parametrize("mode", ["uvm", "ats"])
def test_every_move_does_what_its_name_says(on_moving_gpu, mode):
    pages, nbytes, counted = on_moving_gpu(every_move, mode, FAKE_UVM_FAULT_NS="20000")
    assert counted == {
        "to_gpu faults": [0, nbytes],
        "to_gpu prefetch": [0, nbytes],
        "to_gpu second_touch": [0, None],
        "to_cpu faults": [pages, nbytes],
        "to_cpu prefetch": [pages, nbytes],
        "to_cpu second_touch": [pages, None],
        "preferred_location": [0, nbytes],
        "read_mostly": [pages, nbytes],
        "accessed_by": [pages, None],
    }


def homecoming(advise):
    import sys

    sys.path.insert(0, "tests")
    from test_migration import begin

    from bench_lib.memory.moves import Moves

    block, managed, kernels = begin()
    moves, seen = Moves(block, managed, kernels, "uvm"), []
    with moves.advised(advise):
        move = moves.by("to_gpu", "faults", "sequential", "read", advise)
        move.check()
        check_away, check_home = block.check_away, block.check_home
        block.check_away = lambda: [check_away(), seen.append(["away", block.present()])]
        block.check_home = lambda: [check_home(), seen.append(["home", block.present()])]
        for _ in range(2):
            move.before()
            move.act()
    return [block.pages, seen]


def test_copies_of_both_sides_are_ended_by_the_gpu_before_pages_come_home(on_moving_gpu):
    pages, seen = on_moving_gpu(homecoming, "read_mostly")
    assert seen == [["away", 0], ["home", pages]] * 2
    pages, seen = on_moving_gpu(homecoming, "none")
    assert seen == [["home", pages]] * 2


def planted(what, shown):
    import sys

    sys.path.insert(0, "tests")
    from test_migration import begin

    from bench_lib.errors import WrongResult
    from bench_lib.memory import migration
    from bench_lib.memory.moves import Moves

    block, managed, kernels = begin()
    if not shown:
        migration.present_pages = lambda *_: None
    moves = Moves(block, managed, kernels, "uvm")
    direction = "to_gpu" if what == "home" else "to_cpu"
    move = moves.by(direction, "faults", "sequential", "write")
    for _ in range(3):  # all is well so far
        move.before()
        move.act()
    setattr(block, what, lambda: None)  # the pages stay where they are
    try:
        for _ in range(4):
            move.before()
            move.act()
    except WrongResult as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("what", "side"), [("home", "CPU"), ("away", "GPU")])
def test_a_planted_skipped_homecoming_is_caught(on_moving_gpu, what, side):
    assert re.match(
        rf"2048 of 2048 pages were not on the {side} before a repetition",
        on_moving_gpu(planted, what, True),
    )


@pytest.mark.parametrize(("what", "side"), [("home", "CPU"), ("away", "GPU")])
def test_where_the_kernel_shows_no_pages_the_second_touch_tells(on_moving_gpu, what, side):
    reason = on_moving_gpu(planted, what, False, FAKE_UVM_FAULT_NS="20000")
    assert re.match(rf"a second touch by the {side} took \d+ times the usual", reason)


def moves_that_do_nothing():
    import sys

    sys.path.insert(0, "tests")
    from test_migration import begin

    from bench_lib.errors import WrongResult
    from bench_lib.memory.moves import Moves

    block, managed, kernels = begin()
    moves = Moves(block, managed, kernels, "uvm")
    managed.prefetch_to_gpu = managed.prefetch_to_cpu = lambda *_: None
    reasons = []
    for direction in ("to_gpu", "to_cpu"):
        try:
            moves.by(direction, "prefetch", "sequential", "write").check()
        except WrongResult as error:
            reasons.append(str(error))
    kernels.touch_write = lambda *_: None
    try:
        moves.by("to_gpu", "second_touch", "sequential", "write").check()
    except WrongResult as error:
        reasons.append(str(error))
    return reasons


def test_a_move_that_does_nothing_is_a_wrong_result(on_moving_gpu):
    to_gpu, to_cpu, touch = on_moving_gpu(moves_that_do_nothing)
    assert "2048 of 2048 pages were not on the GPU" in to_gpu
    assert "nothing moved" in to_cpu
    assert "pages were not on the GPU" in touch


def chains():
    import sys

    sys.path.insert(0, "tests")
    from test_migration import begin

    from bench_lib.errors import WrongResult
    from bench_lib.memory.chains import FaultChain, reach

    block, _, kernels = begin()
    found = []
    for order in ("sequential", "random"):
        chain = FaultChain(block, kernels, order)
        block.home()
        block.check_home()
        seconds, moved = {1: [], chain.slots: []}, {}
        for hops, took in 10 * list(seconds.items()):  # of a busy machine, the quietest of each counts
            block.home()
            took.append(chain.follow(hops))
            moved[hops] = block.pages - block.present()
        short, long = map(min, seconds.values())
        found.append([*moved.values(), (long - short) / (chain.slots - 1)])
    device = kernels.gpu.context.alloc(1 << 20)
    follow = reach(kernels, device, 1 << 20, 4096)
    hop = min(follow() for _ in range(10))
    block.words[: 1 << 12] = 0  # the chain is broken
    block.words.view("uint64")[0] = block.address
    try:
        chain.follow(3)
    except WrongResult as error:
        return found, hop, str(error)
    return found, hop, ""


def test_a_chain_faults_once_a_block_and_its_slope_is_the_fault(on_moving_gpu):
    found, hop, broken = on_moving_gpu(chains, FAKE_UVM_FAULT_NS="100000")
    for short, long, slope in found:
        assert (short, long) == (1, 4)
        assert slope == pytest.approx(100.5e-6, rel=0.2)
    assert hop == pytest.approx(500e-9, rel=0.3)
    assert "its chain leads to" in broken


def swaps(prefetch_works):
    import sys

    sys.path.insert(0, "tests")
    from test_migration import begin

    from bench_lib.memory import param_swap

    _, managed, kernels = begin()
    before = managed.nbytes
    if not prefetch_works:
        kernels.gradient = lambda *_: None
    try:
        series = param_swap.measure(managed, kernels, 5, shape=param_swap.Shape(1, 64))
    except param_swap.WrongResult as error:
        return str(error)
    assert managed.nbytes == before
    return [[*key, list(one.seconds), one.turns, one.work.nbytes] for key, one in series.items()]


def test_parameters_are_exchanged_by_every_way_in_the_same_turns(on_moving_gpu):
    series = on_moving_gpu(swaps, True, FAKE_UVM_FAULT_NS="20000")
    nbytes = 2 * Shape(1, 64).nbytes
    assert [(way, metric, work) for way, metric, _, _, work in series] == [
        (way, metric, work)
        for way in ("faults", "prefetch", "pinned")
        for metric, work in (("step", None), ("exchange", nbytes))
    ]
    assert {turns for *_, turns, _ in series} == {"param_swap"}
    by = {(way, metric): np.median(seconds) for way, metric, seconds, *_ in series}
    assert all(by[way, "exchange"] < by[way, "step"] for way in ("faults", "prefetch", "pinned"))
    faults = Shape(1, 64).nbytes / 4096 * 20e-6  # device time of the faults of one step
    assert by["faults", "exchange"] > 0.9 * faults > by["pinned", "exchange"]


def test_weights_that_a_pass_did_not_reach_are_a_wrong_result(on_moving_gpu):
    assert "weights are not what 4 passes over all of them make" in on_moving_gpu(swaps, False)


def test_the_weights_are_those_of_a_small_transformer():
    assert Shape().nbytes == 12 * 12 * 768**2 * 4 == 339_738_624
    assert len(Shape().weights()) == 48


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_touches_every_page_once(order):
    pages = page_order(4 * 512, order)
    assert sorted(pages.tolist()) == list(range(4 * 512))
    assert pages.dtype == np.uint32
    if order == "strided":  # a page of each 2 MiB block, then the next of each
        assert pages[:6].tolist() == [0, 512, 1024, 1536, 1, 513]
    if order == "random":
        assert (np.diff(pages.astype(int)) == 1).mean() < 0.01


@pytest.mark.parametrize("sm", ["sm_75", "sm_90", "sm_100"])
def test_ptxas_takes_the_kernels(sm, tmp_path):
    source = tmp_path / "memory.ptx"
    source.write_text(memory_kernels.PTX)
    command = [ptxas(), f"-arch={sm}", "-v", "-o", tmp_path / "memory.cubin", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert set(re.findall(r"Compiling entry function '(\w+)'", done.stderr)) == set(memory_kernels.NAMES)


class Attributes:
    def __init__(self, **known):
        self._values = {number: known.get(name, 0) for name, number in memory_mode.ATTRIBUTES.items()}

    def attribute(self, number):
        return self._values[number]


@pytest.mark.parametrize(
    ("known", "mode"),
    [
        ({}, "none"),
        ({"concurrent_managed_access": 1}, "uvm"),
        ({"concurrent_managed_access": 1, "pageable_memory_access": 1}, "hmm"),
        (
            {
                "concurrent_managed_access": 1,
                "pageable_memory_access": 1,
                "pageable_memory_access_uses_host_page_tables": 1,
            },
            "ats",
        ),
    ],
)
def test_the_mode_of_a_machine(known, mode, tmp_path):
    found = memory_mode.attributes(Attributes(**known))
    assert memory_mode.mode(found) == mode
    facts = memory_mode.facts(found, tmp_path)
    assert facts["memory.hmm_disabled"] == "unknown"
    assert facts["memory.concurrent_managed_access"] == str(known.get("concurrent_managed_access", 0))
    if mode == "none":
        with pytest.raises(Unavailable, match="concurrentManagedAccess is 0"):
            memory_mode.need_faults(found)
    else:
        memory_mode.need_faults(found)


def test_what_the_kernel_says_of_hmm_and_numa_is_a_fact(tmp_path):
    for path, text in (
        ("sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n"),
        ("sys/devices/system/node/online", "0-1\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    facts = memory_mode.facts(memory_mode.attributes(Attributes()), tmp_path)
    assert (facts["memory.hmm_disabled"], facts["memory.numa_nodes"]) == ("N", "0-1")
