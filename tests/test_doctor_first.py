"""What a run asks the doctor before its first case: refused with a sentence, or stored with the run."""

import time

import pytest
from plugin_runs import Runs

from bench_lib.doctor import first, machine_checks, timing_checks
from bench_lib.doctor.finding import Check, Finding, State
from bench_lib.running import doubts
from bench_lib.running.options import Options
from bench_lib.running.target import CPU, Target
from bench_lib.stacking import stacks

CASE = """
def bench_nothing(bench):
    bench(lambda: None, timing="host")
"""


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs(pytester, monkeypatch)
    runs.write(CASE)
    return runs


def named(name: str, finding: Finding):
    def look(snapshot):
        return finding

    look.__name__ = name
    return look


def refused(found: dict) -> set[str]:
    return {name for name, one in found.items() if one.state is State.FAIL}


def test_a_clean_environment_is_not_refused():
    assert refused(first.look(environ={"HOME": "/root"})) == set()


@pytest.mark.parametrize(
    ("variables", "name", "on_cpu"),
    [
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "launch-blocking", False),
        ({"CUDA_INJECTION64_PATH": "/x.so"}, "profiler", False),
        ({"NSYS_PROFILING_SESSION_ID": "1"}, "profiler", True),
        ({"LD_PRELOAD": "/usr/lib/libasan.so.8"}, "sanitizer", True),
        ({"LD_PRELOAD": "/usr/libexec/valgrind/vgpreload_core.so"}, "sanitizer", True),
    ],
)
def test_what_makes_results_wrong(variables, name, on_cpu):
    assert refused(first.look(environ=variables)) == {name}
    assert refused(first.look(on_cpu=True, environ=variables)) == ({name} if on_cpu else set())


def test_a_profiler_is_refused_and_leaves_nothing(runs: Runs, monkeypatch):
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so")
    done = runs.pytest("--benchmark-json=run.json")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: CUDA_INJECTION64_PATH=*, expected no injected tool; unset*"])
    assert runs.files() == set()


def test_tracing_of_every_line_is_refused(runs: Runs):
    (runs.path / "conftest.py").write_text("import sys\nsys.settrace(lambda *a: None)\n")
    done = runs.pytest()
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: Python calls conftest at every line*measure without pdb*"])
    assert not runs.table("cases")


def test_a_busy_machine_is_told(tmp_path):
    (tmp_path / "proc").mkdir()
    for load, said in (("0.10", False), ("9999.0", True)):
        (tmp_path / "proc/loadavg").write_text(f"{load} 0.50 0.50 2/300 4242\n")
        told = first.busy(tmp_path)
        assert told.startswith("load 9999.0 on ") == said == bool(told)
        assert told.endswith("host-side times are not steady") == said


def test_a_busy_machine_is_told_by_a_run_and_not_stored_with_it(monkeypatch):
    """Of this moment alone: a stored setting would make two runs differ."""
    busy = Finding(State.WARN, "load 64.0 on 2 CPUs", "an idle machine", "end it")
    monkeypatch.setattr(machine_checks, "CHECKS", (Check(named("load", busy)),))
    monkeypatch.setattr(timing_checks, "CHECKS", ())
    found = doubts.look(stacks.stack("here"), Options(), Target(CPU))
    assert found.sentences == (busy.sentence,)
    assert found.stored == {}


def test_a_doubt_is_said_and_stored_with_the_run(runs: Runs, monkeypatch):
    monkeypatch.setenv("TORCH_LOGS", "recompiles")
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    done = runs.pytest()
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        [
            "cuda-gains: TORCH_LOGS=recompiles (torch.compile writes logs), expected none*",
            "run * in *",
            "next: cuda-gains run --stack here --rounds 3 --campaign before --family *",
        ]
    )
    (run,) = runs.table("runs")
    settings = dict(run["settings"])
    assert settings["doctor.slowing-variables"] == "TORCH_LOGS=recompiles (torch.compile writes logs)"
    assert settings["doctor.compiling"] == "TORCHDYNAMO_DISABLE is set: torch.compile does nothing"
    assert not any(name.startswith("doctor.load") for name in settings)


def test_asking_takes_milliseconds():

    first.look()
    begin = time.process_time()  # of this process, whatever else the machine does
    first.look()
    assert time.process_time() - begin < 1.0
