"""Faults of a real GPU: each case that breaks is followed by a healthy one in the same command.

Nothing here runs without end on the device: the trap ends its kernel, what hangs sleeps on the host.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench_lib.campaigns import schedule

pytestmark = pytest.mark.gpu

INI = """
[pytest]
python_files = bench_*.py
python_functions = bench_*
addopts = --strict-markers --import-mode=importlib -p no:cacheprovider
"""
HEAD = '''
import ctypes, os, signal, time
from pathlib import Path
import pytest
from bench_lib.device import kernels
FAMILY = "faulty"
TRAP = """
.version 6.0
.target {target}
.address_size 64
.visible .entry traps()
{{
    trap;
    ret;
}}
"""

def empty(gpu):
    context = gpu.context
    function = context.function(context.load(kernels.cubin(context).data), "empty")
    return lambda: context.launch(function, (1, 1, 1), (1, 1, 1), (), gpu.stream)

'''
HEALTHY = """
def bench_z_healthy(bench, gpu):
    bench(empty(gpu))
"""
OUT_OF_MEMORY = """
def bench_a_takes_all(bench, gpu):
    held = []
    try:
        while True:  # ends: memory does
            held.append(gpu.context.alloc(8 << 30))
    finally:
        for pointer in held:
            gpu.context.free(pointer)

def bench_b_takes_all_and_keeps_it(bench, gpu):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    held = []
    while True:
        held.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))
"""
TRAPS = """
def bench_a_traps(bench, gpu):
    major, minor = gpu.context.compute_capability
    text = TRAP.format(target=f"sm_{major}{minor}")
    function = gpu.context.function(gpu.context.load(kernels.cubin(gpu.context, ptx=text).data), "traps")
    gpu.context.launch(function, (1, 1, 1), (1, 1, 1), (), gpu.stream)
    gpu.synchronize()
"""
HANGS = """
@pytest.mark.budget(2)
def bench_a_hangs(bench, gpu):
    empty(gpu)()
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    ctypes.PyDLL(None).sleep(600)  # on the host; the device is idle
"""
WAITS = """
def bench_a_waits(bench, gpu):
    Path("holds").write_text(str(os.getpid()))
    end = time.monotonic() + 60
    while not Path("go").exists() and time.monotonic() < end:
        time.sleep(0.05)
    bench(empty(gpu))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(INI)
    return tmp_path


def healthy_last(cases: int) -> int:
    """A campaign's seed with which the last case of a file of so many is measured last."""
    for seed in range(1000):
        rng = random.Random(schedule.case_seed(seed, 0))
        rng.shuffle([0])  # the files
        order = list(range(cases))
        rng.shuffle(order)
        if order[-1] == cases - 1:
            return seed
    raise AssertionError("no seed")


def campaign(folder: Path, body: str) -> dict[str, tuple[str, str]]:
    """One round over a benchmark file, its healthy case last: case -> status and reason."""
    (folder / "bench_faulty.py").write_text(HEAD + body + HEALTHY)
    seed = healthy_last(body.count("def bench_") + 1)
    code = (
        "import sys; from pathlib import Path; from rich.console import Console\n"
        "from bench_lib.campaigns.campaign import Plan, run\n"
        "plan = Plan(campaign='c', results=Path('results'), stacks=('here',), rounds=1, null=False,\n"
        "    device='cuda', benchmarks=Path('.'), watchdog_seconds=20.0, seed=int(sys.argv[1]))\n"
        "sys.exit(run(plan, Console(width=200)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(seed)],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    rows = pq.read_table(folder / "results" / "c" / "cases").to_pylist()
    assert max(rows, key=lambda row: row["started_at"])["op"] == "z_healthy"
    return {row["op"]: (row["status"], row["reason"]) for row in rows}


def test_out_of_memory_and_a_healthy_case(folder: Path) -> None:
    cases = campaign(folder, OUT_OF_MEMORY)
    assert cases["a_takes_all"][0] == "out-of-memory"
    assert cases["b_takes_all_and_keeps_it"][0] in ("out-of-memory", "skipped")
    assert cases["z_healthy"] == ("ok", "")


def test_out_of_memory_and_a_healthy_case_in_one_process(folder: Path) -> None:
    (folder / "bench_faulty.py").write_text(HEAD + OUT_OF_MEMORY + HEALTHY)
    command = [sys.executable, "-m", "pytest", "--require-gpu", "-p", "no:randomly"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout
    rows = pq.read_table(folder / "results" / "local" / "cases").to_pylist()
    statuses = {row["op"]: row["status"] for row in rows}
    assert statuses["a_takes_all"] == "out-of-memory"
    assert statuses["z_healthy"] == "ok"


def test_a_kernel_that_traps_and_a_healthy_case(folder: Path) -> None:
    """The context is dead; a new process measures the rest."""
    cases = campaign(folder, TRAPS)
    status, reason = cases["a_traps"]
    assert status == "failed"
    assert "CUDA error" in reason
    assert cases["z_healthy"] == ("ok", "")


def test_a_host_that_hangs_is_ended_and_a_healthy_case(folder: Path) -> None:
    begin = time.monotonic()
    cases = campaign(folder, HANGS)
    assert cases["a_hangs"][0] == "hung"
    assert cases["a_hangs"][1].startswith("no new line in the journal for 22 s")
    assert cases["z_healthy"] == ("ok", "")
    assert time.monotonic() - begin < 200


def test_two_runs_on_one_gpu(folder: Path) -> None:
    """The second is refused with the first one's process id; afterwards the GPU is free."""
    (folder / "bench_faulty.py").write_text(HEAD + WAITS + HEALTHY)
    command = [sys.executable, "-m", "pytest", "--require-gpu"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, env=dict(os.environ)) as first:
        try:
            end = time.monotonic() + 120
            while not (folder / "holds").exists() and first.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            second = subprocess.run(
                [*command, "-k", "healthy"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert second.returncode == 4
            assert f"process {first.pid} is measuring on GPU GPU-" in second.stderr
            (folder / "go").touch()
            assert first.wait(timeout=120) == 0
        finally:
            first.kill()
    third = subprocess.run([*command, "-k", "healthy"], cwd=folder, timeout=120, check=False)
    assert third.returncode == 0
