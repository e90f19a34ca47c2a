"""Copies beside kernels on simulated streams, and DataLoaders for real on the CPU."""

import json
import multiprocessing
import os
import shutil
from itertools import islice
from pathlib import Path

import fake_streams
import numpy as np
import pytest
from fake_streams import Machine
from plugin_runs import Runs

from bench_lib.errors import CudaGainsError, WrongResult
from bench_lib.model import Policy
from bench_lib.overlap import copying, loading
from bench_lib.overlap.copying import Passes, Size

POLICY = Policy(
    "test", samples=4, budget_seconds=5.0, min_samples=3, warmup_seconds=0, max_warmup_seconds=0.01
)
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def measured(machine: Machine, memory: str = "pinned", direction: str = "to_gpu"):
    passes = Passes(machine.torch(), memory, direction, Size())
    return copying.measured(passes, machine, POLICY, "turns", 1)


@pytest.mark.parametrize("direction", ["to_gpu", "to_cpu"])
def test_two_streams_overlap_copies_of_pinned_memory(direction):
    found = measured(Machine(), direction=direction)
    assert set(found) == {"one", "two"}
    quantities = found["two"].quantities
    assert quantities["products_a_chunk"] == 11  # 1.1 ms of copy in products of 0.1 ms
    assert quantities["copy_alone_seconds"] == pytest.approx(8 * fake_streams.COPY)
    assert quantities["compute_alone_seconds"] == pytest.approx(8 * 11 * fake_streams.PRODUCT)
    assert quantities["overlap_ratio"] == pytest.approx(2.0)
    assert quantities["overlap_bound"] == pytest.approx(2.0)
    assert found["one"].seconds == pytest.approx([16 * fake_streams.COPY] * 4)
    assert found["one"].turns == found["two"].turns == "turns"
    assert found["two"].work.nbytes == 128 << 20
    assert found["two"].warnings == ()
    copying.check_control(found, copy_engines=2)


def test_a_copy_that_holds_the_host_overlaps_all_but_the_first():
    ratio = measured(Machine(), "pageable")["two"].quantities["overlap_ratio"]
    assert ratio == pytest.approx(16 / 9)


def test_without_overlap_the_control_fails_where_there_are_copy_engines():
    found = measured(Machine(engines=1))
    assert found["two"].quantities["overlap_ratio"] == pytest.approx(1.0)
    with pytest.raises(CudaGainsError, match=r"gave 1\.00 times .*expected more than 1\.5 on a GPU with 3"):
        copying.check_control(found, copy_engines=3)
    copying.check_control(found, copy_engines=0)


def test_copies_and_products_that_cannot_be_balanced_are_told(monkeypatch):
    monkeypatch.setattr(fake_streams, "PRODUCT", 3e-3)
    found = measured(Machine())
    assert found["two"].quantities["overlap_bound"] < 1.5
    assert found["two"].warnings == ("copies and products differ by 63%",)


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_bytes_that_do_not_arrive_have_no_time(memory):
    with pytest.raises(WrongResult, match=r"chunks \[3\] of 8 do not hold the bytes"):
        measured(Machine(lost=(3,)), memory)


def test_a_product_that_is_wrong_beside_copies_has_no_time():
    with pytest.raises(WrongResult, match="the product beside copies is not that without them"):
        measured(Machine(spoilt=True))


# --- loading


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def test_an_image_is_that_of_its_index():
    first, again, other = (loading.Images()[index] for index in (7, 7, 8))
    assert first[0].shape == (3, 96, 96)
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])
    assert first[1:] == (7, os.getpid())
    assert abs(first[0].mean()) < 0.1
    assert 0.9 < first[0].std() < 1.1
    assert list(islice(loading.Endless(), 4095, 4098)) == [4095, 0, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_feeds_a_training_for_real(torch, workers):
    threads = torch.get_num_threads()
    series = loading.fed(torch, "cpu", workers, POLICY)
    assert 3 <= len(series.seconds) <= 4
    assert series.calls == 8
    assert 0 < series.quantities["waiting_share"] < 1
    assert series.quantities["step_alone_seconds"] > 0
    where = "2 worker processes" if workers else "the training process"
    assert series.facts["loader.worked_in"] == where
    assert torch.get_num_threads() == threads
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("Process-")]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("order", r"batch 0 holds the images \[1, 0, 2\] \.\.\., due \[0, 1, 2\]"),
        ("pixels", "the first image of a batch is not the one that its index makes"),
        ("elsewhere", "0 workers were asked for, batches came from processes"),
    ],
)
def test_a_loader_that_does_something_else_has_no_time(torch, monkeypatch, fault, said):
    made = loading.Images.__getitem__
    if fault == "order":
        monkeypatch.setattr(loading.Endless, "__iter__", lambda _: iter([1, 0, *range(2, 4096)]))
    elif fault == "pixels":
        shift = iter(range(10**6))
        monkeypatch.setattr(
            loading.Images,
            "__getitem__",
            lambda self, i: (made(self, i)[0] + next(shift), i, os.getpid()),
        )
    else:
        monkeypatch.setattr(loading.Images, "__getitem__", lambda self, i: (made(self, i)[0], i, 1))
    with pytest.raises(WrongResult, match=said):
        loading.fed(torch, "cpu", 0, POLICY)


def test_the_family_on_the_cpu(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    runs = Runs(pytester, monkeypatch)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shutil.copy(BENCHMARKS / "bench_stream_overlap.py", runs.path)
    done = runs.pytest("--device=cpu", "-k", "to_gpu or 0-batch")
    assert done.ret == 0, done.outlines
    found = {row["case_id"]: row for row in runs.table("cases")}
    loaded = {case: row for case, row in found.items() if "dataloader" in case}
    assert {json.loads(row["params"])["workers"] for row in loaded.values()} == {0}
    assert {row["status"] for row in loaded.values()} == {"ok"}
    copied = [row for case, row in found.items() if "copy_compute" in case]
    assert len(copied) == 4
    assert {row["status"] for row in copied} == {"skipped"}
    assert all("no GPU" in row["reason"] or "--device cpu" in row["reason"] for row in copied)
