"""The bench fixture and what a run leaves: journal, Parquet, JSON, pytest-benchmark's own views."""

import json
import os

import pytest
from plugin_runs import Runs, run_pytest

from bench_lib import schema

THREE = """
SAMPLES = (1.1e-06, 3.3e-06, 2.2000000000000003e-06, 0.1 + 0.2, 7e-324, 1e300)

@pytest.mark.parametrize("n", [1, 2])
def bench_sum(bench, n):
    bench(lambda: sum(range(n)), timing="host", calls=10, flop=n, nbytes=8.0 * n)

@pytest.mark.benchmark(group="mine", min_rounds=7)
def bench_recorded(bench):
    bench.quantity("peak_nbytes", 4096)
    bench.quantity("max_abs_error", float("nan"))
    bench.fact("algorithm", "direct")
    bench.warn("a doubt")
    bench.record(Series(SAMPLES, ("", "preempted", "", "", "", ""), Timing.NATIVE, calls=3, turns="t"))
"""


def test_samples_are_the_same_in_parquet_and_json_bit_for_bit(runs: Runs):
    runs.write(THREE)
    done = runs.pytest("--benchmark-json=deep/er/run.json")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["cuda-gains: the folder deep was not there; it was made for --benchmark-json"])
    document = runs.json("deep/er/run.json")
    shown = {row["fullname"]: row for row in document["benchmarks"]}
    cases = {row["case_id"]: row for row in runs.table("cases")}
    assert set(cases) == {"made/sum[n=1]", "made/sum[n=2]", "made/recorded"}
    for case in document["cuda_gains"]["cases"]:
        stored = runs.seconds(case["case_id"])
        assert shown[case["nodeid"]]["stats"]["data"] == stored
        assert len(stored) == case["n_samples"] == cases[case["case_id"]]["n_samples"]
    exact = [1.1e-06, 3.3e-06, 2.2000000000000003e-06, 0.1 + 0.2, 7e-324, 1e300]
    assert runs.seconds("made/recorded") == exact
    # the item's own marker is merged, not lost
    recorded = shown["bench_made.py::bench_recorded"]
    assert recorded["group"] == "mine"
    assert recorded["options"]["min_rounds"] == 7
    assert {row["options"]["timer"] for row in shown.values()} == {"device_clock"}
    assert shown["bench_made.py::bench_sum[1]"]["group"] == "made/sum"
    # what stands in the rows
    case = cases["made/recorded"]
    assert (case["status"], case["margin"], case["calls"], case["turns"]) == ("ok", 0.03, 3, "t")
    assert case["n_flagged"] == 1
    assert dict(case["quantities"]) == {"peak_nbytes": 4096.0, "max_abs_error": None}
    assert dict(case["facts"])["algorithm"] == "direct"
    assert case["warnings"] == ["a doubt"]
    assert recorded["extra_info"]["flags"] == ["", "preempted", "", "", "", ""]
    assert recorded["extra_info"]["quantities"] == {"peak_nbytes": 4096.0, "max_abs_error": None}
    flags = [row for row in runs.table("samples") if row["flags"] and row["case_id"] == "made/recorded"]
    (flagged,) = flags  # a busy machine may flag those of the others
    assert (flagged["case_id"], flagged["sample"], flagged["flags"]) == ("made/recorded", 1, "preempted")
    summed = cases["made/sum[n=2]"]
    assert (summed["flop"], summed["nbytes"], summed["calls"]) == (2.0, 16.0, 10)
    assert (summed["timing"], summed["policy"], summed["metric"]) == ("host", "default", "time")
    assert summed["n_samples"] == 50
    assert summed["warmup_calls"] > 0
    assert json.loads(summed["params"]) == {"n": 2}
    # the run
    (run,) = runs.table("runs")
    assert (run["complete"], run["exit_code"], run["device"], run["stack"]) == (True, 0, "cpu", "here")
    assert (run["round"], run["arm"], run["campaign"]) == ("", "here", "local")
    assert dict(run["stack_identity"])["python.version"]
    assert dict(run["machine_identity"])["kernel"] == os.uname().release
    assert dict(run["quantities"])["clock_resolution_seconds"] > 0
    assert run["command"].startswith("pytest ")
    ours = document["cuda_gains"]
    assert (ours["schema_version"], ours["status"], ours["complete"]) == (schema.SCHEMA_VERSION, "ok", True)
    assert ours["runs"][0]["run_id"] == run["run_id"]
    assert not runs.journals()
    done.stdout.fnmatch_lines(["cuda-gains: device cpu, stack here, campaign local, 3 cases, *"])
    done.stdout.fnmatch_lines(["*benchmark 'made/sum': 2 tests*", "bench_sum[[]1[]]*"])


