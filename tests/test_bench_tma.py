"""The family tma in real pytest runs on a pretended GPU: what needs neither torch nor Triton."""

import os
from pathlib import Path

import pytest
from plugin_runs import PLUGINS, Runs

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NBYTES = 1 << 20  # a copy of the real size takes too long in host memory

# FAULT=code: the kernels that should use TMA are built like the plain ones. FAULT=copy: nothing is copied.
PLANT = """
import os
from bench_lib.tma import copies, copy_ptx

if os.environ["FAULT"] == "code":
    plain = copy_ptx.PTX.split(".visible")[1:5]
    copy_ptx.PTX = copy_ptx.PTX.partition(".visible .entry copy_tma")[0]
    copy_ptx.PTX += "".join(".visible" + one.replace("copy_plain", "copy_tma") for one in plain)
else:
    by = copies.Copies.by

    def nothing(self, *given):
        by(self, *given)
        return lambda: None

    copies.Copies.by = nothing
"""


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs(pytester, monkeypatch)
    text = (BENCHMARKS / "bench_tma.py").read_text()
    (made.path / "bench_tma.py").write_text(text.replace("[256 << 20]", f"[{NBYTES}]"))
    return made


@pytest.fixture
def on_gpu(runs: Runs, fake_cuda: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Runs:
    for name, value in fake_cuda.items():
        if name not in ("PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
            monkeypatch.setenv(name, value)
    path = fake_cuda["PYTHONPATH"], str(runs.path), str(BENCHMARKS.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    return runs


def planted(on_gpu: Runs, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    (on_gpu.path / "plant.py").write_text(PLANT)
    monkeypatch.setenv("PYTEST_PLUGINS", f"{PLUGINS},plant")
    monkeypatch.setenv("FAULT", fault)


def test_without_a_gpu_all_is_skipped_with_the_reason(runs: Runs):
    done = runs.pytest("--device=cpu", "--quick")
    assert done.ret == 0
    assert {row["reason"] for row in runs.table("cases")} == {"no GPU: --device cpu was given"}
    assert set(runs.statuses().values()) == {"skipped"}


def test_a_gpu_without_the_accelerator_is_told_in_a_sentence(on_gpu: Runs, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_MAJOR", "8")
    done = on_gpu.pytest("--device=cuda", "--quick", "-k", "bench_copy_ptx")
    assert done.ret == 0
    (reason,) = {row["reason"] for row in on_gpu.table("cases")}
    assert reason.startswith("GPUs have a tensor memory accelerator from compute capability 9.0 on, ")
    assert reason.endswith(" has 8.0")
    assert set(on_gpu.statuses().values()) == {"skipped"}


def test_copies_are_measured_without_torch_and_say_how_they_load(on_gpu: Runs):
    done = on_gpu.pytest("--device=cuda", "--quick", "-k", "bench_copy_ptx")
    done.assert_outcomes(passed=3)
    found = {row["case_id"]: row for row in on_gpu.table("cases")}
    row = found[f"tma/copy_ptx[loads=tma,nbytes={NBYTES},tile=8192]"]
    assert (row["timing"], row["margin"], row["nbytes"], row["flop"]) == ("cold", 0.02, 2 * NBYTES, None)
    facts = dict(row["facts"])
    assert facts["loads.code"] == "PTX", "what the pretended driver links is no machine code"
    assert "cp.async.bulk.shared::cluster.global" in facts["loads.instructions"]
    kept = [path.name for path in (on_gpu.path / "results" / "local").glob("kernels-*.cubin")]
    assert len(kept) == 1


def test_a_kernel_without_tma_fails_and_is_no_skip(on_gpu: Runs, monkeypatch):
    planted(on_gpu, monkeypatch, "code")
    done = on_gpu.pytest("--device=cuda", "--quick", "-k", "bench_copy_ptx")
    assert done.ret == 1
    by_loads = {row["case_id"].split("loads=")[1].split(",")[0]: row for row in on_gpu.table("cases")}
    assert {name: row["status"] for name, row in by_loads.items()} == {
        "plain": "ok",
        "cp_async": "ok",
        "tma": "failed",
    }
    assert "nothing of that way: it does not measure what it says" in by_loads["tma"]["reason"]
    assert {row["case_id"] for row in on_gpu.table("samples")} == {
        row["case_id"] for name, row in by_loads.items() if name != "tma"
    }


def test_a_copy_that_does_not_copy_has_no_time(on_gpu: Runs, monkeypatch):
    planted(on_gpu, monkeypatch, "copy")
    done = on_gpu.pytest("--device=cuda", "--quick", "-k", "8192-tma")
    assert done.ret == 1
    (row,) = on_gpu.table("cases")
    assert row["status"] == "wrong-result"
    assert f"of {NBYTES // 4} words were not copied" in row["reason"]
    assert on_gpu.table("samples") == []
