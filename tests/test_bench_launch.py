"""The families launch, ladder and canary on the pretended CUDA: real processes, real files."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from plugin_runs import run_pytest

ROOT = Path(__file__).parents[1]


def measure(results: Path, env: dict[str, str], *options: str) -> tuple[int, str]:
    return run_pytest("benchmarks", "--results", results, *options, env=env)


def statuses(results: Path, campaign: str = "local") -> dict[str, str]:
    cases = [pq.read_table(path).to_pylist() for path in (results / campaign / "cases").glob("*.parquet")]
    return {row["case_id"]: row["status"] for rows in cases for row in rows}


def test_a_runtime_of_a_stack_is_launched_through(fake_cuda, fake_wheels, tmp_path):
    options = ["--stack", "cudart-12.4", "--wheels", str(fake_wheels), "--quick"]
    code, output = measure(tmp_path, fake_cuda, *options, "--family", "launch", "--family", "canary")
    assert code == 0, output
    found = statuses(tmp_path)
    for metric in ("submit", "launch_sync", "period"):
        assert found[f"launch/empty[api=cudart,metric={metric}]"] == "ok", output
        assert found[f"launch/empty[api=driver,metric={metric}]"] == "ok"
        assert found[f"launch/add[api=torch,metric={metric}]"] == "not-applicable"
    assert found["launch/graph[api=cudart,metric=total,nodes=100]"] == "ok"
    assert {status for case, status in found.items() if case.startswith("canary/")} == {"ok"}
    run = pq.read_table(next((tmp_path / "local/runs").glob("*.parquet"))).to_pylist()[0]
    assert dict(run["stack_identity"])["cudart.version"].startswith("12.4")
    assert "cubin.sha256" in dict(run["settings"])
    assert 0 < dict(run["quantities"])["loop_overhead_seconds"] < 1e-5


def test_the_first_launch_of_a_process_is_two_cases(fake_cuda, fake_wheels, tmp_path):
    options = ["--stack", "cudart-11.8", "--wheels", str(fake_wheels)]
    options += ["--family", "launch", "-k", "bench_first"]
    code, output = measure(tmp_path, fake_cuda, *options)
    assert code == 0, output
    found = statuses(tmp_path)
    assert len(found) == 8
    assert set(found.values()) == {"ok"}


def test_the_child_of_a_first_launch_imports_no_compiler():
    code = "import sys, bench_lib.launching.first_launch; print({'numba', 'torch'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_ladder_measures_all_runtimes_in_the_same_turns(fake_cuda, fake_wheels, tmp_path):
    options = ["--family", "ladder", "--quick", "--wheels", str(fake_wheels)]
    code, output = measure(tmp_path, fake_cuda, *options, "--benchmark-json", str(tmp_path / "run.json"))
    assert code == 0, output
    samples = pq.read_table(next((tmp_path / "local/samples").glob("*.parquet"))).to_pandas()
    runtimes = {json.loads(params)["runtime"] for params in samples["params"].unique()}
    assert runtimes == {"11.8", "12.4", "13.0", "11.8#2", "driver"}
    assert samples.groupby("case_id", observed=True).size().nunique() == 2  # bursts of 1 and of 100
    assert (samples["seconds"] > 0).all()
    facts = pq.read_table(next((tmp_path / "local/cases").glob("*.parquet")))["facts"].to_pylist()
    assert len({dict(f).get("cudart.sha256") for f in facts}) == 4  # three files and none; the null is a copy
    assert len(json.loads((tmp_path / "run.json").read_text())["benchmarks"]) == 10


def test_without_runtimes_the_ladder_says_how_to_fetch_them(fake_cuda, tmp_path):
    (tmp_path / "empty").mkdir()
    env = {**fake_cuda, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code, output = measure(
        tmp_path, env, "--family", "ladder", "--quick", "--wheels", str(tmp_path / "empty")
    )
    assert code == 0, output
    assert set(statuses(tmp_path).values()) == {"skipped"}
    assert "cuda-gains stacks create cudart-11.8 cudart-12.4" in output


@pytest.mark.parametrize("family", ["launch", "ladder", "canary", "unified_memory"])
def test_collecting_needs_no_torch_and_no_cuda(family, tmp_path):
    code = (
        "import sys, pytest\n"
        f"status = pytest.main(['benchmarks', '--collect-only', '-q', '--family', '{family}'])\n"
        "assert not set(sys.modules) & {'torch', 'cupy', 'numba', 'pandas'}\n"
        "assert 'libcuda' not in open('/proc/self/maps').read()\n"
        "sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
