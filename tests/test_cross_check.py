"""Our times beside nvbench's: a process of a pretended nvbench on a pretended GPU, and how it may end."""

import statistics
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import synthetic
from figures import assert_readable, in_one_line, points
from plugin_runs import run_pytest

from bench_lib.comparing import sides, store
from bench_lib.comparing.changes import Change
from bench_lib.comparing.contrast import contrast
from bench_lib.cross_check import asking
from bench_lib.cross_check.child import Request
from bench_lib.drawing.cross_check_chart import cross_check
from bench_lib.errors import CaseTimeout, Crashed, CudaGainsError, Unavailable, UsageError
from bench_lib.model import Case, Policy, Series, Timing

ROOT = Path(__file__).parents[1]
NVBENCH = str(Path(__file__).parent / "fake_nvbench")
POLICY = Policy("quick", samples=5, budget_seconds=1.0, warmup_seconds=0.01)


def measure(results: Path, env: dict[str, str], *options: str) -> tuple[int, str]:
    return run_pytest("benchmarks", "--family", "cross_check", "--results", results, *options, env=env)


def cases(results: Path) -> dict[str, dict]:
    (path,) = (results / "local/cases").glob("*.parquet")
    return {row["case_id"]: row for row in pq.read_table(path).to_pylist()}


def test_both_tools_measure_the_same_work_and_are_not_judged_against_one_another(fake_cuda, tmp_path):
    env = {**fake_cuda, "PYTHONPATH": f"{ROOT}:{NVBENCH}", "FAKE_CUDA_LAUNCH_NS": "20000"}
    code, output = measure(tmp_path, {**env, "FAKE_CUDA_EVENT_NS": "0"}, "--quick")
    assert code == 0, output
    found = cases(tmp_path)
    assert {row["status"] for row in found.values()} == {"ok"}, output
    timing = {case.partition("/")[2]: row["timing"] for case, row in found.items()}
    assert timing == {
        "empty[metric=cold,tool=ours]": "cold",
        "empty[metric=cold,tool=nvbench]": "nvbench cold samples",
        "spin[metric=cold,tool=ours]": "cold",
        "spin[metric=cold,tool=nvbench]": "nvbench cold samples",
        "spin[metric=batch,tool=ours]": "batch",
        "spin[metric=batch,tool=nvbench]": "nvbench batch mean",
    }
    theirs = found["cross_check/empty[metric=cold,tool=nvbench]"]
    assert (theirs["n_samples"], dict(theirs["facts"])["cuda_bench.version"]) == (15, "0.3.0")
    (path,) = (tmp_path / "local/samples").glob("*.parquet")
    seconds: dict[str, list[float]] = {}
    for row in pq.read_table(path).to_pylist():
        seconds.setdefault(row["case_id"], []).append(row["seconds"])
    empty = statistics.median(seconds["cross_check/empty[metric=cold,tool=nvbench]"])
    assert 20e-6 <= empty < 1e-3  # the pretended nvbench holds no stream
    (spin,) = seconds["cross_check/spin[metric=batch,tool=nvbench]"]
    assert spin == pytest.approx(1e-3, rel=0.2)  # a million cycles at the pretended 1 GHz
    side = sides.whole_stack(None, "local", tmp_path)
    compared = contrast(side, "tool", "ours", "nvbench").cases
    assert {row.change for row in compared} == {Change.NOT_COMPARABLE}
    assert any("timing cold against nvbench cold samples" in row.reason for row in compared)


def test_it_is_measured_only_when_named():
    code, output = run_pytest("benchmarks/bench_cross_check.py", "--collect-only", "-q")
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "named: --family cross_check" in output


@pytest.fixture
def packages(monkeypatch):
    """The packages of the environment, as a test says they are."""
    there: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in there:
            raise asking.metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(asking.metadata, "version", version)
    return there


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({}, "nvbench for Python (cuda-bench) is not installed; pip install 'cuda-bench[cu12]'"),
        ({"cuda-bench": "0.2.1", "cuda-bindings": "12.9"}, "cuda-bench 0.2.1 is too old"),
        ({"cuda-bench": "0.3.0"}, "cuda-bench needs cuda-bindings 12 or 13, this environment has none"),
        ({"cuda-bench": "0.3.0", "cuda-bindings": "11.8.7"}, "this environment has 11.8.7"),
    ],
)
def test_what_is_missing_is_one_sentence(packages, there, told):
    packages |= there
    with pytest.raises(Unavailable) as caught:
        asking.measure(["empty"], Path("none.cubin"), POLICY)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_both_majors_of_cuda_are_taken(packages):
    for bindings in ("12.9.4", "13.5.0"):
        packages |= {"cuda-bench": "0.3.0", "cuda-bindings": bindings}
        assert asking.require() == "0.3.0"


