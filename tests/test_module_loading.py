"""What fresh processes took for a first time, on the pretended CUDA with pretended libraries."""

import json
import os
from pathlib import Path

import fake_cublas
import fake_cudnn
import pyarrow.parquet as pq
import pytest
from plugin_runs import run_pytest

from bench_lib.device.telemetry import Telemetry
from bench_lib.errors import CaseTimeout, Crashed, CudaGainsError, NotApplicable, WrongResult
from bench_lib.module_loading import children, steps
from bench_lib.module_loading.children import Children
from bench_lib.module_loading.watch import Watch
from bench_lib.stacking.stacks import HERE, StackEntry

ROOT = Path(__file__).parents[1]
UUID = "GPU-fa0a1a2a-3a4a-5a6a-7a8a-9aaabacada00"
NVML = """
from types import SimpleNamespace
class NVMLError(Exception):
    pass
NVML_CLOCK_SM = NVML_CLOCK_MEM = NVML_TEMPERATURE_GPU = 0
free = 1 << 30
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceGetMemoryInfo(handle):
    global free
    free -= 1 << 20
    return SimpleNamespace(free=free)
"""
MIB = 1 << 20


@pytest.fixture
def on_fake(fake_cuda, monkeypatch, tmp_path):
    """Children find the pretended CUDA, an NVML whose memory shrinks by 1 MiB a look, and this suite."""
    (tmp_path / "nvml").mkdir()
    (tmp_path / "nvml" / "pynvml.py").write_text(NVML)
    path = f"{tmp_path / 'nvml'}:{fake_cuda['PYTHONPATH']}:{ROOT}"
    for name, value in {**fake_cuda, "PYTHONPATH": path}.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    return {**fake_cuda, "PYTHONPATH": path}


@pytest.fixture(scope="module")
def site(fake_cuda_built, tmp_path_factory):
    """A folder with cuBLAS and cuDNN as pip lays them out; as the stack `libraries`."""
    folder = tmp_path_factory.mktemp("site")
    fake_cublas.build(folder)
    fake_cudnn.build(folder)
    return StackEntry("libraries", "path", folder=folder, declared={})


def test_the_family_records_every_child_once(on_fake, tmp_path):
    asked = ("benchmarks/bench_module_loading.py", "-k", "context", "--results", tmp_path / "results")
    code, output = run_pytest(*asked, env=on_fake)
    assert code == 0, output
    (path,) = (tmp_path / "results" / "local" / "cases").glob("*.parquet")
    rows = {row["case_id"]: row for row in pq.read_table(path).to_pylist()}
    assert len(rows) == 4
    for case, row in rows.items():
        loading = "eager" if "loading=eager" in case else "lazy"
        assert (row["status"], row["n_samples"]) == ("ok", 1)
        assert dict(row["facts"])["module_loading"] == loading
        assert dict(row["quantities"]) == {"taken_nbytes": MIB}
    assert "cudart.version" in dict(
        rows["module_loading/context[api=cudart,loading=lazy,metric=first]"]["facts"]
    )


def test_a_setting_that_is_not_in_effect_is_no_measurement(on_fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_LOADING", "lazy")
    asked = Children(HERE, UUID)
    with pytest.raises(
        CudaGainsError, match="was set to eager and the driver loads code in the way it calls lazy"
    ):
        asked.context("eager", None)
    assert asked.context("lazy", None).facts == {"module_loading": "lazy"}


@pytest.mark.parametrize("name", ["cublas", "cudnn"])
def test_the_first_use_of_a_library_is_split_and_checked(on_fake, site, name, monkeypatch):
    small = {"rows": 24, "shape": "1x1-64-256-56", "batch": 1}
    real = children._answer
    monkeypatch.setattr(children, "_answer", lambda q, how: real(json.dumps(json.loads(q) | small), how))
    took = Children(site, UUID).library(name, "lazy")
    assert set(took.steps) == {"init", "first"}
    assert all(step.seconds > 0 for step in took.steps.values())
    parts = 2 if name == "cudnn" else 1  # the choice and the call, what lies between does not count
    assert (took.steps["init"].nbytes, took.steps["first"].nbytes) == (MIB, parts * MIB)
    assert took.facts[f"{name}.version"]


def test_a_wrong_product_has_no_time(on_fake, site, monkeypatch):
    monkeypatch.setenv("FAKE_CUBLAS_WRONG", "1")
    real = children._answer
    monkeypatch.setattr(
        children, "_answer", lambda q, how: real(json.dumps(json.loads(q) | {"rows": 24}), how)
    )
    with pytest.raises(WrongResult, match="the matrix product is off by"):
        Children(site, UUID).library("cublas", "lazy")


def test_a_child_that_dies_or_hangs_is_told_apart_and_asked_once(on_fake, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_INIT_ERROR", "abort")
    asked = Children(HERE, UUID)
    for _ in range(2):
        with pytest.raises(Crashed, match="died: it was ended by SIGABRT"):
            asked.context("lazy", None)
    monkeypatch.setenv("FAKE_CUDA_INIT_ERROR", "hang")
    monkeypatch.setattr(children, "CHILD_SECONDS", 1.0)
    monkeypatch.setattr(children, "_END_SECONDS", 0.1)
    with pytest.raises(CaseTimeout, match="did not end within 1 s"):
        asked.context("eager", None)


def test_a_stack_without_them_has_no_such_case(tmp_path):
    cudart = StackEntry("cudart-12.4", "cudart")
    for ask in (
        lambda: Children(cudart, UUID).library("cublas", "lazy"),
        lambda: Children(cudart, UUID).torch("lazy"),
    ):
        with pytest.raises(NotApplicable, match=r"stack cudart-12\.4 holds no"):
            ask()


def test_torch_does_each_first_thing_once_and_is_checked():
    watch = Watch(Telemetry())
    facts = steps.torch({"device": "cpu", "rows": 64, "batch": 1}, watch)
    assert list(watch.steps) == ["import", "cuda_init", "matmul", "convolution"]
    assert {step.nbytes for step in watch.steps.values()} == {None}  # no NVML, so nothing is known
    assert facts["torch.version"]
    with pytest.raises(WrongResult, match="torch's first matmul is off by"):
        steps._check("matmul", *_off_by_a_little())


def _off_by_a_little():
    import torch

    exact = torch.ones(4, 4)
    return exact * 1.01, lambda of: of(exact)
