"""First steps in children: cold and warm for real on the CPU, and every way a child can end."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from plugin_runs import rows, run_benchmarks

from bench_lib.compiling import compile_children
from bench_lib.compiling.compile_children import First, FirstStep, cache_environment, default_caches
from bench_lib.compiling.executions import measure
from bench_lib.compiling.training import Setup
from bench_lib.convolution.precision import Precision
from bench_lib.errors import CudaGainsError, Unavailable
from bench_lib.model import Policy
from bench_lib.timing.turns import HostClock

ROOT = Path(__file__).parents[1]
FILE = "benchmarks/bench_compile_resnet50.py"
INFER = Setup("bottleneck", "infer", 4, Precision.FP32, "channels_last")
TRAIN = Setup("bottleneck", "train", 4, Precision.FP32, "channels_last")
POLICY = Policy("test", samples=8, budget_seconds=5.0, min_samples=5, max_warmup_seconds=0.2)


def first_step(setup, execution, device, caches, cold):
    return FirstStep(setup, execution, device, caches).take(cold)


@pytest.fixture(scope="module")
def torch():
    """Here and in all children on one thread: two that wait by spinning are slow on a busy machine."""
    pytest.importorskip("torchvision")
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield torch
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(scope="module")
def cold(torch, caches):
    """The one cold compilation of these tests: half a minute."""
    return first_step(INFER, "compiled", "cpu", caches, cold=True)


def test_a_cold_first_step_fills_caches_of_its_own(cold, caches):
    assert cold.cache_hits == 0
    assert cold.cache_misses > 0
    assert any((caches / "inductor").rglob("*.so"))
    assert cold.facts["compile.graphs"] == "1"
    assert cold.facts["precision.convolution"] == "ieee"


def test_a_warm_first_step_finds_them_and_is_faster(cold, caches):
    warm = first_step(INFER, "compiled", "cpu", caches, cold=False)
    assert warm.cache_hits > 0
    assert warm.seconds < cold.seconds / 2


def test_eager_has_a_first_step_too(torch, tmp_path):
    first = first_step(INFER, "eager", "cpu", tmp_path, cold=True)
    assert 0 < first.seconds < 30
    assert first.facts["compile.graphs"] == "0"


def test_the_compiled_stage_agrees_with_eager_and_is_measured_in_turns(cold, caches, monkeypatch):
    for name, folder in cache_environment(caches).items():
        monkeypatch.setenv(name, folder)
    found = measure(INFER, ["eager", "compiled"], "cpu", HostClock(), POLICY)
    eager, compiled = found["eager"]["step"], found["compiled"]["step"]
    assert len(eager.seconds) == len(compiled.seconds) >= 5
    assert eager.turns == compiled.turns
    assert compiled.facts["compile.graphs"] == "1"
    assert float(compiled.facts["relative_error.output"]) < 1e-4


def bench(results, *options, **variables):
    """Statuses, and what was stored of the cases that are ok, of a run of the benchmark file."""
    campaign = run_benchmarks(results, FILE, "--device", "cpu", *options, **variables)
    return rows(campaign, "cases"), rows(campaign, "samples")


def test_quick_on_the_cpu_measures_inference_of_a_stage_in_turns(cold, caches, tmp_path):
    rows, samples = bench(tmp_path, "--quick", **cache_environment(caches))
    by_status = {}
    for row in rows:
        by_status.setdefault(row["status"], []).append(row)
    assert set(by_status) == {"ok", "not-applicable"}
    assert {json.loads(row["params"])["execution"] for row in by_status["ok"]} == {"eager", "compiled"}
    assert {row["turns"] for row in by_status["ok"]} == {INFER.name}
    assert {row["margin"] for row in by_status["ok"]} == {0.02}
    facts = [dict(row["facts"]) for row in by_status["ok"]]
    assert {fact["compile.cache"].split()[0] for fact in facts} == {"0", str(cold.cache_misses)}
    assert len({sum(s["case_id"] == row["case_id"] for s in samples) for row in by_status["ok"]}) == 1
    assert all("a GPU's case" in row["reason"] for row in by_status["not-applicable"])


def test_the_processes_of_all_set_ups_asked_for_come_up_together():
    """Those of the whole network, and no set-up that nobody asks for."""
    module = runpy.run_path(str(ROOT / FILE))

    def item(function, *row):
        params = dict(zip(module["PARAMS"], row, strict=True))
        return SimpleNamespace(originalname=function, callspec=SimpleNamespace(params=params))

    items = [
        item("bench_resnet50", *module["TRAIN_128"], "eager", "first_cold"),
        item("bench_resnet50", *module["TRAIN_128"], "compiled", "first_warm"),
        item("bench_resnet50", *module["INFER_128"], "compiled", "first_cold"),
        item("bench_resnet50", "train", 64, "tf32", "nchw", "eager", "step"),
        item("bench_bottleneck", *module["CPU_SETUPS"][0], "eager", "first_cold"),
        SimpleNamespace(),
    ]
    names = [setup.name for setup in module["first_setups"](items)]
    expected = [
        Setup("resnet50", mode, 128, Precision.BF16_AUTOCAST, "channels_last").name
        for mode in ("infer", "train")
    ]
    assert names == expected


@pytest.mark.slow
def test_first_steps_store_what_compiling_costs(torch, tmp_path):
    rows, _ = bench(tmp_path, "--full", "-k", "bottleneck and infer", **cache_environment(tmp_path))
    found = {(p["execution"], p["metric"]): row for row in rows if (p := json.loads(row["params"]))}
    assert {row["status"] for row in rows} == {"ok"}
    cold, warm = found["compiled", "first_cold"], found["compiled", "first_warm"]
    assert cold["margin"] == warm["margin"] == 0.10
    assert dict(cold["quantities"])["compile_seconds"] > dict(warm["quantities"])["compile_seconds"] > 0
    assert ("payback_steps" in dict(cold["quantities"])) != ("payback" in dict(cold["facts"]))


@pytest.mark.parametrize(("options", "n"), [(["--quick"], "12/"), ([], "35/"), (["--full"], "513 ")])
def test_how_many_cases_there_are(options, n):
    command = [
        sys.executable,
        "-m",
        "pytest",
        FILE,
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip().splitlines()[-1].startswith(n)


@pytest.mark.slow
def test_a_compiled_training_step_agrees_and_has_its_parts(torch, tmp_path, monkeypatch):
    for name, folder in cache_environment(tmp_path).items():
        monkeypatch.setenv(name, folder)
    found = measure(TRAIN, ["eager", "compiled"], "cpu", HostClock(), POLICY)
    assert set(found["compiled"]) == {"step", "forward", "backward", "optimizer"}
    assert float(found["compiled"]["step"].facts["relative_error.gradient"]) < 0.01


@pytest.mark.slow
def test_a_cold_and_a_warm_training_step(torch, tmp_path):
    cold = first_step(TRAIN, "compiled", "cpu", tmp_path, cold=True)
    warm = first_step(TRAIN, "compiled", "cpu", tmp_path, cold=False)
    assert warm.cache_hits > 0
    assert warm.seconds < cold.seconds / 2


class Told:
    """Stands for a worker: plays one answer."""

    def __init__(self, answer):
        self.told, self.asked, self.closed = answer, [], False

    def __call__(self, make, *arguments, daemon, variables):
        return self

    def start(self):
        pass

    up = start

    def send(self, request):
        self.asked.append(request)

    def answer(self, seconds):
        return self.told

    def ask(self, request, seconds):
        self.send(request)
        return self.told

    def close(self):
        self.closed = True


def test_a_cold_first_step_that_finds_something_is_refused(monkeypatch, tmp_path):
    """As with a remote cache of Inductor; the warm one is meant to find something."""
    told = Told(First(2.5, cache_hits=3, cache_misses=0))
    monkeypatch.setattr(compile_children, "Worker", told)
    monkeypatch.setattr(compile_children.compile_preflight, "check", lambda device: None)
    with pytest.raises(CudaGainsError, match="3 hits, expected none"):
        first_step(TRAIN, "compiled", "cuda", tmp_path, cold=True)
    assert told.closed
    assert told.asked == [compile_children.MAKE, compile_children.TAKE]
    assert first_step(TRAIN, "compiled", "cuda", tmp_path, cold=False).cache_hits == 3


class Step:
    """Stands for the process of a first step: notes what is done with it."""

    log: tuple | list = ()

    def __init__(self, setup, execution, device, caches):
        self.name = f"{setup.mode} {execution}"
        self.caches = caches

    def __getattr__(self, what):
        def act():
            self.log.append((what, self.name))
            if what in ("up", "place", "placed") and self.name.startswith("infer"):
                raise CudaGainsError("it says so when it is asked")

        return act


@pytest.fixture
def first_steps(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(compile_children, "FirstStep", Step)
    monkeypatch.setattr(Step, "log", [])
    firsts = [("eager", "first_cold"), ("compiled", "first_cold"), ("compiled", "first_warm")]
    return compile_children.FirstSteps(firsts, "cpu", lambda: tmp_path_factory.mktemp("caches"))


def names(*acts):
    """Each act done with all three processes of the set-ups, one act after the other."""
    return [
        (act, f"{mode} {execution}")
        for act in acts
        for mode in ("train", "infer")
        for execution in ("eager", "compiled", "compiled")
    ]


def test_processes_import_beside_what_is_not_timed_and_make_their_arms_later(first_steps):
    first_steps.start([TRAIN, INFER])
    first_steps.ready()
    assert Step.log == names("start", "up")
    made = first_steps.of(TRAIN)
    assert Step.log[12:] == names("start", "place", "placed")
    warm, cold, eager = (
        made[one].caches
        for one in [("compiled", "first_warm"), ("compiled", "first_cold"), ("eager", "first_cold")]
    )
    assert warm == cold != eager
    done = len(Step.log)
    first_steps.start([INFER])
    first_steps.ready()
    first_steps.of(INFER)
    assert len(Step.log) == done  # a process whose step was taken has ended, and stays so
    first_steps.close()
    assert Step.log[done:] == names("close")


def test_an_arm_that_cannot_be_made_says_so_each_time(torch, tmp_path):
    wrong = Setup("bottleneck", "infer", -1, Precision.FP32, "channels_last")
    step = FirstStep(wrong, "eager", "cpu", tmp_path)
    step.up()
    step.place()
    for attempt in (step.placed, step.placed, lambda: step.take(cold=True)):
        with pytest.raises(CudaGainsError, match="RuntimeError"):
            attempt()


def test_what_runs_beside_the_making_of_arms_ends_before_the_turns(torch, monkeypatch):
    from bench_lib.compiling import executions

    done = []
    monkeypatch.setattr(executions, "_prepare", lambda *_: done.append("made") or ({}, {}))
    monkeypatch.setattr(executions, "in_turns", lambda *_, **__: done.append("turns") or {})
    executions.measure(
        INFER, ["eager"], "cpu", HostClock(), POLICY, before_turns=lambda: done.append("ready")
    )
    assert done == ["made", "ready", "turns"]


def test_an_error_in_the_process_comes_as_one_sentence(torch, tmp_path):
    wrong = Setup("bottleneck", "infer", -1, Precision.FP32, "channels_last")
    with pytest.raises(CudaGainsError, match="RuntimeError") as caught:
        first_step(wrong, "eager", "cpu", tmp_path, cold=True)
    assert "\n" not in str(caught.value)


def test_without_a_compiler_no_step_is_taken(monkeypatch, tmp_path):
    told = Told(None)
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setattr(compile_children, "Worker", told)
    with pytest.raises(Unavailable, match="CXX"):
        first_step(INFER, "compiled", "cpu", tmp_path, cold=True)
    assert told.closed
    assert not told.asked


TRAINS_FIRST = """
import os

FAMILY = "made"

def bench_trains_first(bench, torch):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    bench(lambda: None, timing="host")
    bench.fact("caches", os.environ["TORCHINDUCTOR_CACHE_DIR"])
"""


def test_what_is_compiled_is_kept_in_one_place_whatever_case_came_first(torch, tmp_path):
    """The first step of an optimizer makes Inductor settle on a folder, if nobody has told it one."""
    (tmp_path / "bench_made.py").write_text(TRAINS_FIRST)
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    command = [sys.executable, "-m", "pytest", tmp_path, "--device", "cpu", "--results", tmp_path / "results"]
    subprocess.run(
        [*map(str, command), "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"],
        env={**environment, "XDG_CACHE_HOME": str(tmp_path / "home")},
        timeout=300,
        check=True,
    )
    (row,) = pq.read_table(tmp_path / "results" / "local" / "cases").to_pylist()
    expected = tmp_path / "home" / "cuda-gains" / "compile" / torch.__version__ / "inductor"
    assert dict(row["facts"])["caches"] == str(expected)


def test_steady_caches_are_apart_for_each_torch(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_caches("2.6.0+cu124") == tmp_path / "cuda-gains" / "compile" / "2.6.0+cu124"