@pytest.fixture
def in_nvbench(fake_cuda, monkeypatch, packages):
    """The environment in which a child finds the pretended GPU and nvbench."""
    for name, value in {**fake_cuda, "PYTHONPATH": f"{ROOT}:{NVBENCH}"}.items():
        monkeypatch.setenv(name, value)
    packages |= {"cuda-bench": "0.3.0", "cuda-bindings": "13.0.0"}
    return monkeypatch


@pytest.fixture
def cubin(on_fake_gpu, tmp_path) -> Path:
    def make(folder):
        from pathlib import Path

        from bench_lib.device import kernels
        from bench_lib.device.driver import Driver

        context = Driver.load().open()
        kernels.cubin(context, Path(folder))
        return str(kernels.cubin_path(context, Path(folder)))

    return Path(on_fake_gpu(make, str(tmp_path)))


def test_what_nvbench_skips_is_an_error_in_its_place(in_nvbench, cubin):
    in_nvbench.setenv("FAKE_NVBENCH", "skip")
    found = asking.measure(["empty"], cubin, POLICY)
    with pytest.raises(CudaGainsError, match="nvbench did not measure it: made to"):
        asking.taken(found, "empty", "cold")
    with pytest.raises(CudaGainsError, match="nvbench gave no batch time of empty"):
        asking.taken(found, "empty", "batch")


@pytest.mark.parametrize(
    ("fate", "error", "limit", "told"),
    [
        ("die", Crashed, 30.0, "ended with -9"),
        ("hang", CaseTimeout, 1.0, "did not end within 1 s"),
        ("nothing", CudaGainsError, 30.0, "ended with 0: no output"),
    ],
)
def test_how_the_child_may_end(in_nvbench, cubin, fate, error, limit, told):
    in_nvbench.setenv("FAKE_NVBENCH", fate)
    with pytest.raises(error, match=told):
        asking.measure(["empty"], cubin, POLICY, seconds=limit)


def test_an_error_of_the_child_is_its_last_line(in_nvbench, tmp_path):
    with pytest.raises(CudaGainsError, match=r"ended with 1: Unavailable: the kernels cannot be read from"):
        asking.measure(["empty"], tmp_path / "none.cubin", POLICY)


def test_the_request_survives_its_way(tmp_path):
    request = Request(("empty", "spin"), "a.cubin", 15, 0.02, str(tmp_path / "n.json"))
    assert Request.of(request.text()) == request
    assert request.arguments()[0] == "cuda-gains"


# --- side by side


def write(results: Path, runs: int, shift: float = 0.02) -> store.Data:
    """Runs in which nvbench's times of a spin are longer by `shift`, of the empty kernel 5 % shorter."""
    for number in range(runs):
        info = synthetic.run_info("checked", "here", started_at=synthetic.EPOCH + number)
        pace = 1 + number / 100
        made = []
        for op, metric, tool, timing, seconds in [
            ("empty", "cold", "ours", Timing.COLD, 2.0e-6),
            ("empty", "cold", "nvbench", Timing.NVBENCH_COLD, 1.9e-6),
            ("spin", "batch", "ours", Timing.BATCH, 500e-6),
            ("spin", "batch", "nvbench", Timing.NVBENCH_BATCH, 500e-6 * (1 + shift)),
            ("conv", "cold", "ours", Timing.COLD, 90e-6),  # of which nvbench has none
        ]:
            case = Case("cross_check", op, {"metric": metric, "tool": tool})
            made_up = synthetic.SyntheticCase(case, timing=timing)
            made.append(synthetic.measurement(made_up, [pace * seconds]))
        synthetic.write_run(results, info, synthetic.identity(synthetic.Machine()), made)
    return store.load(results, ["checked"])


def test_the_chart_shows_each_ratio_inside_a_run_with_both_times(tmp_path):
    figure = cross_check(write(tmp_path, 3))
    assert points(figure, 0) == pytest.approx({"empty; cold: nvbench": 0.95, "spin; batch: nvbench": 1.02})
    text = in_one_line(figure)
    assert "0.950 (1.919 µs against 2.02 µs)" in text
    assert "3 runs" in text
    assert "1 case was measured by one tool only" in text
    assert "nvbench's times are 0.950 to 1.020 times ours" in text
    assert_readable(figure)


def test_without_both_tools_there_is_no_chart(tmp_path):
    synthetic.write_campaign(tmp_path, "plain", {"old": 1.0}, rounds=1, null=False)
    with pytest.raises(UsageError, match="measure it with --family cross_check"):
        cross_check(store.load(tmp_path, ["plain"]))


def test_a_series_of_nvbench_is_kept_under_its_own_method():
    series = Series((1e-6,), timing=Timing("nvbench batch mean"))
    assert series.timing is Timing.NVBENCH_BATCH
