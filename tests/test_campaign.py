"""A campaign with real processes: rounds, faults, kill -9, Ctrl-C; the same command goes on.

The measuring process is a stand-in that writes a journal as the plugin does; the last tests use the
plugin itself.
"""

import io
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from bench_lib.campaigns import campaign, merge, schedule
from bench_lib.campaigns.campaign import Plan
from bench_lib.campaigns.plan import settle, write_json
from bench_lib.errors import DataError, Refused, UsageError
from bench_lib.journaling import journal
from bench_lib.journaling.journal import Journal
from bench_lib.layout import CampaignFolder
from bench_lib.model import RunInfo
from bench_lib.units import duration_text

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
STAND_IN = """
import argparse, json, os, random, signal, subprocess, sys, time
from pathlib import Path
from bench_lib.journaling.journal import Journal, finish
from bench_lib.layout import CampaignFolder
from bench_lib.model import Case, Identity, Measurement, RunInfo, Series, Status

parser = argparse.ArgumentParser()
for name in ("--campaign", "--stack", "--results", "--device"):
    parser.add_argument(name)
asked, _ = parser.parse_known_args()
task = json.loads(Path(os.environ["CUDA_GAINS_TASK"]).read_text())
fault = json.loads(os.environ.get("FAULT", "{}"))  # what a process does: before all, or in a case
with open(os.environ["PIDS"], "a") as stream:
    print(os.getpid(), file=stream)


def do(what):
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "exit":
        os._exit(0)
    elif what == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        time.sleep(60)
    elif isinstance(what, int):
        print("a sentence that says why")
        sys.exit(what)


do(fault.get("before"))
cases = [Case("made", op) for op in ("a", "b", "c", "d") if op not in task["skip"]]
if not cases:
    sys.exit(5)
random.Random(task["seed"]).shuffle(cases)
folder = CampaignFolder(Path(asked.results), asked.campaign)
journal = Journal(folder.journal(task["run_id"]))
info = {key: task[key] for key in ("run_id", "round", "arm", "position", "seed")}
info["device"] = fault.get("device", "cuda") if task["position"] >= fault.get("from", 0) else "cuda"
journal.run(RunInfo(campaign=asked.campaign, stack=asked.stack, started_at=time.time(), **info))
gpu = fault.get("gpu", "GPU-1") if task["position"] == 1 else "GPU-1"
machine = {"host": "h", "boot_id": "b", "gpu.uuid": gpu, "gpu.name": fault.get("model", "H")}
journal.identity(Identity(machine=machine))
failed = False
for position, case in enumerate(cases):
    known = Measurement(case, Status.CRASHED, margin=0.02, position=position, nodeid=case.op)
    what = fault.get("what") if fault.get("op") == case.op else None
    journal.start(known, "default", 0.2 if what == "hang" else 60.0)
    time.sleep(float(os.environ.get("SECONDS_A_CASE", "0")))
    do(what)
    if what == "fail":
        failed, status, series = True, Status.FAILED, None
    else:
        flags = ("preempted", "") if case.op in fault.get("flagged", ()) else ()
        status, series = Status.OK, Series((1.0, 2.0), flags)
    reason = "made to fail" if failed else ""
    journal.case(Measurement(case, status, reason, series, 0.02, position, case.op), "default")
    if what == "stop":
        break
code = 2 if what == "stop" else int(failed)
if code != 2:
    journal.end(code)
journal.close()
finish(journal.path, folder)
if fault.get("after"):
    do(fault["after"])
sys.exit(code)
"""


