"""The family amp_conv in real pytest runs on the CPU, and what makes an AMP case `no-speedup`."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from plugin_runs import PLUGINS, Runs

from bench_lib.convolution import amp_steps
from bench_lib.convolution.precision import Precision

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A folder with this family, on tiny shapes.

    Nothing imports torch here: pytester forgets what was imported, and torch cannot be twice.
    """
    if find_spec("torchvision") is None:
        pytest.skip("needs torchvision")
    made = Runs(pytester, monkeypatch)
    monkeypatch.setenv("PYTEST_PLUGINS", f"{PLUGINS},tiny_shapes")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shutil.copy(BENCHMARKS / "bench_amp_conv.py", made.path)
    return made


def rows(runs: Runs, op: str) -> list[dict]:
    return [row for row in runs.table("cases") if row["op"] == op]


def measured(cases: list[dict]) -> list[dict]:
    """All but the one that a CPU without AVX-512 has no kernels for."""
    skipped = [row for row in cases if row["status"] == "skipped"]
    assert all("no kernels on this CPU" in row["reason"] and "3x3x3" in row["params"] for row in skipped)
    assert len(skipped) <= 1
    return [row for row in cases if row not in skipped]


@pytest.mark.slow
def test_the_whole_network_on_the_cpu(runs: Runs):
    done = runs.pytester.runpytest_subprocess("--device=cpu", "--full", "-k", "resnet50 and channels_last")
    done.assert_outcomes(passed=2)


def test_the_family_on_the_cpu(runs: Runs):
    runs.pytest("--device=cpu", "--quick")
    assert len(runs.table("cases")) == 16
    assert set(runs.statuses().values()) - {"skipped"} == {"ok"}
    convolutions = measured(rows(runs, "conv"))
    assert 11 <= len(convolutions) <= 12
    for row in convolutions:
        facts, quantities = dict(row["facts"]), dict(row["quantities"])
        assert '"batch":2' in row["params"]
        assert facts["precision.convolution"] == facts["precision.matmul"] == "ieee"
        assert facts["precision.autocast"] == ("bfloat16" if "bf16-autocast" in row["params"] else "off")
        assert 0 < quantities["relative_error"] < (0.1 if "bf16" in row["params"] else 1e-4)
        assert facts["checksum"]
        assert row["flop"] > 0
        assert (row["margin"], row["n_samples"]) == (0.02, 15)
    fp32, bf16 = sorted(rows(runs, "train_step"), key=lambda row: "bf16" in row["params"])
    assert fp32["turns"] == bf16["turns"] == "bottleneck-channels_last-2"
    assert fp32["n_samples"] == bf16["n_samples"]
    assert dict(fp32["quantities"])["output_relative_error"] < 1e-5
    outcomes = [dict(row["quantities"]) for row in rows(runs, "small_cnn")]
    assert len(outcomes) == 2
    assert abs(outcomes[0]["accuracy"] - outcomes[1]["accuracy"]) < 0.05
    assert all(0.5 < one["accuracy"] <= 1 and one["final_loss"] < 1.5 for one in outcomes)


def test_a_wrong_result_gets_no_timing(runs: Runs, monkeypatch):
    monkeypatch.setenv("FAULT", "wrong")
    done = runs.pytest("--device=cpu", "--quick", "-k", "bench_conv", "--benchmark-json=run.json")
    assert done.ret == 1
    found = measured(runs.table("cases"))
    assert {row["status"] for row in found} == {"wrong-result"}
    assert all("the output is off by" in row["reason"] for row in found)
    assert runs.table("samples") == []
    assert runs.json()["benchmarks"] == []


def test_a_warning_of_torch_is_a_doubt_and_no_failure(runs: Runs, monkeypatch):
    monkeypatch.setenv("FAULT", "warning")
    done = runs.pytest("--device=cpu", "--quick", "-k", "bench_conv and 1x1 and fp32")
    done.assert_outcomes(passed=1)
    (row,) = runs.table("cases")
    assert "Plan failed with a cudnnException" in row["warnings"]


H100, PASCAL = (9, 0), (6, 1)


@pytest.mark.parametrize(
    ("precision", "seconds", "capability", "marked"),
    [
        ("bf16-autocast", 0.95, H100, True),
        ("fp16-autocast", 1.30, H100, True),
        ("bf16-autocast", 0.90, H100, False),
        ("fp16-autocast", 0.95, PASCAL, False),
        ("fp16", 0.95, H100, False),
        ("tf32", 0.95, H100, False),
    ],
)
def test_no_speedup_is_amp_under_1_1x_on_a_gpu_with_tensor_cores(precision, seconds, capability, marked):
    warnings = amp_steps.no_speedup(Precision(precision), 1.0, seconds, capability)
    assert bool(warnings) is marked
    if marked:
        assert warnings[0].startswith(f"no-speedup: {1 / seconds:.2f}x of fp32")