def test_pytest_benchmark_saves_and_compares_the_samples(runs: Runs):
    runs.write(
        """
import os
def bench_one(bench):
    bench.record(Series((float(os.environ["SECONDS"]),) * 5))
"""
    )
    os.environ["SECONDS"] = "0.002"
    try:
        runs.pytest("--benchmark-save=before").assert_outcomes(passed=1)
        os.environ["SECONDS"] = "0.004"
        arguments = ("--benchmark-compare=0001", "--benchmark-compare-fail=mean:10%")
        done = runs.pytest(*arguments)
        assert runs.pytest("--benchmark-compare=0001").ret == 0
    finally:
        del os.environ["SECONDS"]
    assert done.ret != 0
    done.stdout.fnmatch_lines(["*bench_one (0001_before)*2.0000*", "*bench_one (NOW)*4.0000*"])
    done.stderr.fnmatch_lines(["*Performance has regressed*"])
    (saved,) = (runs.path / ".benchmarks").rglob("*_before.json")
    assert json.loads(saved.read_text())["benchmarks"][0]["stats"]["median"] == 0.002
    assert len(runs.table("runs")) == 3


ENDINGS = """
from bench_lib.errors import CaseTimeout, CudaError, NotApplicable, Unavailable, WrongResult

class OutOfMemoryError(RuntimeError):  # as torch and CuPy call theirs
    pass

def work():
    return 41

def measured(bench):
    bench.record(Series((1.0, 2.0)))

def bench_ok(bench):
    measured(bench)

def bench_assertion_after_timing(bench):
    measured(bench)
    assert 1 + 1 == 3

def bench_nan(bench):
    bench.record(Series((1.0, float("nan"))))

def bench_error(bench):
    raise ValueError("first line\\nsecond line")

def bench_unavailable(bench):
    raise Unavailable("needs two GPUs")

def bench_skipped_after_timing(bench):
    measured(bench)
    pytest.skip("changed my mind")

@pytest.mark.skip(reason="not today")
def bench_marked(bench):
    measured(bench)

def bench_not_applicable(bench):
    raise NotApplicable("a cudart stack holds no torch")

def bench_wrong(bench):
    bench(work, timing="host", check=lambda result: wrong(result))

def wrong(result):
    raise WrongResult(f"got {result}, expected 42")

def bench_wrong_by_assertion(bench):
    def check(result):
        assert result == 42
    bench(work, timing="host", check=check)

def bench_memory(bench):
    raise MemoryError()

def bench_torch_memory(bench):
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 TiB")

def bench_cuda_memory(bench):
    raise CudaError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY")

@pytest.mark.budget(0.3)
def bench_timeout(bench):
    import time
    bench(lambda: time.sleep(0.2), timing="host")

def bench_nothing(bench):
    pass

def bench_twice(bench):
    measured(bench)
    measured(bench)

@pytest.fixture
def broken():
    raise RuntimeError("no set-up")

def bench_broken_fixture(bench, broken):
    measured(bench)

@pytest.fixture
def breaking():
    yield
    raise RuntimeError("no good-bye")

def bench_broken_teardown(bench, breaking):
    measured(bench)

def bench_last(bench):
    measured(bench)
"""