class Kit:
    """A plan over the stand-in, and what it left on disk."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = folder
        self.pids = folder / "pids"
        self._monkeypatch = monkeypatch
        (folder / "child.py").write_text(STAND_IN)
        (folder / "stacks.toml").write_text('[here]\nkind = "here"\n[there]\nkind = "here"\n')
        monkeypatch.setenv("PIDS", str(self.pids))
        self.said = ""

    def fault(self, **fault: object) -> None:
        self._monkeypatch.setenv("FAULT", json.dumps(fault))

    def plan(self, **changes: Any) -> Plan:
        given: dict[str, Any] = {
            "campaign": "c",
            "results": self.path / "results",
            "stacks": ("here", "there"),
            "rounds": 2,
            "benchmarks": self.path,
            "stacks_file": self.path / "stacks.toml",
            "seed": 1,
            "watchdog_seconds": 0.3,
            "idle_seconds": 20.0,
            "program": (sys.executable, str(self.path / "child.py")),
        }
        return Plan(**given | changes)

    def run(self, **changes: Any) -> int:
        output = io.StringIO()
        code = campaign.run(self.plan(**changes), Console(file=output, width=200))
        self.said = output.getvalue()
        return code

    def run_one(self, **changes: Any) -> int:
        """Rounds of one arm."""
        return self.run(**{"stacks": ("here",), "null": False, "rounds": 1} | changes)

    def begin(self, **changes: Any) -> None:
        """A campaign that was begun: its plan is stored, and there is a run."""
        settle(self.plan(**changes))
        journal = Journal(self.folder.journal("first"))
        journal.run(RunInfo("first", "c", "here", "here", round="r"))
        journal.close()

    def stored_plan(self) -> dict[str, Any]:
        return dict(json.loads((self.folder.path / "plan.json").read_text()))

    @property
    def folder(self) -> CampaignFolder:
        return CampaignFolder(self.path / "results", "c")

    def table(self, name: str) -> list[dict[str, Any]]:
        return [row for f in self.folder.parquet_files(name) for row in pq.read_table(f).to_pylist()]

    def rounds(self) -> list[dict[str, Any]]:
        rounds = [json.loads(f.read_text()) for f in campaign.finished_rounds(self.folder)]
        return sorted(rounds, key=lambda r: float(r["started_at"]))

    def statuses(self, arm: str) -> dict[str, set[str]]:
        """Case -> the ways it ended in an arm, over all rounds."""
        found: dict[str, set[str]] = {}
        for row in self.table("cases"):
            if row["arm"] == arm:
                found.setdefault(row["op"], set()).add(row["status"])
        return found

    def alive(self) -> list[int]:
        """Measuring processes that are still there."""
        pids = self.pids.read_text().split() if self.pids.exists() else []
        return [pid for pid in map(int, pids) if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    return Kit(tmp_path, monkeypatch)


ARMS = ["here", "there", "here#2"]
ALL_OK = {op: {"ok"} for op in "abcd"}


def test_rounds_hold_every_arm_in_the_planned_order(kit: Kit) -> None:
    assert kit.run(rounds=2) == 0
    runs = kit.table("runs")
    assert len(kit.rounds()) == 2
    for index, this in enumerate(kit.rounds()):
        mine = sorted((r for r in runs if r["round"] == this["round"]), key=lambda r: int(r["position"]))
        assert [r["arm"] for r in mine] == schedule.order(ARMS, 1, index) == this["order"]
        assert {r["seed"] for r in mine} == {schedule.case_seed(1, index)}
        assert sorted(r["run_id"] for r in mine) == sorted(this["runs"])
        assert (this["host"], this["boot_id"], this["gpu_uuid"]) == ("h", "b", "GPU-1")
    assert {r["stack"] for r in runs if r["arm"] == "here#2"} == {"here"}
    assert [kit.statuses(arm) for arm in ARMS] == [ALL_OK] * 3
    assert "round 2 of 2, " in kit.said
    assert "2 of 2 rounds are in" in kit.said
    results = f"--results {kit.path / 'results'}"
    last = kit.said.splitlines()[-1]
    assert last.startswith("next: cuda-gains run --stack here --stack there --rounds 3 --campaign c ")
    assert last.endswith(f"  # then cuda-gains compare here there --campaign c {results}")
    assert "flagged" not in kit.said
    assert list((kit.folder.path / "logs").iterdir()) == []


def test_finished_rounds_count_and_rounds_may_grow(kit: Kit) -> None:
    kit.fault(flagged="ad")
    assert kit.run_one(rounds=1) == 0
    assert (
        "round 1 of 1, here: 4 cases, 4 measured (2 flagged preempted) in " in kit.said
    )  # not at compare only
    last = kit.said.splitlines()[-1]
    assert last.startswith("next: cuda-gains run --stack here --rounds 3 --campaign c ")
    assert "  # for verdicts; after the upgrade the same with --campaign c-after, then cuda-gains " in last
    first = kit.rounds()
    assert first[0]["order"] == ["here"]
    assert kit.run_one(rounds=1) == 0
    assert kit.rounds() == first
    assert " is finished, " not in kit.said
    assert kit.run_one(rounds=2) == 0
    assert kit.rounds()[0] == first[0]
    seconds = first[0]["ended_at"] - first[0]["started_at"]
    took = duration_text(seconds)
    assert f"1 round is finished, 1 more takes about {took}: a round took {took}\n" in kit.said
    assert kit.said.index("1 round is finished") < kit.said.index("round 2 of 2, ")
    assert len(kit.rounds()) == 2
    assert kit.run_one(rounds=1) == 0  # fewer than there are: nothing to do
    assert kit.stored_plan()["rounds"] == 2


def test_a_drawn_seed_is_kept(kit: Kit) -> None:
    kit.begin(seed=None)
    seed = kit.stored_plan()["seed"]
    assert settle(kit.plan(seed=None, rounds=5)) == seed
    assert kit.stored_plan()["seed"] == seed
    assert settle(kit.plan(seed=None, campaign="other")) != seed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stacks": ("there", "here")}, r'begun with stacks \["here", "there"\].*says \["there", "here"\]'),
        ({"families": ("launch",)}, r'families \[\].*\["launch"\]'),
        ({"quick": True}, r"quick false.*true"),
        ({"null": False}, r"null true.*false"),
        ({"device": "cpu"}, r'device "auto".*"cpu"'),
        ({"keyword": "first_cold"}, r'keyword "".*"first_cold"'),
    ],
)
def test_another_plan_is_refused_and_says_what_differs(kit: Kit, change: dict[str, Any], said: str) -> None:
    kit.begin()
    before = kit.stored_plan()
    with pytest.raises(UsageError, match=said):
        kit.run(**{"rounds": 9} | change)
    assert kit.stored_plan() == before
    assert kit.rounds() == []


def test_a_plan_that_measured_nothing_may_be_corrected(kit: Kit) -> None:
    kit.fault(before=4)
    assert kit.run_one(families=("lunch",)) == 4
    kit.fault()
    assert kit.run_one(families=("launch",)) == 0
    assert kit.stored_plan()["families"] == ["launch"]


@pytest.mark.parametrize("finished", [False, True])
def test_a_plan_that_measured_nothing_may_be_corrected_beside_plain_runs(kit: Kit, finished: bool) -> None:
    """What pytest measured into the same campaign was not asked for by this plan."""
    plain = Journal(kit.folder.journal("plain"))
    plain.run(RunInfo("plain", "c", "here", "here", device="cuda"))
    plain.end(0)
    plain.close()
    if finished:
        merge.finish_dead(kit.folder)
    settle(kit.plan(device="cpu", seed=None))
    settle(kit.plan(device="cuda"))
    assert kit.stored_plan()["device"] == "cuda"
    kit.begin(device="cuda")
    with pytest.raises(UsageError, match='device "cuda"'):
        settle(kit.plan(device="cpu"))


def test_other_pins_of_a_stack_are_another_plan(kit: Kit) -> None:
    kit.begin()
    write_json(kit.folder.path / "plan.json", kit.stored_plan() | {"pins": {"there": ["some==1.0"]}})
    with pytest.raises(UsageError, match=r"begun with pins .*some==1\.0"):
        kit.run()


def test_a_damaged_plan_is_named(kit: Kit) -> None:
    kit.begin()
    (kit.folder.path / "plan.json").write_text("{")
    with pytest.raises(DataError, match=r"plan\.json is not a campaign's plan"):
        kit.run()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stacks": ("here", "thre")}, "no stack 'thre'; did you mean 'there'"),
        ({"stacks": ("here", "here")}, "named twice"),
        ({"stacks": ()}, "at least one stack"),
        ({"rounds": 0}, "at least 1"),
        ({"device": "gpu"}, "--device is 'gpu', expected one of auto, cuda, cpu"),
        ({"benchmarks": Path("nowhere")}, "there is no folder nowhere"),
        ({"campaign": "../c"}, "folder name"),
        ({"families": ("lunch",), "benchmarks": BENCHMARKS}, "no family 'lunch' in .*did you mean 'launch'"),
    ],
)
def test_wrong_plans_are_refused_before_anything_is_written(
    kit: Kit, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        kit.run(**change)
    assert not kit.folder.path.exists()


def test_a_failed_case_is_recorded_and_the_rest_runs(kit: Kit) -> None:
    kit.fault(op="b", what="fail")
    assert kit.run_one() == 1
    assert kit.statuses("here") == {**ALL_OK, "b": {"failed"}}
    assert [r["complete"] for r in kit.table("runs")] == [True]
    assert len(kit.rounds()) == 1
    assert "failed: made/b in here: made to fail" in kit.said


@pytest.mark.parametrize(
    ("what", "status", "reason"),
    [
        ("segfault", "crashed", "the process was ended by SIGSEGV"),
        ("exit", "crashed", "the process ended with exit code 0 in the middle of its cases"),
        ("hang", "hung", "no new line in the journal for"),
    ],
)
def test_a_process_that_dies_costs_one_case(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, what: str, status: str, reason: str
) -> None:
    monkeypatch.setattr("bench_lib.campaigns.watch._GRACE_SECONDS", 0.2)
    kit.fault(op="b", what=what)
    assert kit.run_one() == 1
    assert kit.statuses("here") == {**ALL_OK, "b": {status}}
    case = next(row for row in kit.table("cases") if row["op"] == "b")
    assert case["reason"].startswith(reason)
    assert (case["family"], case["params"], case["margin"], case["n_samples"]) == ("made", "{}", 0.02, 0)
    assert len(kit.rounds()) == 1
    assert sorted(r["complete"] for r in kit.table("runs")) == [False, True]
    assert kit.alive() == []
    assert f"{status}: made/b in here: {reason}" in kit.said
    assert kit.folder.journals() == []


def test_a_process_that_stops_itself_is_followed_by_one_for_the_rest(kit: Kit) -> None:
    kit.fault(op="b", what="stop")
    assert kit.run_one() == 0
    assert kit.statuses("here") == ALL_OK
    nodeids = [row["nodeid"] for row in kit.table("cases")]
    assert sorted(nodeids) == list("abcd")  # each once


def test_a_crash_after_the_end_is_no_crash(kit: Kit) -> None:
    kit.fault(after="segfault")
    assert kit.run_one() == 0
    assert len(kit.rounds()) == 1


def test_the_last_case_may_crash(kit: Kit) -> None:
    """It leaves nothing for a new process: the round is finished all the same."""
    ops = list("abcd")
    random.Random(schedule.case_seed(1, 0)).shuffle(ops)
    kit.fault(op=ops[-1], what="segfault")
    assert kit.run_one() == 1
    assert kit.statuses("here") == {**ALL_OK, ops[-1]: {"crashed"}}
    assert len(kit.rounds()) == 1


@pytest.mark.parametrize(("code", "expected"), [(2, 2), (4, 4), (5, 2)])
def test_a_refusal_stops_the_campaign_with_its_sentence(kit: Kit, code: int, expected: int) -> None:
    assert kit.run_one() == 0
    kit.fault(before=code)
    assert kit.run_one(rounds=2) == expected
    assert "a sentence that says why" in kit.said
    assert "1 of 2 rounds" in kit.said
    assert len(kit.pids.read_text().split()) == 2


def test_processes_that_die_before_any_case_stop_the_campaign(kit: Kit) -> None:
    kit.fault(before=3)
    assert kit.run(rounds=1) == 1
    assert "3 processes died without a case" in kit.said
    assert "a sentence that says why" in kit.said
    assert len(kit.pids.read_text().split()) == 3


def test_a_process_that_never_begins_a_case_is_ended(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench_lib.campaigns.watch._GRACE_SECONDS", 0.1)
    kit.fault(before="hang")
    assert kit.run(rounds=1, idle_seconds=0.3) == 1
    assert kit.alive() == []


def test_a_round_over_two_gpus_does_not_count(kit: Kit) -> None:
    kit.fault(gpu="GPU-2")
    assert kit.run(rounds=1) == 1
    assert "measured with gpu_uuid GPU-1 and GPU-2, expected one" in kit.said
    assert kit.rounds() == []


@pytest.mark.parametrize("position", [0, 1])
def test_a_round_that_lost_the_gpu_does_not_count(kit: Kit, position: int) -> None:
    assert kit.run(rounds=1) == 0
    kit.fault(device="cpu", **{"from": position})
    assert kit.run(rounds=2) == 1
    said = "was measured on cpu, the campaign's finished rounds on cuda"
    assert (said if position == 0 else "measured with device cpu and cuda, expected one") in kit.said
    assert len(kit.rounds()) == 1


def test_rounds_of_another_gpu_model_do_not_count(kit: Kit) -> None:
    assert kit.run_one() == 0
    kit.fault(model="B")
    assert kit.run_one(rounds=2) == 1
    assert "was measured on B, the campaign's finished rounds on H; make that device" in kit.said
    assert len(kit.rounds()) == 1


@pytest.mark.parametrize("damage", ["{", "{}", '{"round": "x", "order": ["here"], "runs": ["gone"]}', "[]"])
def test_a_round_counts_only_when_it_is_whole(kit: Kit, damage: str) -> None:
    assert kit.run_one() == 0
    (path,) = campaign.finished_rounds(kit.folder)
    path.write_text(damage)
    assert campaign.finished_rounds(kit.folder) == []
    assert kit.run_one() == 0
    assert len(kit.rounds()) == 1


@pytest.mark.parametrize("table", ["samples", "cases"])
def test_a_truncated_table_of_a_finished_round_is_named(kit: Kit, table: str) -> None:
    assert kit.run_one() == 0
    path = kit.folder.parquet_files(table)[0]
    path.write_bytes(path.read_bytes()[:-20])
    kit.run_one()
    said = f"; 1 file cannot be read, so nothing of that is compared: {path}"
    assert f"1 of 1 rounds are in {kit.folder.path}{said}" in kit.said


def test_a_round_counts_while_its_runs_are_there(kit: Kit) -> None:
    assert kit.run_one() == 0
    merge.merge(kit.path / "results", "c")
    assert len(kit.rounds()) == 1
    kit.folder.table("runs", "merged").write_bytes(b"damaged")
    assert kit.rounds() == []


def test_the_same_command_says_again_what_failed(kit: Kit) -> None:
    kit.fault(op="b", what="fail")
    assert kit.run_one() == 1
    kit.fault()
    merge.merge(kit.path / "results", "c")
    assert kit.run_one() == 1
    assert "failed: made/b in here: made to fail\n" in kit.said


def test_a_campaign_has_one_process(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECONDS_A_CASE", "60")
    process = parent(kit, rounds=1)
    until_a_case_runs(kit)
    for other in (lambda: kit.run(rounds=1), lambda: merge.merge(kit.path / "results", "c")):
        with pytest.raises(Refused, match=f"process {process.pid} is working on campaign 'c'"):
            other()
    process.kill()
    process.communicate()
    until_gone(kit)
    assert len(merge.merge(kit.path / "results", "c")) == 3


def parent(kit: Kit, rounds: int) -> subprocess.Popen[str]:
    """The campaign in a process of its own."""
    fields = {
        **{key: getattr(kit.plan(), key) for key in ("campaign", "stacks", "seed", "program")},
        "rounds": rounds,
    }
    code = (
        "import sys; from pathlib import Path; from rich.console import Console\n"
        "from bench_lib.campaigns.campaign import Plan, run\n"
        "here = Path(sys.argv[1])\n"
        "files = {'benchmarks': here, 'results': here / 'results', 'stacks_file': here / 'stacks.toml'}\n"
        f"plan = Plan(**files, **{fields!r})\n"
        "sys.exit(run(plan, Console(width=200)))"
    )
    command = [sys.executable, "-c", code, str(kit.path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until_a_case_runs(kit: Kit) -> None:
    deadline = time.monotonic() + 120
    while not any(b'"start"' in path.read_bytes() for path in kit.folder.journals()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until_gone(kit: Kit) -> None:
    """A process that is killed lets go of its files a moment after it counts as dead."""
    deadline = time.monotonic() + 120
    while kit.alive() or any(journal.is_live(path) for path in kit.folder.journals()):
        assert time.monotonic() < deadline, "the measuring process outlived its parent"
        time.sleep(0.02)


def measured(kit: Kit, campaign_name: str) -> list[tuple[Any, ...]]:
    """Of each finished round in turn: its order, its seed, and how each case of each arm ended."""
    folder = CampaignFolder(kit.path / "results", campaign_name)
    cases = [row for f in folder.parquet_files("cases") for row in pq.read_table(f).to_pylist()]
    rounds = [json.loads(path.read_text()) for path in campaign.finished_rounds(folder)]
    found: list[tuple[Any, ...]] = []
    for this in sorted(rounds, key=lambda r: float(r["started_at"])):
        mine = [c for c in cases if c["round"] == this["round"]]
        ends = sorted((c["arm"], c["case_id"], c["params"], c["margin"], c["status"]) for c in mine)
        found.append((this["order"], this["case_seed"], ends))
    return found


def test_kill_9_at_ten_random_moments_and_the_same_command(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finished campaign is the one that nobody disturbed, in its rounds and in its cases."""
    assert kit.run(rounds=2, campaign="undisturbed") == 0
    monkeypatch.setenv("SECONDS_A_CASE", "0.03")
    rng = random.Random(5)
    for _ in range(10):
        process = parent(kit, rounds=2)
        time.sleep(rng.uniform(0.2, 1.2))
        process.kill()
        process.communicate()
        until_gone(kit)
    monkeypatch.setenv("SECONDS_A_CASE", "0")
    last = parent(kit, rounds=2)
    said, _ = last.communicate(timeout=120)
    assert last.returncode == 0, said

    assert measured(kit, "c") == measured(kit, "undisturbed")
    assert [len(ends) for _, _, ends in measured(kit, "c")] == [len(ARMS) * len("abcd")] * 2
    assert kit.folder.journals() == []


