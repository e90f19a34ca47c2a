"""`cuda-gains run` as a command: what it says before it measures."""

import subprocess
import sys
from pathlib import Path

import pytest
from plugin_runs import INI

from bench_lib.journaling import held, journal
from bench_lib.journaling.journal import Journal
from bench_lib.layout import CampaignFolder
from bench_lib.model import Case, Measurement, RunInfo, Series, Status

BUSY = "load 64.0 on 2 CPUs, expected an idle machine"
BENCH = "from bench_lib.model import Series\ndef bench_a(bench):\n    bench.record(Series((1.0,)))\n"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, with a folder of benchmark files that take no time; there is no GPU."""
    (folder / "made").mkdir(exist_ok=True)
    (folder / "made/pytest.ini").write_text(INI)
    (folder / "made/bench_made.py").write_text(BENCH)
    code = "import sys; from bench_lib.cli import main; from bench_lib.doctor import first; "
    code += f"first.busy = lambda: {BUSY!r}; sys.argv[0] = 'cuda-gains'; main()"
    command = [sys.executable, "-c", code, "run", "--benchmarks", "made", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.usefixtures("no_gpu")
def test_a_campaign_without_a_gpu_says_so_before_it_measures(tmp_path: Path) -> None:
    done = run(tmp_path, "--stack", "here", "--rounds", "1", "--no-null")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("cuda-gains: no GPU: ")
    assert "; this campaign measures the CPU and skips what needs a GPU\n" in done.stderr
    assert done.stderr.splitlines()[1] == f"cuda-gains: {BUSY}"
    again = "cuda-gains run --stack here --rounds 3 --campaign local --no-null --benchmarks made"
    later = (
        "after the upgrade the same with --campaign local-after, then cuda-gains compare local local-after"
    )
    assert done.stderr.splitlines()[-1] == f"next: {again}  # for verdicts; {later}"
    done = run(tmp_path, "--stack", "here", "--rounds", "3", "--no-null")
    assert done.stderr.splitlines()[-1] == f"next: {later.replace('the same', 'this command')}"
    assert "already holds" not in done.stderr  # its own rounds


@pytest.mark.usefixtures("no_gpu")
def test_a_campaign_in_which_a_quick_look_lies_says_so(tmp_path: Path) -> None:
    """What plain pytest measured there is none of its rounds, and its contrast none of its own."""
    looked(CampaignFolder(tmp_path / "results", "local"), "r", "cudnn_selection")
    done = run(tmp_path, "--stack", "here", "--rounds", "3", "--no-null")
    assert done.stderr.splitlines()[0] == (
        "cuda-gains: local already holds 1 other run (by plain pytest, policy quick, cudnn_selection); "
        "name your own with --campaign"
    )
    assert "--contrast" not in done.stderr.splitlines()[-1]
    assert done.returncode == 0


def looked(folder: CampaignFolder, run_id: str, family: str) -> None:
    """What a quick look of plain pytest leaves: a run without a round."""
    info = RunInfo(run_id, folder.name, "here", "here", device="cpu", policy="quick")
    with Journal(folder.journal(run_id)) as written:
        written.run(info)
        for value in ("off", "on"):
            case = Case(family, "a", {"benchmark": value})
            known = Measurement(case, Status.OK, series=Series((1.0, 2.0)), nodeid=value)
            written.case(known, "quick")
        written.end(0)
    journal.finish(folder.journal(run_id), folder)


def test_runs_of_another_policy_or_family_and_rounds_are_others(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path, "mine")
    assert held.others(folder, False, "quick", {"launch"}) == ""
    looked(folder, "r1", "launch")
    looked(folder, "r2", "canary")
    assert held.others(folder, False, "quick", {"launch", "canary"}) == ""
    of_canary = "mine already holds 1 other run (by plain pytest, policy quick, canary); name your own with "
    assert held.others(folder, False, "quick", {"launch"}) == f"{of_canary}--campaign"
    both = "mine already holds 2 other runs (by plain pytest, policy quick, canary, launch); name your own "
    assert held.others(folder, False, "default", {"launch", "canary"}) == f"{both}with --campaign"
    assert held.others(folder, True, "") == f"{both}with --campaign"


def test_the_runs_that_repeat_a_measurement_are_counted_by_the_rarest_family(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path, "mine")
    for run_id, family in (("r1", "launch"), ("r2", "launch"), ("r3", "canary")):
        looked(folder, run_id, family)
    assert held.repeats(folder, "here", "quick", {"launch"}) == 2
    assert held.repeats(folder, "here", "quick", {"launch", "canary"}) == 1
    assert held.repeats(folder, "here", "default", {"launch"}) == 0
    assert held.repeats(folder, "there", "quick", {"launch"}) == 0


@pytest.mark.usefixtures("no_gpu")
def test_a_stack_of_which_nothing_would_be_measured_is_refused_before_it_is_fetched(tmp_path: Path) -> None:
    suite = ("--benchmarks", str(Path(__file__).parents[1] / "benchmarks"))
    done = run(tmp_path, "--stack", "cudart-12.4", *suite)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cuda-gains: there is no GPU (")
    assert done.stderr.endswith("or name --family canary, which has a case of the CPU\n")
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_that_was_asked_for_and_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    """Before a stack is fetched, and before a plan is stored."""
    done = run(tmp_path, "--stack", "cudart-11.8", "--device", "cuda")
    assert done.returncode == 4
    assert done.stderr.startswith("cuda-gains: --device cuda was given and there is no GPU to measure: ")
    assert not (tmp_path / "results").exists()


def test_wrong_words_are_one_sentence_and_fetch_nothing(tmp_path: Path) -> None:
    for arguments, said in (
        (("--device", "gpu"), "--device is 'gpu', expected one of auto, cuda, cpu"),
        (("--family", "mad"), "there is no family 'mad' in made or the suite; did you mean 'made'?"),
        (("--family", "lanch"), "there is no family 'lanch' in made or the suite; did you mean 'launch'?"),
        (("--stack", "cudart-124"), "there is no stack 'cudart-124'; did you mean 'cudart-12.4'?"),
    ):
        done = run(tmp_path, "--stack", "cudart-11.8", *arguments)
        assert (done.returncode, done.stderr) == (2, f"cuda-gains: {said}\n")
    assert not (tmp_path / "results").exists()
