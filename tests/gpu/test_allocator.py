"""allocator on a real GPU: every backend's peak is the hand-counted one, and a planted block is caught."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_runs import rows, run_benchmarks

from bench_lib.alloc_traces import record
from bench_lib.alloc_traces.made import TRACES

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def measure(results: Path, *options: str) -> list[dict]:
    """The cases of one run of the family: rows with their params and quantities."""
    campaign = run_benchmarks(results, "benchmarks", "--family", "allocator", "--require-gpu", *options)
    cases = rows(campaign, "cases")
    return [{**row, **json.loads(row["params"]), "quantities": dict(row["quantities"])} for row in cases]


def test_the_family_holds_every_backend_to_the_traces_account(torch, tmp_path, capsys):
    rows = measure(tmp_path, "-k", "replay or limit or transfer")
    assert {row["status"] for row in rows} <= {"ok", "not-applicable"}, [
        (row["case_id"], row["status"], row["reason"]) for row in rows
    ]
    again = {(r["trace"], r["backend"]): r["quantities"] for r in rows if r.get("metric") == "again"}
    assert len(again) == 9
    for (trace, backend), found in again.items():
        exact = TRACES[trace]().account.peak_nbytes
        with capsys.disabled():
            told = f"peak {found['peak_nbytes'] / exact:.4f} of the account, fragmentation"
            print(f"\n{trace}, {backend}: {told} {found['fragmentation']:.4f}")
        assert exact <= found["peak_nbytes"] < 1.3 * exact
        assert found["peak_reserved_nbytes"] >= found["peak_nbytes"]
    native, expandable = (again["adversarial", b]["fragmentation"] for b in ("native", "expandable_segments"))
    assert expandable < native
    (transfer,) = [row for row in rows if row["op"] == "transfer"]
    assert dict(transfer["facts"])["transfer.asked_driver"].startswith("1 of")


def test_a_soak_of_six_seconds(torch, tmp_path, capsys):
    rows = [row for row in measure(tmp_path, "-k", "soak", "--soak", "0.1") if row["op"] == "soak"]
    assert {(row["backend"], row["status"], row["n_samples"]) for row in rows} == {
        (backend, "ok", 60) for backend in ("native", "expandable_segments", "cudaMallocAsync")
    }
    for row in rows:
        with capsys.disabled():
            print(f"\n{row['backend']}: {row['quantities']}")


PLANTED = """
import torch
from bench_lib.alloc_traces import replay
from bench_lib.alloc_traces.memory import CudaMemory
from bench_lib.alloc_traces.trace import Event, whole
from bench_lib.errors import WrongResult
from bench_lib.model import Policy

MIB = 1 << 20
policy = Policy("test", samples=5, budget_seconds=1.0, min_samples=3, max_warmup_seconds=0.1)
memory = CudaMemory(torch, "native")
trace = whole("small", [Event(0, 3 * MIB), Event(1, 100), Event(2, 5 * MIB)])
peak = replay.replayed(memory, trace, policy)["again"].quantities["peak_nbytes"]
assert 8 * MIB + 512 <= peak <= 10 * MIB + 512, peak
plain, planted = memory.block, []

def block(nbytes, device="cuda"):
    planted.append(plain(512))
    return plain(nbytes, device)

memory.block = block
try:
    replay.replayed(memory, trace, policy)
except WrongResult as error:
    print(error)
"""


def test_a_planted_block_is_caught(torch):
    """In a process of its own: here other tests may hold memory."""
    done = subprocess.run(
        [sys.executable, "-c", PLANTED], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "did not see this trace alone" in done.stdout


def test_a_training_recorded_on_the_gpu_has_the_peak_that_torch_counted(torch):
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = record.record(record.Network(layers=2, width=256, steps=3), "cuda")
    counted = torch.cuda.max_memory_allocated() - before
    assert found.account.peak_nbytes == pytest.approx(counted, rel=0.01)
