"""Ranges of NVTX: seen by a real tool, recorded with the run, and warned of when such a run is compared."""

import subprocess
import sys
from pathlib import Path

import fake_cuda as fake
import pytest
import synthetic
from plugin_runs import Runs

from bench_lib.comparing import sides
from bench_lib.comparing.compare import compare
from bench_lib.errors import UsageError
from bench_lib.observing import ranges

CASES = """
@pytest.mark.parametrize("n", [1, 2])
def bench_it(bench, n):
    bench(lambda: None, timing="host")

def bench_bad(bench):
    raise ValueError("no")
"""


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs(pytester, monkeypatch)
    runs.write(CASES)
    return runs


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A tool as Nsight Systems is one, that writes what it is told."""
    if (compiler := fake.compiler()) is None:
        pytest.skip("no C compiler: the tool that reads ranges cannot be built")
    library = tmp_path / "libtool.so"
    source = Path(__file__).parent / "nvtx_tool.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def settings(runs: Runs) -> list[dict[str, str]]:
    return [dict(run["settings"]) for run in runs.table("runs")]


def test_a_tool_sees_a_range_around_every_case(runs: Runs, tool, monkeypatch, tmp_path):
    pytest.importorskip("nvtx")
    monkeypatch.setenv("NVTX_INJECTION64_PATH", str(tool))
    monkeypatch.setenv("NVTX_LOG", str(tmp_path / "ranges.txt"))
    done = runs.pytest("--device=cpu", "--nvtx")
    done.assert_outcomes(passed=2, failed=1)
    told = (tmp_path / "ranges.txt").read_text().splitlines()
    names = ["made/it[n=1]", "made/it[n=2]", "made/bad"]
    assert told == [
        line for name in names for line in (f"push cuda-gains {name}", "pop cuda-gains -")
    ]  # one after the other, also of the case that failed
    (stored,) = settings(runs)
    assert stored["nvtx"].startswith("nvtx 0.")


def test_without_the_option_there_is_no_range_and_no_setting(runs: Runs, tool, monkeypatch, tmp_path):
    monkeypatch.setenv("NVTX_INJECTION64_PATH", str(tool))
    monkeypatch.setenv("NVTX_LOG", str(tmp_path / "ranges.txt"))
    (runs.path / "conftest.py").write_text(
        "import sys\ndef pytest_unconfigure(config):\n    assert 'nvtx' not in sys.modules\n"
    )
    runs.pytest("--device=cpu").assert_outcomes(passed=2, failed=1)
    assert not (tmp_path / "ranges.txt").exists()
    (stored,) = settings(runs)
    assert "nvtx" not in stored


def test_under_a_profiler_a_run_is_refused_unless_it_is_asked_for(runs: Runs, monkeypatch):
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    assert runs.pytest("--device=cpu").ret == 4
    done = runs.pytest("--device=cpu", "--nvtx")
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["cuda-gains: a profiler is attached * are for looking at"])
    (stored,) = settings(runs)
    assert stored["doctor.profiler"] == "a profiler is attached to this process (NSYS_PROFILING_SESSION_ID)"


def test_another_tool_is_refused_as_ever(runs: Runs, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    done = runs.pytest("--nvtx")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: CUDA_LAUNCH_BLOCKING is set*"])


@pytest.fixture
def without(monkeypatch):
    """Pretend that a library is not installed."""

    def hide(name: str) -> None:
        monkeypatch.setitem(sys.modules, name, None)

    return hide


def test_without_the_package_torch_makes_the_ranges(without, monkeypatch):
    without("nvtx")
    made: list[str] = []

    class Nvtx:
        range_push = staticmethod(made.append)
        range_pop = staticmethod(lambda: made.append("pop"))

    stub = type(sys)("torch")
    stub.__version__ = "2.7"
    stub.cuda = type("cuda", (), {"nvtx": Nvtx})
    monkeypatch.setitem(sys.modules, "torch", stub)
    found = ranges.find()
    made.clear()
    with pytest.raises(ValueError, match="no"), found.around("made/it"):
        raise ValueError("no")
    assert (found.maker, made) == ("torch 2.7", ["made/it", "pop"])


def test_without_either_the_run_says_what_to_install(without):
    without("nvtx")
    without("torch")
    with pytest.raises(UsageError, match=r"pip install -e '.\[observe\]'"):
        ranges.find()


# --- comparing


def write(results: Path, campaign: str, runs: int, **of_run: str) -> None:
    made = synthetic.SyntheticCase(synthetic.cases(1)[0].case)
    for number in range(runs):
        info = synthetic.run_info(campaign, "here", started_at=synthetic.EPOCH + number)
        measured = [synthetic.measurement(made, [1e-4] * 3)]
        synthetic.write_run(results, info, synthetic.identity(synthetic.Machine(), **of_run), measured)


def noted(results: Path) -> str:
    found = compare(*sides.pair("before", "after", None, results))
    return "\n".join(found.notes)


def test_a_run_with_ranges_against_one_without_is_warned_of(tmp_path):
    write(tmp_path, "before", 3)
    write(tmp_path, "after", 2, nvtx="nvtx 0.2.17")
    assert "in 0 of 3 runs of before and 2 of 2 runs of after: they, and a profiler" in noted(tmp_path)
    found = compare(*sides.pair("before", "after", None, tmp_path))
    assert [(d.component, d.candidate) for d in found.differences] == [("nvtx", "nvtx 0.2.17")]


def test_ranges_on_both_sides_are_alike_and_a_profiler_is_told(tmp_path):
    write(tmp_path, "before", 3, nvtx="nvtx 0.2.17")
    write(tmp_path, "after", 3, nvtx="nvtx 0.2.17", **{"doctor.profiler": "nsys"})
    said = noted(tmp_path)
    assert "ranges of NVTX" not in said
    assert "after: 3 of 3 runs were measured under a profiler" in said


def test_ranges_in_some_runs_of_a_side_are_told(tmp_path):
    for campaign in ("before", "after"):
        write(tmp_path, campaign, 1)
        write(tmp_path, campaign, 1, nvtx="nvtx 0.2.17")
    assert "1 of 2 runs of before and 1 of 2 runs of after" in noted(tmp_path)