def test_each_ending_is_its_own_status_and_the_next_case_runs(runs: Runs):
    runs.write(ENDINGS)
    done = runs.pytest("--benchmark-json=run.json", "-rs", "--quick", "-k", "not nothing_of_this")
    assert done.ret == 5  # --quick: no case here is core
    done = runs.pytest("--benchmark-json=run.json", "-rs")
    assert done.ret == 1
    cases = {row["op"]: row for row in runs.table("cases")}
    assert {op: row["status"] for op, row in cases.items()} == {
        "ok": "ok",
        "assertion_after_timing": "failed",
        "nan": "failed",
        "error": "failed",
        "unavailable": "skipped",
        "skipped_after_timing": "skipped",
        "marked": "skipped",
        "not_applicable": "not-applicable",
        "wrong": "wrong-result",
        "wrong_by_assertion": "wrong-result",
        "memory": "out-of-memory",
        "torch_memory": "out-of-memory",
        "cuda_memory": "out-of-memory",
        "timeout": "timeout",
        "nothing": "failed",
        "twice": "failed",
        "broken_fixture": "failed",
        "broken_teardown": "failed",
        "last": "ok",
    }
    reasons = {op: row["reason"] for op, row in cases.items()}
    assert reasons["ok"] == ""
    assert reasons["nan"] == "sample 2 of 2 is nan; a time is a finite number above 0"
    assert reasons["error"] == "ValueError: first line"
    assert reasons["unavailable"] == "needs two GPUs"
    assert reasons["marked"] == "not today"
    assert reasons["wrong"] == "got 41, expected 42"
    assert "41 == 42" in reasons["wrong_by_assertion"]
    assert reasons["memory"] == "MemoryError"
    assert "budget of 0.3 s" in reasons["timeout"]
    assert "without a measurement" in reasons["nothing"]
    assert "measures twice" in reasons["twice"]
    assert reasons["broken_teardown"] == "at teardown: RuntimeError: no good-bye"
    # only what is ok has samples, in Parquet and in the JSON
    assert {row["op"] for row in runs.table("samples")} == {"ok", "last"}
    document = runs.json()
    assert {row["name"] for row in document["benchmarks"]} == {"bench_ok", "bench_last"}
    assert len(document["cuda_gains"]["cases"]) == len(cases)
    assert document["cuda_gains"]["status"] == "ok"
    # the words the user sees: a reason, no traceback of ours
    done.stdout.fnmatch_lines(["SKIPPED*bench_made.py:*needs two GPUs"])
    done.stdout.fnmatch_lines(["*got 41, expected 42"])
    done.stdout.no_fnmatch_line("*bench_lib/*.py:*")
    done.stdout.no_fnmatch_line("*not used at all*")
    (run,) = runs.table("runs")
    assert (run["complete"], run["exit_code"]) == (True, 1)


def test_a_run_that_measured_nothing_is_green_and_says_so_in_valid_json(runs: Runs):
    runs.write("def bench_one(bench, gpu):\n    bench(lambda: None)\n")
    (runs.path / "run.json").write_text('{"benchmarks": ["of yesterday"]}')
    done = runs.pytest("--benchmark-json=run.json")
    assert done.ret == 0
    done.assert_outcomes(skipped=1)
    assert "was not there" not in done.stdout.str()
    document = runs.json()
    assert document["benchmarks"] == []
    assert document["cuda_gains"]["status"] == "no-results"
    assert document["cuda_gains"]["cases"][0]["status"] == "skipped"
    assert runs.json("run.json.old") == {"benchmarks": ["of yesterday"]}
    assert runs.statuses() == {"made/one": "skipped"}
    done.stdout.fnmatch_lines(
        [
            "cuda-gains: no GPU: libcuda.so.1 not found: no NVIDIA driver here",
            "cuda-gains: skipped, because they measure the GPU itself: made (1 of 1 cases)",
        ]
    )


def test_the_banner_names_cases_that_are_marked_as_a_gpus(runs: Runs):
    runs.write(
        """
from bench_lib.errors import Unavailable

@pytest.mark.needs_gpu(backend="nccl")
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def bench_sum(bench, backend):
    if backend == "nccl":
        raise Unavailable("no GPU")
    bench.record(Series((1.0,)))
"""
    )
    done = runs.pytest()
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(
        ["cuda-gains: skipped, because they measure the GPU itself: made (1 of 2 cases)"]
    )


def test_what_a_case_can_ask_and_the_timings_on_the_cpu(runs: Runs):
    runs.write(
        """
def bench_device(bench, on_gpu, gpu_free, stack, wheels, campaign_folder, bench_policy, order_seed):
    assert (bench.device, on_gpu, bench.policy) == ("cpu", False, bench_policy)
    assert bench.telemetry.read().sm_clock_mhz is None
    assert stack.name == "here" and wheels is None and campaign_folder.name == "mine"
    assert order_seed > 0
    bench(lambda: None, timing="cold")

@pytest.fixture
def gpu_free():
    import sys
    assert not {"torch", "numba", "pandas", "scipy"} & set(sys.modules)

@pytest.mark.parametrize("timing", ["batch", "graph", "host"])
def bench_timing(bench, timing):
    bench(lambda: None, timing=timing, calls=20)

def bench_synchronized(bench):
    waits = []
    bench(lambda: None, timing="host", calls=5, synchronize=lambda: waits.append(1))
    assert len(waits) > 50

def bench_native(bench):
    bench.native(lambda: 5e-7, calls=100)

@pytest.mark.parametrize("bad", [{"timing": "warm"}, {"timing": "cold", "calls": 2}, {"calls": 0}])
def test_wrong_use(bad): pass

def bench_wrong_timing(bench):
    bench(lambda: None, timing="warm")

def bench_cold_calls(bench):
    bench(lambda: None, timing="cold", calls=2)
"""
    )
    done = runs.pytest("--campaign=mine")
    rows = {row["case_id"]: row for row in runs.table("cases", "mine")}
    assert {row["timing"] for row in rows.values() if row["status"] == "ok"} == {"host", "native"}
    assert rows["made/timing[timing=graph]"]["calls"] == 20
    assert rows["made/native"]["n_samples"] == 50
    assert rows["made/wrong_timing"]["reason"] == "timing='warm'; expected cold, batch, graph or host"
    assert "one call" in rows["made/cold_calls"]["reason"]
    assert done.parseoutcomes() == {"passed": 9, "failed": 2}


