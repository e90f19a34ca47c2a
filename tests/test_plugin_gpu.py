"""The plugin with a GPU: a pretended CUDA, in processes of its own."""

import os
import subprocess
import sys
import time

import pytest
from plugin_runs import Runs

DEVICE = """
def empty(gpu):
    from bench_lib.device import kernels
    context = gpu.context
    function = context.function(context.load(kernels.cubin(context).data), "empty")
    return lambda: context.launch(function, (1, 1, 1), (1, 1, 1), (), gpu.stream)

@pytest.mark.parametrize("timing", ["cold", "batch", "host"])
def bench_launch(bench, gpu, timing):
    bench(empty(gpu), timing=timing, calls=1 if timing == "cold" else 20)

def bench_host_waiting(bench, gpu):
    bench(empty(gpu), timing="host", calls=20, synchronize=gpu.synchronize)

def bench_host_only(bench):
    bench(lambda: None, timing="host")
"""


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, fake_cuda: dict[str, str]) -> Runs:
    for name, value in fake_cuda.items():
        monkeypatch.setenv(name, value)
    return Runs(pytester, monkeypatch)


def test_device_times_of_the_pretended_device(runs: Runs, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_LAUNCH_NS", "20000")
    monkeypatch.setenv("FAKE_CUDA_SUBMIT_NS", "5000")
    monkeypatch.setenv("FAKE_CUDA_EVENT_NS", "0")
    runs.write(DEVICE)
    done = runs.pytest("--quick", "--require-gpu", "--benchmark-json=run.json", "-k", "host_only")
    assert done.ret == 5  # not core
    done = runs.pytest("--require-gpu", "--benchmark-json=run.json")
    done.assert_outcomes(passed=5)
    medians = {row["name"]: row["stats"]["median"] for row in runs.json()["benchmarks"]}
    quickest = {row["name"]: row["stats"]["min"] for row in runs.json()["benchmarks"]}
    assert medians["bench_launch[cold]"] == pytest.approx(20e-6, rel=0.01)
    assert medians["bench_launch[batch]"] == pytest.approx(20e-6, rel=0.01)
    assert 5e-6 <= quickest["bench_launch[host]"] < 20e-6
    assert medians["bench_host_waiting"] >= 20e-6
    rows = {row["op"]: row for row in runs.table("cases")}
    assert {row["device"] for row in rows.values()} == {"cuda"}
    assert rows["host_only"]["timing"] == "host"
    (run,) = runs.table("runs")
    machine, driver = dict(run["machine_identity"]), dict(run["driver_identity"])
    assert run["gpu_uuid"] == machine["gpu.uuid"]
    assert run["gpu_uuid"].startswith("GPU-")
    assert (run["gpu_name"], run["mig"]) == (machine["gpu.name"], "")
    assert int(machine["gpu.memory_nbytes"]) > 0
    assert driver["driver.cuda"] == "13.0"
    assert dict(run["settings"])["context.wait"] == "spin"
    assert dict(run["quantities"])["event_pair_overhead_seconds"] >= 0
    done.stdout.fnmatch_lines(["cuda-gains: device cuda (*GPU-*), stack here, campaign local, 5 cases*"])


def test_the_cpu_can_be_asked_for_though_there_is_a_gpu(runs: Runs):
    runs.write(DEVICE)
    runs.pytest("--device=cpu").assert_outcomes(passed=1, skipped=4)
    assert {row["device"] for row in runs.table("cases")} == {"cpu"}


def test_cuda_is_untouched_until_a_case_asks_for_the_gpu(runs: Runs):
    runs.write(
        """
import sys
def mapped():
    with open("/proc/self/maps") as stream:
        return "libcuda.so" in stream.read()

def bench_a_before(bench):
    assert bench.device == "cuda" and not mapped()
    bench.native(lambda: 1e-6)
    assert not mapped()

def bench_b_with(bench, gpu):
    assert mapped()
    bench.native(lambda: 1e-6)
"""
    )
    runs.pytest().assert_outcomes(passed=2)


def test_a_second_run_on_the_same_gpu_is_refused_with_the_holders_pid(runs: Runs):
    runs.write(
        """
import os, time
from pathlib import Path
def bench_slow(bench):
    Path("pid").write_text(str(os.getpid()))
    while not Path("go").exists():
        time.sleep(0.02)
    bench.record(Series((1.0,)))
"""
    )
    runs.write("def bench_quick(bench):\n    bench.record(Series((1.0,)))\n", "bench_second")
    first = subprocess.Popen(
        [sys.executable, "-m", "pytest", "bench_made.py"],
        cwd=runs.path,
        stdout=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 120
        while not (runs.path / "pid").exists() and time.monotonic() < end:
            time.sleep(0.02)
        second = runs.pytest("bench_second.py")
        assert second.ret == 4
        second.stderr.fnmatch_lines([f"ERROR: process {first.pid} is measuring on GPU GPU-*"])
        assert runs.pytest("bench_second.py", "--device=cpu", "--campaign=cpu").ret == 0
        (runs.path / "go").touch()
        assert first.wait(timeout=120) == 0
    finally:
        first.kill()
    assert runs.pytest("bench_second.py").ret == 0


def test_a_dead_context_ends_the_process_and_keeps_what_was_measured(runs: Runs, monkeypatch):
    """The case is failed, its fixtures are torn down, the rest is for a new process."""
    monkeypatch.setenv("FAKE_CUDA_FAIL_LAUNCH_AFTER", "1500")
    runs.write(
        DEVICE
        + """
@pytest.fixture
def memory(gpu):
    pointer = gpu.context.alloc(1 << 20)
    yield pointer
    gpu.context.free(pointer)

def bench_dies(bench, gpu, memory):
    launch = empty(gpu)
    for _ in range(2000):
        launch()
    gpu.synchronize()
    bench(launch)

def bench_never(bench, gpu):
    bench(empty(gpu))
"""
    )
    done = runs.pytest("--benchmark-json=run.json", "-k", "host_only or dies or never")
    assert done.ret == 1
    assert runs.statuses() == {"made/host_only": "ok", "made/dies": "failed"}
    rows = {row["op"]: row for row in runs.table("cases")}
    assert "CUDA error 719" in rows["dies"]["reason"]
    assert runs.table("runs")[0]["complete"] is False
    assert [row["name"] for row in runs.json()["benchmarks"]] == ["bench_host_only"]
    done.stdout.fnmatch_lines(["*the CUDA context is dead (*nothing more can be measured*"])
    assert "INTERNALERROR" not in done.stdout.str()


def test_out_of_memory_does_not_fail_the_next_case(runs: Runs):
    runs.write(
        DEVICE
        + """
def bench_a_too_much(bench, gpu):
    held = gpu.context.alloc(1 << 50)

def bench_b_next(bench, gpu):
    bench(empty(gpu))
"""
    )
    runs.pytest("-k", "much or next")
    assert runs.statuses() == {"made/a_too_much": "out-of-memory", "made/b_next": "ok"}


def test_a_driver_that_fails_is_the_reason_of_the_skips(runs: Runs, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_INIT_ERROR", "803")
    runs.write(DEVICE)
    done = runs.pytest()
    assert done.ret == 0
    done.stdout.fnmatch_lines(["cuda-gains: no GPU: cuInit failed with CUDA error 803*"])
    refused = runs.pytest("--require-gpu")
    assert refused.ret == 4
    refused.stderr.fnmatch_lines(["ERROR: --require-gpu was given and there is no GPU*error 803*"])


def test_a_cudart_stack_of_the_shipped_benchmarks_within_its_time(runs: Runs, fake_wheels, pytestconfig):
    """launch and canary of one runtime in a process: 6 s of CPU with start and end, 12 on an old one."""
    command = [sys.executable, "-m", "pytest", str(pytestconfig.rootpath / "benchmarks"), "--quick"]
    command += ["--stack=cudart-12.4", "--wheels", str(fake_wheels), "--family=launch", "--family=canary"]
    command += ["--results", str(runs.path / "results"), "-p", "no:cacheprovider", "-q"]
    for _ in range(2):  # the first compiles the native loops
        before = os.times()
        done = subprocess.run(command, capture_output=True, text=True, cwd=pytestconfig.rootpath)
        after = os.times()
        assert done.returncode == 0, done.stdout[-3000:]
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 20.0
    cases = {row["case_id"]: row for row in runs.table("cases")}
    assert cases["launch/empty[api=cudart,metric=submit]"]["status"] == "ok"
    assert cases["launch/add[api=torch,metric=submit]"]["status"] == "not-applicable"
    for run in runs.table("runs"):
        identity = dict(run["stack_identity"])
        assert identity["cudart.version"] == "12.4"
        assert "cudart-12.4" in identity["cudart.path"]
        assert "torch.version" not in identity
        assert len(dict(run["settings"])["cubin.sha256"]) == 64
        assert dict(run["quantities"])["loop_overhead_seconds"] < 1e-6