def test_kill_9_takes_the_measuring_process_along(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECONDS_A_CASE", "60")
    process = parent(kit, rounds=1)
    until_a_case_runs(kit)
    assert len(kit.alive()) == 1
    process.kill()
    process.communicate()
    until_gone(kit)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_keeps_what_is_there_and_says_how_to_go_on(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as under nohup")
    monkeypatch.setenv("SECONDS_A_CASE", "0.2")
    monkeypatch.setenv("PATH", "")  # no environment is active
    process = parent(kit, rounds=1)
    until_a_case_runs(kit)
    process.send_signal(number)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    program = os.path.relpath(Path(sys.executable).with_name("cuda-gains"))
    ending, _, after = said.partition("ending, which keeps what was measured; Ctrl-C again ends at once")
    assert after
    assert "go on with" not in ending
    assert f"go on with: {program} run --stack here --stack there --rounds 1 --campaign c" in after
    assert "Traceback" not in said
    assert kit.alive() == []
    assert [r["complete"] for r in kit.table("runs")] == [False]
    assert {c["status"] for c in kit.table("cases")} <= {"ok"}  # the user's doing, not a crash
    monkeypatch.setenv("SECONDS_A_CASE", "0")
    assert kit.run(rounds=1) == 0
    assert [len(this["runs"]) for this in kit.rounds()] == [3]


def test_canaries_of_the_suite_are_measured_beside_a_folder_of_your_own(kit: Kit) -> None:
    own = kit.path / "own"
    own.mkdir()
    (own / "bench_mine.py").write_text("FAMILY = 'mine'\n")
    plan = kit.plan(families=("mine", "canary"), benchmarks=own)
    canary = Path(__file__).parents[1] / "benchmarks" / "bench_canary.py"
    assert plan.arguments("here")[:2] == [str(own), str(canary)]
    assert f"--benchmarks {own}" in plan.command
    with pytest.raises(UsageError, match="no family 'canery' in"):
        kit.plan(families=("mine", "canery"), benchmarks=own)


def test_a_folder_that_begins_with_a_dash_is_no_option(kit: Kit) -> None:
    words = kit.plan(results=Path("-r")).arguments("here")
    assert words[words.index("--results") + 1] == "./-r"


def test_the_stored_command_is_the_whole_command(kit: Kit) -> None:
    plan = kit.plan(families=("launch", "canary"), quick=True, null=False, wheels=Path("my wheels"))
    assert plan.command == (
        "cuda-gains run --stack here --stack there --family launch --family canary --rounds 2 --campaign c "
        f"--quick --no-null --results {kit.path}/results --benchmarks {kit.path} --wheels 'my wheels'"
    )
    some = kit.plan(keyword="first_cold or first_warm")
    assert "-k 'first_cold or first_warm' --rounds" in some.command
    assert "-k 'first_cold or first_warm'" in shlex.join(some.arguments("here"))
    usual = {"results": Path("results"), "benchmarks": Path("tests"), "full": True, "device": "cpu"}
    assert kit.plan(**usual).command.endswith("--campaign c --full --benchmarks tests --device cpu")