def test_the_collector_and_the_next_case_are_left_alone(runs: Runs):
    """A failed case's traceback pins nothing, and garbage collection is as it was."""
    runs.write(
        """
import gc, weakref
class Tensor: pass
KEPT = {}

@pytest.fixture
def tensor():
    tensor = Tensor()
    KEPT["fixture"] = weakref.ref(tensor)
    return tensor

def bench_fails(bench, tensor):
    local = Tensor()
    KEPT["local"] = weakref.ref(local)
    cycle = Tensor()
    cycle.itself = cycle
    KEPT["cycle"] = weakref.ref(cycle)
    assert tensor is None

@pytest.fixture
def broken():
    mine = Tensor()
    KEPT["setup"] = weakref.ref(mine)
    raise MemoryError

def bench_fails_in_setup(bench, broken): pass

def bench_next(bench):
    assert {name: ref() for name, ref in KEPT.items()} == dict.fromkeys(KEPT)
    assert len(KEPT) == 4
    assert gc.isenabled()
    bench.record(Series((1.0,)))
"""
    )
    (runs.path / "conftest.py").write_text(
        "import gc\ndef pytest_unconfigure():\n    assert gc.isenabled() and gc.get_freeze_count() == 0\n"
    )
    done = runs.pytest()
    assert done.parseoutcomes() == {"failed": 1, "errors": 1, "passed": 1}
    assert runs.statuses()["made/next"] == "ok"


def test_what_outlives_a_case_is_frozen_also_where_something_was_frozen_before(runs: Runs):
    """Python 3.12 starts with some frozen objects; a collection then still looks at new objects only."""
    runs.write(
        """
import gc

OLD = [[] for _ in range(10_000)]
FROZEN_BEFORE = gc.get_freeze_count()

def bench_first(bench):
    bench.record(Series((1.0,)))

def bench_next(bench):
    assert gc.get_freeze_count() > FROZEN_BEFORE + 10_000
    bench.record(Series((1.0,)))
"""
    )
    (runs.path / "conftest.py").write_text("import gc\ngc.freeze()\n")
    runs.pytest()
    assert runs.statuses() == {"made/first": "ok", "made/next": "ok"}


def test_the_harness_costs_little(runs: Runs):
    """What a case costs beside its measuring: 30 ms of CPU time at most (a disk may take its own)."""
    runs.write(
        """
@pytest.mark.parametrize("n", range(40))
def bench_bare(bench, n):
    bench.record(Series((1e-6,) * 50))
"""
    )
    (runs.path / "conftest.py").write_text(
        "import time\n"
        "stamps = []\n"
        "def pytest_runtest_logstart():\n"
        "    stamps.append(time.process_time())\n"
        "def pytest_unconfigure():\n"
        "    print('EACH', (stamps[-1] - stamps[0]) / (len(stamps) - 1))\n"
    )
    done = runs.pytest("-s")
    done.assert_outcomes(passed=40)
    (line,) = [line for line in done.outlines if line.startswith("EACH")]
    assert float(line.split()[1]) < 0.030


@pytest.mark.parametrize("item", ["--collect-only", "--help", "--fixtures", "--setup-plan"])
def test_looking_imports_no_torch_and_writes_nothing(runs: Runs, item):
    runs.write(THREE)
    (runs.path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_unconfigure():\n"
        "    ours = {'bench_lib.device.driver', 'bench_lib.running.session'}\n"
        "    heavy = ours | {'torch', 'numba', 'pyarrow', 'numpy'}\n"
        "    print('LOADED', sorted(heavy & set(sys.modules)))\n"
    )
    done = runs.pytest(item, "-s", "--benchmark-json=deep/run.json", "--device=cuda")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*LOADED []*"])
    assert runs.files() == set()


def test_collecting_the_shipped_benchmarks_needs_no_torch(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    (tmp_path / "cupy.py").write_text("raise ImportError('no cupy here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, output = run_pytest("benchmarks", "--collect-only", "-q")
    assert code == 0, output[-2000:]
    assert "bench_launch.py::bench_empty[" in output
