"""What a case changes is put back, what it leaves is written down, and the next case is measured."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from plugin_runs import HEAD, Runs

from bench_lib.comparing import store

NEXT = "\ndef bench_z_next(bench):\n    bench.record(Series((1.0,)))\n"


def warnings(runs: Runs) -> dict[str, list[str]]:
    return {row["op"]: row["warnings"] or [] for row in runs.table("cases")}


CHANGES = {
    "os.chdir('/')": "it changed the working folder",
    "os.environ['HOME'] = '/nowhere/secret'": "it changed environment variables; put back",
    "del os.environ['HOME']": "it changed environment variables",
    "sys.setswitchinterval(1.0)": "it changed the switch interval from 0.005 to 1.0; put back",
    "sys.setrecursionlimit(5000)": "it changed the recursion limit from 1000 to 5000; put back",
    "sys.setprofile(lambda *_: None)": "it changed the profile function; put back",
    "signal.signal(signal.SIGINT, lambda *_: None)": "it changed signal handlers; put back",
    "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})": "it changed the CPUs it may run on; put back",
}


def test_what_a_case_changes_of_the_process_is_put_back(runs: Runs) -> None:
    head = f"{HEAD}import gc, os, signal, sys\n"
    body = "def state():\n    return (os.getcwd(), os.environ['HOME'], sys.getswitchinterval(),\n"
    body += "        sys.getrecursionlimit(), sys.getprofile(), signal.getsignal(signal.SIGINT),\n"
    body += "        os.sched_getaffinity(0), gc.isenabled())\n"
    body += "def bench_a_first(bench):\n    pytest.state = state()\n    bench.record(Series((1.0,)))\n"
    for number, change in enumerate(CHANGES):
        body += f"def bench_b{number}(bench):\n    bench.record(Series((1.0,)))\n    {change}\n"
    body += "def bench_z_next(bench):\n    assert state() == pytest.state\n    bench.record(Series((1.0,)))\n"
    runs.write(body, head=head)
    done = runs.pytest()
    done.assert_outcomes(passed=len(CHANGES) + 2)
    told = warnings(runs)
    several = len(os.sched_getaffinity(0)) > 1
    for number, (change, note) in enumerate(CHANGES.items()):
        if several or "affinity" not in change:
            assert len(told[f"b{number}"]) == 1, (change, told[f"b{number}"])
            assert told[f"b{number}"][0].startswith(note)
    assert "secret" not in done.stdout.str()
    assert told["z_next"] == []


def test_changes_of_wider_fixtures_and_what_is_undone_are_nobodys_fault(runs: Runs) -> None:
    runs.write(
        """
import os, sys
@pytest.fixture(scope="module")
def wide():
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.5)
    yield
    sys.setswitchinterval(before)

@pytest.fixture
def own(monkeypatch):
    monkeypatch.setenv("HOME", "/elsewhere")

@pytest.mark.parametrize("n", [1, 2])
def bench_a(bench, wide, own, n, monkeypatch):
    monkeypatch.chdir("/")
    assert sys.getswitchinterval() == 0.5 and os.environ["HOME"] == "/elsewhere"
    bench.record(Series((1.0,)))
"""
        + NEXT
    )
    runs.pytest().assert_outcomes(passed=3)
    assert set(map(tuple, warnings(runs).values())) == {()}


def test_forked_children_are_ended_and_told_of(runs: Runs) -> None:
    runs.write(
        """
import os, signal, time
def bench_forks(bench):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
        os._exit(0)
    bench.record(Series((1.0,)))

def bench_returns_twice(bench):
    pid = os.fork()
    bench.record(Series((1.0,)))  # both come here
    if pid:
        os.waitpid(pid, 0)

def bench_starts(bench):
    import subprocess, sys
    pytest.started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    bench.record(Series((1.0,)))

def bench_z_next(bench):
    from bench_lib.processes import guard
    assert guard.descendants(os.getpid()) == [pytest.started.pid]
    with open("pid", "w") as stream:
        print(pytest.started.pid, file=stream)
    bench.record(Series((1.0,)))
"""
    )
    runs.pytest().assert_outcomes(passed=4)
    told = warnings(runs)
    assert told["forks"] == ["it left 1 forked processes running, which were ended"]
    assert told["returns_twice"] == []
    assert len(told["starts"]) == 1
    assert told["starts"][0].startswith("it left process ")
    assert told["z_next"] == []
    assert len(runs.table("cases")) == 4
    pid = int((runs.path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()  # ended with the session


def test_a_leak_is_told_of_and_the_next_case_is_measured(runs: Runs) -> None:
    runs.write(
        """
held = []
def bench_leaks(bench):
    held.append(b"x" * (1 << 30))
    bench.record(Series((1.0,)))

@pytest.fixture(scope="module")
def large():
    yield b"x" * (600 << 20)

def bench_uses(bench, large):
    bench.record(Series((1.0,)))
"""
        + NEXT
    )
    runs.pytest("--benchmark-json=run.json").assert_outcomes(passed=3)
    assert warnings(runs) == {
        "leaks": ["it left 1.0 GiB of host memory allocated"], "uses": [], "z_next": []
    }  # fmt: skip
    assert next(case["warnings"] for case in runs.json()["cuda_gains"]["cases"])


def test_what_a_case_prints_has_an_end(runs: Runs) -> None:
    runs.write(
        """
def bench_prints(bench):
    while True:
        print("x" * 100_000)

