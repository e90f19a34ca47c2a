"""The family unified_memory on a pretended CUDA whose managed memory moves: real runs, real files."""

import json
from pathlib import Path

import fake_cuda
import fake_managed as fake
import pyarrow.parquet as pq
import pytest
from plugin_runs import KEEPS_PAGES, rows, run_pytest

ROOT = Path(__file__).parents[1]
FILE = "benchmarks/bench_unified_memory.py"
COPIES = ("pinned", "pageable")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    if fake_cuda.compiler() is None:
        pytest.skip("no C compiler: the pretended CUDA cannot be built")
    return tmp_path_factory.mktemp("fake_managed")


@pytest.fixture
def environment(fake_cuda, built, tmp_path) -> dict[str, str]:
    """One pretended GPU with 16 GiB whose page faults take their time."""
    size = {"FAKE_CUDA_TOTAL_NBYTES": str(16 << 30), "FAKE_UVM_FAULT_NS": "5000"}
    return {**fake_cuda, **fake.environment(built, tmp_path), **size}


def measure(results: Path, env: dict[str, str], *options: str) -> tuple[list[dict], str]:
    """The rows of the cases of one run, their params and facts as dicts, and what pytest printed."""
    _, output = run_pytest(FILE, "--results", results, *options, env=env)
    told = rows(results / "local", "cases")
    assert told, output
    return [{**row, "params": json.loads(row["params"]), "facts": dict(row["facts"])} for row in told], output


def test_every_way_is_measured_with_its_mode_and_facts(environment, tmp_path):
    rows, output = measure(tmp_path, environment, "-k", "2097152")
    assert {row["status"] for row in rows} == {"ok"}, output
    moves = [row for row in rows if row["op"] == "migrate"]
    assert {(row["params"]["direction"], row["params"]["way"]) for row in moves} == {
        (direction, way) for direction in ("to_gpu", "to_cpu") for way in ("faults", "prefetch", *COPIES)
    }
    for row in moves:
        assert (row["timing"], row["calls"], row["nbytes"]) == ("host", 1, 2 << 20)
        assert row["params"]["mode"] == "uvm"
        assert "mode=uvm" in row["case_id"]
        assert row["facts"]["memory.concurrent_managed_access"] == "1"
        assert row["facts"]["memory.page_nbytes"] == "4096"
        if row["params"]["way"] not in COPIES:
            assert row["facts"]["residency"] == "present bits"
            assert row["facts"]["prefetch"] == "cudaMemPrefetchAsync"
    allocations = {(row["params"]["api"], row["params"]["metric"]) for row in rows if row["op"] == "alloc"}
    assert allocations == {
        (api, metric)
        for api in ("cudaMalloc", "cudaMallocAsync", "cudaMallocManaged")
        for metric in ("alloc", "free")
    }
    median = {row["params"]["way"]: samples(tmp_path, row) for row in moves if "to_gpu" in row["case_id"]}
    assert median["faults"] > 512 * 5e-6  # 512 pages, each a fault
    assert median["faults"] > 2 * median["pinned"]


def samples(results: Path, row: dict) -> float:
    table = pq.read_table(next((results / "local" / "samples").glob("*.parquet"))).to_pandas()
    return float(table[table["case_id"] == row["case_id"]]["seconds"].median())


@pytest.mark.parametrize(
    ("version", "name"), [("11.8.89", "cudaMemPrefetchAsync"), ("12.4.127", "cudaMemPrefetchAsync_v2")]
)
def test_a_stack_of_another_runtime_is_called_as_it_wants(environment, built, tmp_path, version, name):
    wheels = tmp_path / "wheels"
    fake_cuda.write_wheel(fake.build_runtime(built, version), version, wheels)
    stack = f"cudart-{version.rpartition('.')[0]}"
    rows, output = measure(
        tmp_path, environment, "--stack", stack, "--wheels", str(wheels), "-k", "prefetch and -2097152"
    )
    assert [(row["status"], row["facts"]["prefetch"]) for row in rows] == [("ok", name)] * 2, output


def test_without_concurrent_access_the_copies_still_run(environment, tmp_path):
    rows, output = measure(
        tmp_path, {**environment, "FAKE_UVM_CONCURRENT": "0"}, "-k", "migrate and -2097152"
    )
    found = {(row["params"]["direction"], row["params"]["way"]): row for row in rows}
    assert len(found) == 8, output
    for (_, way), row in found.items():
        assert row["params"]["mode"] == "none"
        if way in COPIES:
            assert row["status"] == "ok"
        else:
            assert row["status"] == "skipped"
            assert "concurrentManagedAccess is 0" in row["reason"]


def test_another_mode_is_another_case(environment, tmp_path):
    rows, output = measure(
        tmp_path, {**environment, "FAKE_UVM_PAGEABLE": "1"}, "-k", "to_gpu-faults and -2097152"
    )
    assert [(row["status"], row["params"]["mode"]) for row in rows] == [("ok", "hmm")], output


def test_a_planted_skipped_homecoming_is_a_wrong_result(environment, tmp_path):
    (tmp_path / "plant.py").write_text(KEEPS_PAGES)
    env = {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}:{tmp_path}"}
    rows, output = measure(
        tmp_path, env, "-p", "plant", "-k", "(to_gpu-faults or to_gpu-pinned) and -2097152"
    )
    assert [(row["params"]["way"], row["status"]) for row in rows] == [
        ("faults", "wrong-result"),
        ("pinned", "ok"),
    ], output
    assert "512 of 512 pages were not on the CPU before a repetition" in rows[0]["reason"]


def test_the_slope_of_a_fault_and_a_hop_are_what_the_device_takes(environment, tmp_path):
    rows, output = measure(tmp_path, environment, "-k", "(fault and random-fault) or tlb_reach and -16777216")
    assert {row["status"] for row in rows} == {"ok"}, output
    for row in rows:
        expected = 500e-9 + (5e-6 if row["op"] == "fault" else 0)
        assert samples(tmp_path, row) == pytest.approx(expected, rel=0.4), row["case_id"]
    assert sorted(row["op"] for row in rows) == ["fault", "tlb_reach", "tlb_reach"]


@pytest.mark.parametrize(("option", "cases"), [("--quick", 12), ("--full", 216)])
def test_how_many_cases_there_are(option, cases):
    code, output = run_pytest(FILE, "--collect-only", "-q", option)
    assert (code, f"{cases}" in output.splitlines()[-1]) == (0, True), output
