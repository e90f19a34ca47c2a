"""The process between a campaign and what it measures: nothing that was started outlives it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench_lib.campaigns import watch
from bench_lib.campaigns.watch import Watchdog
from bench_lib.processes import guard

# Starts a grandchild that hides: a session of its own, its parent gone, deaf to SIGTERM. It goes on
# once that one has told its process id: else it may be ended before it could.
FORKS = """
import os, signal, sys, time
def hide():
    hears, tells = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print(os.getpid(), file=open(sys.argv[1], "a"), flush=True)
            os.write(tells, b"!")
            time.sleep(60)
        os._exit(0)
    os.wait()
    os.read(hears, 1)
hide()
hide()
"""
SLEEPS = f"{FORKS}\ntime.sleep(60)"


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and state(pid) != "Z"]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def told(path: Path, number: int = 2) -> list[int]:
    """The process ids in a file, once there are so many."""
    deadline = time.monotonic() + 120
    while len(path.read_text().split() if path.exists() else []) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [int(word) for word in path.read_text().split()]


def until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 120
    while alive(pids):
        assert time.monotonic() < deadline, f"{alive(pids)} outlived what started them"
        time.sleep(0.01)


def start(tmp_path: Path, code: str) -> watch.Child:
    command = [sys.executable, "-c", code, str(tmp_path / "pids")]
    return watch.start(command, os.environ, tmp_path / "log")


def test_what_a_finished_process_left_behind_is_ended(tmp_path: Path) -> None:
    child = start(tmp_path, FORKS)
    assert child.wait(120) == 0
    assert not [
        pid for pid in told(tmp_path / "pids") if Path(f"/proc/{pid}").exists()
    ]  # as a zombie neither


def test_what_a_stopped_process_had_started_is_ended(tmp_path: Path) -> None:
    child = start(tmp_path, SLEEPS)
    pids = told(tmp_path / "pids")
    watch.stop(child, signal.SIGTERM, 20.0)
    assert child.returncode == -signal.SIGTERM
    assert alive(pids) == []


def test_what_hangs_and_all_it_started_is_ended(tmp_path: Path) -> None:
    deaf = f"import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\n{SLEEPS}"
    child = start(tmp_path, deaf)
    pids = told(tmp_path / "pids")
    watch.stop(child, signal.SIGTERM, 0.1)
    assert child.returncode == -signal.SIGKILL
    assert alive(pids) == []


def test_kill_9_of_the_parent_takes_children_and_their_children_along(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom bench_lib.campaigns import watch\n"
        f"watch.start([sys.executable, '-c', {SLEEPS!r}, sys.argv[1]], os.environ, Path(sys.argv[2]))\n"
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "pids"), str(tmp_path / "log")]
    with subprocess.Popen(command) as parent:
        pids = told(tmp_path / "pids")
        pids += guard.descendants(parent.pid)  # the guard, the command, and both that hide
        parent.kill()
    until_gone(pids)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import os; os._exit(255)", 255),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGUSR1)", -signal.SIGUSR1),
    ],
)
def test_it_ends_as_the_command_did(tmp_path: Path, code: str, expected: int) -> None:
    assert start(tmp_path, f"import signal; signal.signal(2, signal.SIG_DFL); {code}").wait(120) == expected


def test_a_log_that_is_written_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench_lib.faults.output.LOG_NBYTES", 3 << 20)
    child = start(tmp_path, "print('the beginning')\nwhile True: print('x' * 100_000)")
    watchdog = Watchdog(tmp_path / "journal", 0.0, 1.0, tmp_path / "log")
    largest = 0
    deadline = time.monotonic() + 120
    while not watchdog.overdue() and time.monotonic() < deadline:
        time.sleep(0.02)
        largest = max(largest, (tmp_path / "log").stat().st_size)
    watch.stop(child, signal.SIGKILL, 5.0)
    watchdog.overdue()
    assert largest > 1 << 20
    assert (tmp_path / "log").read_bytes().startswith(b"the beginning\n")
    assert (tmp_path / "log").stat().st_size <= 3 << 20


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00", b"{", b"[1]", b'"start"', b'{"event":"start"}', b'{"event":3}', b"[" * 100_000,
        b'{"event":"start","budget_seconds":"long"}', b'{"event":"start","budget_seconds":-1}',
        b'{"event":"start","budget_seconds":1e999}', b'{"event":"start","budget_seconds":null}',
        b'{"event":"start","budget_seconds":9,"crc32":"00000000"}',
    ],
)  # fmt: skip
def test_of_a_damaged_line_only_its_being_there_counts(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal"
    watchdog = Watchdog(path, 0.0, 0.2)
    time.sleep(0.15)
    path.write_bytes(line + b"\n")
    assert watchdog.overdue() == ""  # a sign of life
    time.sleep(0.15)
    assert watchdog.overdue() == ""
    time.sleep(0.1)
    assert watchdog.overdue() == "no new line in the journal for 0 s"
    assert watchdog.cases == 0