def bench_prints_and_fails(bench):
    print("the beginning", "x" * 1_000_000, "the end")
    assert False
"""
        + NEXT
    )
    done = runs.pytest()
    assert runs.statuses() == {
        "made/prints": "failed",
        "made/prints_and_fails": "failed",
        "made/z_next": "ok",
    }
    reasons = {row["op"]: row["reason"] for row in runs.table("cases")}
    assert reasons["prints"].startswith("it printed more than 64 MiB")
    text = done.stdout.str()
    assert len(text) < 300_000
    for word in ("the beginning", "the end", "characters are left out"):
        assert word in text


def test_all_host_memory_is_out_of_memory_and_the_next_case_is_measured(runs: Runs) -> None:
    runs.write(
        """
import resource
def bench_takes_all(bench):
    limits = resource.getrlimit(resource.RLIMIT_AS)
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 20), limits[1]))  # this test's own limit
    try:
        held = []
        while True:
            held.append(bytearray(16 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
"""
        + NEXT
    )
    runs.pytest()
    assert runs.statuses() == {"made/takes_all": "out-of-memory", "made/z_next": "ok"}


def test_a_hang_in_c_ends_plain_pytest_and_keeps_what_was_measured(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.write(
        """
import ctypes, signal
from bench_lib.faults import surroundings
surroundings.SLACK_SECONDS = 0.2

def bench_a(bench):
    bench.record(Series((1.0,)))

@pytest.mark.budget(0.3)
def bench_stuck(bench):
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    ctypes.PyDLL(None).sleep(60)  # it holds the interpreter's lock
"""
        + NEXT
    )
    before = time.monotonic()
    done = runs.pytest("--benchmark-json=run.json")
    assert done.ret == 1
    assert time.monotonic() - before < 55  # the case would sleep for 60
    done.stderr.fnmatch_lines(["Timeout (*", "*bench_stuck*"])
    data = store.load(runs.path / "results", ["local"])
    assert data.cases["case_id"].tolist() == ["made/a"]
    assert not data.runs["complete"].any()
    assert runs.json()["benchmarks"] == []
    runs.pytest("-k", "next").assert_outcomes(passed=1)  # the same folder goes on


def change_torch(name: str) -> list[Any]:
    import gc  # noqa: F401  as in a case's process
    import sys

    import torch

    from bench_lib.faults.around import Around

    def state() -> list[Any]:
        cudnn = torch.backends.cudnn
        return [
            str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.deterministic,
            cudnn.enabled, cudnn.allow_tf32, torch.get_float32_matmul_precision(),
        ]  # fmt: skip

    changes = {
        "torch default dtype": lambda: torch.set_default_dtype(torch.float64),
        "torch grad mode": lambda: torch.set_grad_enabled(False),
        "torch number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
        "torch deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
        "torch cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
        "torch cudnn.deterministic": lambda: setattr(torch.backends.cudnn, "deterministic", True),
        "torch cudnn.enabled": lambda: setattr(torch.backends.cudnn, "enabled", False),
        "torch TF32 and fp32 precision": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    }
    told, before = [], state()
    for change in changes.values():
        around = Around()
        around.begin(None)
        around.before_call()
        change()
        changed = state() != before
        around.after_call()
        told.append([changed, *around.restore(), *around.leftovers(None), state() == before, around.stuck])
    assert "torch" in sys.modules
    return [list(changes), told]


def test_what_a_case_changes_of_torch_is_put_back() -> None:
    pytest.importorskip("torch")
    import inspect
    import json

    source = f"from typing import Any\n{inspect.getsource(change_torch)}"
    done = subprocess.run(
        [sys.executable, "-c", f"{source}\nimport json\nprint(json.dumps(change_torch('')))"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names, told = json.loads(done.stdout.splitlines()[-1])
    assert len(names) == 8
    for name, (changed, *notes, same, stuck) in zip(names, told, strict=True):
        assert changed, name
        assert same, name
        assert len(notes) == 1, (name, notes)
        assert notes[0].startswith(f"it changed {name}")
        assert notes[0].endswith("; put back")
        assert stuck == ""


def test_what_cannot_be_put_back_starts_a_new_process_in_a_campaign(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is gone cannot be returned to."""
    runs.write(
        """
import os, shutil
def bench_a(bench):
    bench.record(Series((1.0,)))
    os.chdir("/")
    shutil.rmtree(pytest.gone)
"""
        + NEXT
    )
    (runs.path / "conftest.py").write_text(
        "import os, pathlib, pytest\n"
        "def pytest_collection_finish():\n"
        "    pytest.gone = pathlib.Path('gone').absolute()\n"
        "    pytest.gone.mkdir()\n    os.chdir(pytest.gone)\n"
    )
    task = runs.path / "task.json"
    task.write_text('{"run_id": "one", "round": "r", "arm": "here"}')
    monkeypatch.setenv("CUDA_GAINS_TASK", str(task))
    done = runs.pytest("--results", str(runs.path / "results"))
    assert done.ret == 2
    assert runs.statuses() == {"made/a": "ok"}
    assert warnings(runs)["a"] == ["it changed the working folder, which cannot be put back"]
    task.write_text('{"run_id": "two", "round": "r", "arm": "here", "skip": ["bench_made.py::bench_a"]}')
    runs.pytest("--results", str(runs.path / "results")).assert_outcomes(passed=1, deselected=1)
    assert runs.statuses() == {"made/a": "ok", "made/z_next": "ok"}
