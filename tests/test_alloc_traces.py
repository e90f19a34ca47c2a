"""Traces of allocations: their account and files, the allocator that is held to it, what is measured."""

import gzip
import os

import fake_allocator
import numpy as np
import pytest
from fake_allocator import MIB, FakeTorch

from bench_lib.alloc_traces import made, record, replay, trace
from bench_lib.alloc_traces.backends import BACKENDS, check_peak, rounded
from bench_lib.alloc_traces.children import Allocators
from bench_lib.alloc_traces.made import TRACES
from bench_lib.alloc_traces.memory import CudaMemory
from bench_lib.alloc_traces.soak import WINDOWS, soaked
from bench_lib.alloc_traces.trace import Event, account, whole
from bench_lib.errors import CudaGainsError, DataError, Unavailable, WrongResult
from bench_lib.model import Policy

POLICY = Policy("test", samples=5, budget_seconds=1.0, min_samples=3, warmup_seconds=0, max_warmup_seconds=0)
# By hand: 3 + 5 = 8 MiB and 100 bytes at the third event, then 5 MiB go and 4 come: 7 MiB and 100 bytes.
SMALL = whole("small", [Event(0, 3 * MIB), Event(1, 100), Event(2, 5 * MIB), Event(2, 0), Event(2, 4 * MIB)])


def memory(backend: str, **faults) -> CudaMemory:
    torch = FakeTorch(backend)
    made = CudaMemory(torch, backend)
    vars(torch.cuda).update(faults)
    return made


def test_the_account_of_a_trace_counted_by_hand():
    assert SMALL.account == (8 * MIB + 100, 3, 4, ())
    assert account(SMALL.events, rounded).peak_nbytes == 8 * MIB + 512
    assert SMALL.events[-3:] == ((2, 0), (1, 0), (0, 0))
    assert account([Event(7, 1), Event(8, 2), Event(7, 0)]).left == (8,)


PEAKS = {"transformer": 2137418560, "diffusion": 936257234, "adversarial": 1073349485}


@pytest.mark.parametrize("name", TRACES)
def test_the_peaks_of_the_traces_by_another_road(name):
    """Signed sizes, summed up: the same peak as the account's, and the same as when it was made."""
    events, sizes, signed = TRACES[name]().events, {}, []
    for block, nbytes in events:
        signed.append(nbytes or -sizes[block])
        sizes[block] = nbytes
    assert TRACES[name]().account.peak_nbytes == np.cumsum(signed).max() == PEAKS[name]
    assert sum(signed) == 0
    assert np.cumsum(signed).min() == 0
    assert 900 < TRACES[name]().account.allocations < 5000


def test_a_trace_is_the_same_in_every_process_and_another_for_another_seed():
    assert made.diffusion().sha256[:8] == "dd4e505f"
    assert made.adversarial().sha256[:8] == "496e3aae"
    assert made.transformer().sha256[:8] == "a902bf7f"
    assert made.diffusion(2).sha256 != made.diffusion(1).sha256
    assert made.adversarial(2).account.peak_nbytes <= 1024 * MIB


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([(0, 5), (0, 5)], "event 2 of a trace allocates block 0 of 5 bytes, which is held already"),
        ([(0, 0)], "event 1 of a trace frees block 0, which is not held"),
        ([(0, -5)], "event 1 of a trace"),
    ],
)
def test_events_that_cannot_be_are_refused(events, said):
    with pytest.raises(DataError, match=said):
        whole("wrong", [Event(*event) for event in events])


def test_a_trace_survives_its_file_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "trace.gz"
    trace.write(path, SMALL)
    assert trace.read(path, "small") == SMALL
    written = path.read_bytes()
    trace.write(path, SMALL)
    assert path.read_bytes() == written
    for damaged in (b"", b"no gzip", written[:-9], gzip.compress(b"1 2 3\n"), gzip.compress(b"one 2\n")):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"trace\.gz is no trace of allocations"):
            trace.read(path, "small")


# --- recording


