"""The family cudnn_selection in real pytest runs: by path on a pretended CUDA with a pretended cuDNN."""

import shutil
from pathlib import Path

import fake_cudnn
import pytest
from plugin_runs import PLUGINS, Runs

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def cudnn_site(fake_cuda_built) -> Path:
    site = fake_cuda_built / "with-cudnn"
    fake_cudnn.build(site)
    return site


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs(pytester, monkeypatch)
    monkeypatch.setenv("PYTEST_PLUGINS", f"{PLUGINS},tiny_shapes")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    shutil.copy(BENCHMARKS / "bench_cudnn_selection.py", made.path)
    return made


@pytest.fixture
def on_gpu(runs: Runs, fake_cuda: dict[str, str], cudnn_site: Path, monkeypatch) -> Runs:
    """The same folder, on the pretended GPU with the pretended cuDNN first on the path."""
    for name, value in fake_cuda.items():
        if name not in ("PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
            monkeypatch.setenv(name, value)
    path = (str(cudnn_site), str(BENCHMARKS.parent), str(Path(__file__).parent), fake_cuda["PYTHONPATH"])
    monkeypatch.setenv("PYTHONPATH", ":".join(path))
    return runs


def test_without_a_gpu_all_is_skipped_with_the_reason(runs: Runs):
    done = runs.pytest("--device=cpu", "--quick")
    assert done.ret == 0
    assert {row["reason"] for row in runs.table("cases")} == {"no GPU: --device cpu was given"}
    assert set(runs.statuses().values()) == {"skipped"}


def test_cudnn_by_path(on_gpu: Runs):
    done = on_gpu.pytest("--device=cuda", "--quick", "-k", "by_path")
    done.assert_outcomes(passed=18)
    found = {row["case_id"]: row for row in on_gpu.table("cases")}
    name = (
        "cudnn_selection/conv_by_path[batch=64,benchmark=on,layout=nchw,metric=time,precision=fp32,"
        "shape=3x3-64-64-56]"
    )
    row = found[name]
    facts, quantities = dict(row["facts"]), dict(row["quantities"])
    assert facts["algorithm"] == "implicit-gemm/fma"
    assert facts["offered"] == "implicit-gemm/fma 250.0 us; gemm/fma 750.0 us"
    assert (facts["cudnn"], facts["cudnn.cudart"]) == ("9.1.0", "12.0")
    assert 0 < quantities["relative_error"] < 1e-4
    assert (row["timing"], row["margin"], row["n_samples"]) == ("cold", 0.02, 15)
    off = dict(found[name.replace("benchmark=on", "benchmark=off")]["facts"])
    assert off["offered"] == "implicit-precomp-gemm/fma; gemm/fma"


def test_what_happens_once_has_another_margin(on_gpu: Runs):
    done = on_gpu.pytest("--device=cuda", "-k", "choice_by_path and 3x3-64-64-56 and nchw and fp32")
    done.assert_outcomes(passed=2)
    for row in on_gpu.table("cases"):
        assert (row["metric"], row["margin"], row["n_samples"]) == ("tuning", 0.10, 1)


@pytest.mark.parametrize("fault", ["FAKE_CUDNN_WRONG", "FAKE_CUDNN_STALE"])
def test_a_wrong_cudnn_gets_no_timing(on_gpu: Runs, monkeypatch, fault):
    monkeypatch.setenv(fault, "1")
    done = on_gpu.pytest("--device=cuda", "--quick", "-k", "conv_by_path and 3x3-64-64-56 and fp32")
    assert done.ret == 1
    assert set(on_gpu.statuses().values()) == {"wrong-result"}
    assert on_gpu.table("samples") == []


def test_a_cudnn_without_cublas_is_skipped_and_not_aborted(on_gpu: Runs, cudnn_site, tmp_path, monkeypatch):
    alone = tmp_path / "alone"
    shutil.copytree(cudnn_site / "nvidia" / "cudnn", alone / "nvidia" / "cudnn")
    monkeypatch.setenv("PYTHONPATH", f"{alone}:{BENCHMARKS.parent}:{Path(__file__).parent}")
    done = on_gpu.pytest("--device=cuda", "--quick", "-k", "conv_by_path and 3x3-64-64-56 and fp32")
    done.assert_outcomes(skipped=2)
    reasons = {row["reason"] for row in on_gpu.table("cases")}
    assert all("would end the process without libcublasLt.so.12" in reason for reason in reasons)
