"""What ends or spoils a process, under `cuda-gains run` with the plugin itself: the next case is measured."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from plugin_runs import INI
from rich.console import Console

from bench_lib.campaigns import campaign
from bench_lib.campaigns.campaign import Plan
from bench_lib.journaling import journal
from bench_lib.layout import CampaignFolder

FILE = """
import ctypes, os, resource, signal, sys, time
import pytest
from bench_lib.model import Series
FAMILY = "made"

def bench_next_1(bench):
    bench.record(Series((1.0, 2.0)))

def bench_segfaults(bench):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)

def bench_exits(bench):
    os._exit(0)

def bench_hides_a_child(bench):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open(os.environ["PIDS"], "a") as stream:
                print(os.getpid(), file=stream)
            time.sleep(60)
        os._exit(0)
    os.wait()
    while not os.path.exists(os.environ["PIDS"]):
        time.sleep(0.01)
    bench.record(Series((1.0,)))

@pytest.mark.budget(1)
def bench_prints_in_c(bench):
    libc = ctypes.CDLL(None)
    while True:
        libc.puts(b"x" * 100_000)

def bench_writes_nan(bench):
    bench.record(Series((1.0, float("nan"))))

def bench_next_2(bench):
    bench.record(Series((1.0, 2.0)))
"""


def plan(folder: Path, **changes: object) -> Plan:
    given: dict[str, object] = {
        "campaign": "c",
        "results": folder / "results",
        "stacks": ("here",),
        "rounds": 1,
        "null": False,
        "device": "cpu",
        "seed": 1,
        "benchmarks": folder / "made",
        "watchdog_seconds": 1.0,
        "extra": ("-p", "no:hypothesispytest"),
    }
    return Plan(**given | changes)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "pytest.ini").write_text(INI)
    (tmp_path / "made" / "bench_made.py").write_text(FILE)
    return tmp_path


def test_whatever_a_case_does_the_next_one_is_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIDS", str(folder / "pids"))
    monkeypatch.setattr("bench_lib.campaigns.watch._GRACE_SECONDS", 0.5)
    monkeypatch.setattr("bench_lib.faults.output.LOG_NBYTES", 4 << 20)
    output = io.StringIO()
    assert campaign.run(plan(folder), Console(file=output, width=200)) == 1
    rows = pq.read_table(folder / "results" / "c" / "cases").to_pylist()
    assert {row["op"]: row["status"] for row in rows} == {
        "next_1": "ok",
        "segfaults": "crashed",
        "exits": "crashed",
        "hides_a_child": "ok",
        "prints_in_c": "hung",
        "writes_nan": "failed",
        "next_2": "ok",
    }
    assert len(rows) == 7
    reasons = {row["op"]: row["reason"] for row in rows}
    assert reasons["segfaults"] == "the process was ended by SIGSEGV"
    assert reasons["exits"] == "the process ended with exit code 0 in the middle of its cases"
    assert "sample 2 of 2 is nan" in reasons["writes_nan"]
    for pid in map(int, (folder / "pids").read_text().split()):
        assert not Path(f"/proc/{pid}").exists()
    logs = list((folder / "results" / "c" / "logs").iterdir())
    assert logs
    assert max(log.stat().st_size for log in logs) < 1 << 30
    assert len(campaign.finished_rounds(CampaignFolder(folder / "results", "c"))) == 1


def test_a_journal_that_its_own_process_damaged_stays_and_the_campaign_ends(folder: Path) -> None:
    """Its cases cannot be read, so they are tried again; a process that always does it ends the campaign."""
    (folder / "made" / "bench_made.py").write_text(
        "import os, pathlib\nfrom bench_lib.model import Series\nFAMILY = 'made'\n"
        "def bench_a(bench):\n"
        "    journals = pathlib.Path(os.environ['WHERE']).rglob('*.jsonl')\n"
        "    path = max(journals, key=lambda path: path.stat().st_mtime_ns)\n"
        "    raw = path.read_bytes()\n"
        "    path.write_bytes(raw[:50] + b'\\xff' + raw[51:] + b'}{\\n')\n"
        "    os._exit(3)\n"
    )
    os.environ["WHERE"] = str(folder / "results")
    output = io.StringIO()
    try:
        code = campaign.run(plan(folder), Console(file=output, width=300))
    finally:
        del os.environ["WHERE"]
    assert code == 1
    said = output.getvalue()
    assert "left where it is: " in said
    assert "is not a journal event" in said
    assert "3 processes died without a case" in said
    assert "Traceback" not in said


def test_an_impatient_ctrl_c_ends_everything_at_once(folder: Path) -> None:
    """The first Ctrl-C waits for a process that does not end; the second one does not."""
    (folder / "made" / "bench_made.py").write_text(
        "import os, pathlib, signal, time\nfrom bench_lib.model import Series\nFAMILY = 'made'\n"
        "def bench_a(bench):\n    bench.record(Series((1.0,)))\n"
        "def bench_deaf(bench):\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})\n"
        "    if os.fork() == 0:\n        time.sleep(60)\n"
        "    pathlib.Path(os.environ['PIDS']).write_text(str(os.getpid()))\n    time.sleep(60)\n"
    )
    code = (
        "import sys; from bench_lib.cli import main\n"
        "sys.argv = ['cuda-gains', 'run', '--stack', 'here', '--rounds', '1', '--no-null', '--device',\n"
        "    'cpu', '--benchmarks', 'made', '--campaign', 'c']\nmain()"
    )
    environment = {**os.environ, "PIDS": str(folder / "pids")}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    ) as parent:
        end = time.monotonic() + 120
        while not (folder / "pids").exists() and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.1)
        pid = int((folder / "pids").read_text())
        begin = time.monotonic()
        parent.send_signal(signal.SIGINT)
        time.sleep(0.5)
        parent.send_signal(signal.SIGINT)
        _, said = parent.communicate(timeout=120)
    assert time.monotonic() - begin < 55  # the case would sleep for 60
    assert parent.returncode == 2
    assert "go on with: cuda-gains run" in said
    assert "Traceback" not in said
    assert not Path(f"/proc/{pid}").exists()
    rows = pq.read_table(folder / "results" / "c" / "cases").to_pylist()
    assert {(row["op"], row["status"]) for row in rows} <= {("a", "ok")}
    assert not [path for path in CampaignFolder(folder / "results", "c").journals() if journal.is_live(path)]