def test_the_profilers_events_become_blocks():
    told = [
        {"name": "[memory]", "ts": at, "args": {"Device Type": device, "Addr": address, "Bytes": nbytes}}
        for at, device, address, nbytes in [
            (4, 0, 16, -4096),
            (1, 0, 16, 4096),
            (2, 1, 32, 9999),  # of the other device
            (3, 0, 48, -2048),  # from before the profiler
            (5, 0, 16, 1024),  # the same address again
            (6, 0, 64, 100),  # a number on the host
            (7, 0, 64, -100),
        ]
    ]
    found = list(record.blocks([*told, {"name": "aten::add"}], "cpu"))
    assert [event.nbytes for event in found] == [4096, 0, 1024]
    assert found[0].block == found[1].block != found[2].block
    assert [event.nbytes for event in record.blocks(told, "cuda")] == [9999]


@pytest.mark.filterwarnings("default")
def test_a_training_is_recorded_for_real():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several that wait by spinning are slow on a busy machine
    network = record.Network(layers=1, width=32, heads=2, vocabulary=100, batch=2, steps=2, longest=128)
    assert len(set(record.lengths(network))) == 2
    found = record.record(network)
    torch.set_num_threads(threads)
    words = 100 * 32 + (12 * 32 * 32 + 13 * 32) + 33 * 100  # weights: embedding, one layer, head
    states = 4 * 4 * words  # weight, gradient and AdamW's two
    assert states < found.account.peak_nbytes < 20 * states
    logits = [4 * 2 * length * 100 for length in record.lengths(network)]
    assert set(logits) <= {event.nbytes for event in found.events}


# --- the control


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_peak_is_what_was_counted_by_hand(backend):
    found = replay.replayed(memory(backend), SMALL, POLICY)
    assert set(found) == {"first", "again"}
    for series in found.values():
        assert 8 * MIB + 512 <= series.quantities["peak_nbytes"] <= 9 * MIB + 512
        assert series.calls == 4
        assert all(seconds > 0 for seconds in series.seconds)
        assert series.facts["allocator.backend"] == backend
        assert series.facts["trace.sha256"] == SMALL.sha256
    assert len(found["first"].seconds) == len(found["again"].seconds) == 5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lie_nbytes", [-MIB, 8 * MIB])
def test_an_allocator_whose_peak_is_another_gives_no_time(backend, lie_nbytes):
    with pytest.raises(WrongResult, match="counted by hand and rounded"):
        replay.replayed(memory(backend, lie_nbytes=lie_nbytes), SMALL, POLICY)


def test_an_allocator_that_saw_something_else_gives_no_time():
    with pytest.raises(WrongResult, match="did not see this trace alone"):
        check_peak("native", SMALL, 8 * MIB + 512, 8 * MIB + 101)
    check_peak("native", SMALL, 8 * MIB + 512, 8 * MIB + 100)
    held = memory("native")
    block = held.block(5)
    with pytest.raises(CudaGainsError, match="512 bytes are allocated before the trace; expected none"):
        replay.replayed(held, SMALL, POLICY)
    del block


@pytest.mark.parametrize(
    ("asked", "in_effect", "error", "said"),
    [
        (
            "native",
            "cudaMallocAsync",
            CudaGainsError,
            "native was asked for, torch works with cudaMallocAsync",
        ),
        ("cudaMallocAsync", "native", CudaGainsError, "torch works with native"),
        ("expandable_segments", "native", Unavailable, "its segments are not expandable"),
        ("native", "expandable_segments", Unavailable, "its segments are expandable"),
    ],
)
def test_a_backend_that_is_not_in_effect_is_not_measured(asked, in_effect, error, said):
    with pytest.raises(error, match=said):
        CudaMemory(FakeTorch(asked, in_effect), asked)


def test_a_torch_without_a_gpu_is_a_skip(monkeypatch):
    torch = FakeTorch("native")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Unavailable, match=r"torch 9\.9 sees no GPU"):
        CudaMemory(torch, "native")


# --- what is measured


def test_the_adversary_fragments_the_heap_and_not_pages():
    trace = TRACES["adversarial"]()
    heap, pages = (
        replay.replayed(memory(name), trace, POLICY)["again"].quantities
        for name in ("native", "expandable_segments")
    )
    assert heap["fragmentation"] > 0.2 > 0.01 > pages["fragmentation"] > 0
    assert heap["fragmentation"] == 1 - heap["peak_nbytes"] / heap["peak_reserved_nbytes"]
    assert 0 < heap["largest_free_nbytes"] < heap["unused_nbytes"] < heap["peak_reserved_nbytes"]
    assert heap["device_allocs"] == heap["segments"] > 10
    assert heap["retries"] == 0


