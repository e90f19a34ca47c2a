"""Kills, Ctrl-C, full disks: what was measured is kept, and what was not is never taken for it."""

import signal
import subprocess
import sys
import time

import pytest
from plugin_runs import Runs

from bench_lib.journaling import journal
from bench_lib.journaling.journal_rows import rows

SLOW = """
import time
@pytest.mark.parametrize("n", range(5))
def bench_step(bench, n):
    if n == 3:
        (pytest.here / "reached").touch()
        time.sleep(30)
    bench.record(Series((1.0 + n, 2.0 + n)))
"""
HERE = "import pytest, pathlib\npytest.here = pathlib.Path(__file__).parent\n"


def interrupted(runs: Runs, number: signal.Signals) -> tuple[int, str]:
    """Run until the fourth case has begun, then send a signal."""
    runs.write(SLOW)
    (runs.path / "conftest.py").write_text(HERE)
    command = [sys.executable, "-m", "pytest", "--benchmark-json=run.json"]
    with subprocess.Popen(
        command, cwd=runs.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        end = time.monotonic() + 120
        while not (runs.path / "reached").exists() and time.monotonic() < end:
            time.sleep(0.02)
        child.send_signal(number)
        output, _ = child.communicate(timeout=120)
    return child.returncode, output


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_loses_the_case_in_flight_and_no_other(runs: Runs, number):
    code, _ = interrupted(runs, number)
    assert code == -number
    (path,) = runs.journals()
    events = journal.read(path)
    tables = rows(events)
    assert [case["op"] for case in tables["cases"]] == ["step"] * 3
    assert [row["seconds"] for row in tables["samples"]] == [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]
    assert tables["runs"][0]["complete"] is False
    begun = journal.in_flight(events)
    assert begun is not None
    assert begun["case_id"] == "made/step[n=3]"
    assert begun["budget_seconds"] == 120.0
    assert not journal.is_live(path)
    # the JSON that is there is valid, and claims nothing
    document = runs.json()
    assert document["benchmarks"] == []
    assert document["cuda_gains"]["complete"] is False


def test_ctrl_c_keeps_what_is_there(runs: Runs):
    code, output = interrupted(runs, signal.SIGINT)
    assert code == 2
    assert "INTERNALERROR" not in output
    assert set(runs.statuses().values()) == {"ok"}
    assert len(runs.statuses()) == 3
    (run,) = runs.table("runs")
    assert (run["complete"], run["exit_code"]) == (False, None)
    document = runs.json()
    assert len(document["benchmarks"]) == 3
    assert document["cuda_gains"]["status"] == "incomplete"
    assert not runs.journals()


def test_stopping_at_the_first_failure_is_incomplete(runs: Runs):
    runs.write(
        "def bench_a(bench):\n    bench.record(Series((1.0,)))\n"
        "def bench_b(bench):\n    assert False\n"
        "def bench_c(bench):\n    bench.record(Series((1.0,)))\n"
    )
    assert runs.pytest("-x", "--benchmark-json=run.json").ret == 1
    assert runs.statuses() == {"made/a": "ok", "made/b": "failed"}
    (run,) = runs.table("runs")
    assert run["complete"] is False
    assert runs.json()["cuda_gains"]["status"] == "incomplete"


def test_interrupted_in_its_first_case_a_run_leaves_no_clutter(runs: Runs):
    runs.write("def bench_a(bench):\n    raise KeyboardInterrupt\n")
    assert runs.pytest("--benchmark-json=run.json").ret == 2
    assert runs.files() == {"run.json"}
    assert runs.json()["cuda_gains"]["status"] == "no-results"


def test_a_benchmark_file_that_does_not_import_leaves_no_old_json_to_be_compared(runs: Runs):
    runs.write("def bench_a(bench):\n    bench.record(Series((1.0,)))\n")
    runs.write("import nowhere\n", "bench_broken")
    (runs.path / "run.json").write_text("{}")
    assert runs.pytest("--benchmark-json=run.json").ret == 2
    assert runs.json()["cuda_gains"]["status"] == "no-results"
    assert (runs.path / "run.json.old").exists()


@pytest.mark.parametrize("options", ["-k nothing", "-k plain", "--quick"])
def test_a_session_without_a_case_leaves_no_old_json_to_be_compared(runs: Runs, options):
    runs.write("def bench_a(bench):\n    pass\ndef test_plain():\n    pass\n")
    (runs.path / "run.json").write_text('{"benchmarks": ["of yesterday"]}')
    done = runs.pytest("--benchmark-json=run.json", *options.split(" "))
    assert done.ret == (5 if options == "-k nothing" else 0)
    assert runs.json()["cuda_gains"]["status"] == "no-results"
    assert runs.json("run.json.old") == {"benchmarks": ["of yesterday"]}


def test_looking_or_measuring_something_else_leaves_the_json_alone(runs: Runs):
    runs.write("def bench_a(bench):\n    pass\ndef test_own(benchmark):\n    benchmark(lambda: None)\n")
    (runs.path / "run.json").write_text("{}")
    runs.pytest("--benchmark-json=run.json", "--collect-only", "-k", "nothing")
    assert runs.json() == {}
    runs.pytest("--benchmark-json=run.json", "-k", "own")
    assert [row["name"] for row in runs.json()["benchmarks"]] == ["test_own"]


def test_ctrl_c_in_a_teardown_leaves_no_row_of_that_case(runs: Runs):
    runs.write(
        "def test_own(benchmark):\n    benchmark.pedantic(lambda: None)\n"
        "def bench_a(bench):\n    bench.record(Series((1.0,)))\n"
        "@pytest.fixture\ndef held():\n    yield\n    raise KeyboardInterrupt\n"
        "def bench_b(bench, held):\n    bench.record(Series((1.0,)))\n"
    )
    assert runs.pytest("--benchmark-json=run.json").ret == 2
    assert [row["name"] for row in runs.json()["benchmarks"]] == ["test_own", "bench_a"]
    assert runs.statuses() == {"made/a": "ok"}


# A file size limit is a full disk: a write past it takes a part, the next one fails.
LIMIT = """
import resource, signal
def pytest_runtest_logfinish(nodeid):
    if nodeid.endswith("[1]"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = max(p.stat().st_size for p in pytest.here.rglob("*.jsonl"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 15_000, resource.RLIM_INFINITY))
def pytest_keyboard_interrupt():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if not pytest.roomy:
        (pytest.here / "results" / "local" / "samples").touch()  # no folder can be made there
"""
LARGE = """
@pytest.mark.parametrize("n", range(5))
def bench_step(bench, n):
    bench.record(Series((1.0 + n / 7,) * 500))
"""


@pytest.mark.parametrize("roomy", [True, False])
def test_a_disk_that_fills_up_ends_the_run_with_a_sentence(runs: Runs, roomy):
    runs.write(LARGE)
    (runs.path / "conftest.py").write_text(f"{HERE}pytest.roomy = {roomy}\n{LIMIT}")
    done = runs.pytest("--benchmark-json=run.json")
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*the journal cannot be written: File too large; what was measured before*"])
    assert "INTERNALERROR" not in done.stdout.str()
    assert "Traceback" not in done.stdout.str() + done.stderr.str()
    if roomy:
        assert set(runs.statuses()) == {"made/step[n=0]", "made/step[n=1]"}
        assert runs.table("runs")[0]["complete"] is False
        return
    done.stdout.fnmatch_lines(["cuda-gains: not all results could be written: *samples*"])
    (path,) = runs.journals()
    kept = rows(journal.read(path))
    assert [case["op"] for case in kept["cases"]] == ["step"] * 2
    assert len(kept["samples"]) == 1000


def test_a_journal_on_a_full_device_is_known_before_the_first_case(runs: Runs, monkeypatch):
    runs.write(LARGE)
    (runs.path / "task.json").write_text('{"run_id": "abc"}')
    monkeypatch.setenv("CUDA_GAINS_TASK", str(runs.path / "task.json"))
    folder = runs.path / "results" / "local" / "journal"
    folder.mkdir(parents=True)
    (folder / "abc.jsonl").symlink_to("/dev/full")
    done = runs.pytest()
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: *cannot be written: No space left on device*"])
    done.stdout.no_fnmatch_line("*passed*")


def test_a_process_that_is_measured_leaves_a_live_journal(runs: Runs):
    """While a case runs its journal is held, and all lines before it are there."""
    runs.write(
        "def bench_a(bench):\n    bench.record(Series((1.0,)))\n"
        "def bench_b(bench):\n"
        "    from pathlib import Path\n"
        "    from bench_lib.journaling import journal\n"
        "    (path,) = Path('results').rglob('*.jsonl')\n"
        "    assert journal.is_live(path)\n"
        "    events = [e['event'] for e in journal.read(path)]\n"
        "    assert events == ['run', 'identity', 'start', 'case', 'start']\n"
        "    bench.record(Series((1.0,)))\n"
    )
    runs.pytest().assert_outcomes(passed=2)
    assert not runs.journals()