def test_what_a_pool_does_not_tell_is_left_out():
    quantities = replay.replayed(memory("cudaMallocAsync"), SMALL, POLICY)["again"].quantities
    assert not {"segments", "largest_free_nbytes", "device_allocs"} & set(quantities)
    assert {"unused_nbytes", "fragmentation", "peak_reserved_nbytes"} <= set(quantities)


def test_the_least_memory_is_found_and_one_step_less_does_not_suffice():
    trace, heap = TRACES["adversarial"](), memory("native")
    series = replay.fitted(heap, trace)["limited"]
    needed = series.quantities["needed_peaks"]
    assert 1.05 < needed < 3
    assert series.quantities["retries"] > 0
    assert len(series.seconds) == 3
    peak = trace.account.peak_nbytes
    for peaks, fits in ((needed, True), (needed - 0.02, False)):
        heap.empty()
        with heap.limited(round(peaks * peak)):
            if fits:
                replay.timed(heap.block, trace)
            else:
                with pytest.raises(fake_allocator.OutOfMemoryError):
                    replay.timed(heap.block, trace)
    least = replay.fitted(memory("expandable_segments"), trace)["limited"].quantities["needed_peaks"]
    assert least == 1.02
    with pytest.raises(CudaGainsError, match="does not fit into 4 times its peak"):
        replay.fitted(memory("native", total=peak), trace)


def test_one_block_is_had_from_the_driver_and_then_from_the_cache():
    heap = memory("native")
    found = replay.single(heap, 64 * MIB, POLICY)
    assert found["first"].calls == 1
    assert found["again"].calls == 100
    heap.empty()
    assert heap.told().reserved_nbytes == heap.told().allocated_nbytes == 0


def test_a_transfer_asks_the_driver_once():
    series = replay.transferred(memory("native"), MIB, POLICY)["time"]
    assert series.facts["transfer.asked_driver"] == "1 of 100 calls"
    assert series.facts["allocator.in_effect"] == "native"


# --- soak


class Ticks:
    """A clock that goes on by the same amount each time it is looked at."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_a_soak_that_is_steady_and_one_that_grows():
    steady = soaked(memory("expandable_segments"), 1.0, 3, Ticks(0.25))["soak"]
    assert len(steady.seconds) == WINDOWS
    assert 0.9 < steady.quantities["reserved_growth"] < 1.1
    assert 0.5 < steady.quantities["time_growth"] < 2.0
    assert 0 < steady.quantities["fragmentation"] < 0.5
    assert len(steady.facts["soak.reserved_mib"].split()) == WINDOWS
    growing = soaked(memory("expandable_segments", leak=True, limit=1 << 50), 1.0, 3, Ticks(0.25))["soak"]
    assert growing.quantities["reserved_growth"] > 2
    again = soaked(memory("expandable_segments"), 1.0, 3, Ticks(0.25))["soak"]
    assert again.facts == steady.facts


# --- processes


def settings(backend):
    """A handler made in the process of a backend; it tells what that process was started with."""
    return lambda request: (request[1], backend, {name: os.environ.get(name) for name in request[2]})


def test_each_backend_is_asked_in_a_process_with_its_own_setting(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:32")
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    allocators = Allocators(settings)
    try:
        allocators.start()
        found = {name: allocators.ask(name, 60.0, print, 1, names) for name in BACKENDS}
        assert allocators.ask("native", 60.0, print, 1, names) is found["native"]
    finally:
        allocators.close()
    wanted = {
        "native": None,
        "expandable_segments": "expandable_segments:True",
        "cudaMallocAsync": "backend:cudaMallocAsync",
    }
    assert found == {name: (1, name, dict.fromkeys(names, wanted[name])) for name in BACKENDS}
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:32"


def test_a_serving_process_leaves_nothing_in_the_cache():
    serve = fake_allocator.worker("native")
    assert set(serve((replay.single, 64 * MIB, POLICY))) == {"first", "again"}
    assert fake_allocator.memory("native").told().reserved_nbytes == 0
