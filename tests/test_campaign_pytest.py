"""Campaigns over pytest with the plugin itself: on the CPU, and on the pretended CUDA."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from plugin_runs import INI, rows
from rich.console import Console

from bench_lib.campaigns import campaign
from bench_lib.campaigns.campaign import Plan

CPU_FILE = """
import ctypes, os, signal
import pytest
from bench_lib.model import Series
FAMILY = "made"
MARGIN = 0.03

@pytest.mark.core
@pytest.mark.parametrize("n", [1, 2])
def bench_sum(bench, n):
    bench.record(Series((0.5, 0.25 * n)))

def bench_wrong(bench):
    assert 1 + 1 == 3

def bench_abort(bench):
    os.abort()

@pytest.mark.budget(0.3)
def bench_stuck(bench):
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))  # as a driver that waits for ever
    ctypes.PyDLL(None).sleep(60)
"""
GPU_FILE = """
import ctypes
import pytest
from bench_lib.device import cudart, kernels
from bench_lib.stacking import stacks
from bench_lib.errors import NotApplicable
from bench_lib.model import Series
FAMILY = "made"

@pytest.mark.parametrize("metric", ["a", "b", "c", "d"])
def bench_launch(bench, gpu, stack, wheels, campaign_folder, metric):
    runtime = cudart.Runtime.load(stacks.cached_library(stack, wheels))
    key = runtime.register(kernels.cubin(gpu.context, campaign_folder), ["empty"])["empty"]
    bench(lambda: runtime.launch(key, (1, 1, 1), (1, 1, 1), gpu.stream), timing="host")

def bench_torch(bench, stack):
    if not stacks.holds(stack, "torch"):
        raise NotApplicable(f"stack {stack.name} holds no torch")

def bench_cpu(bench):
    bench.record(Series((1.0,)))
"""


class Kit:
    """A folder of benchmark files, and campaigns over it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "made"
        self.path.mkdir()
        (self.path / "pytest.ini").write_text(INI)
        self.results = folder / "results"
        self.said = ""

    def run(self, **changes: Any) -> int:
        given: dict[str, Any] = {
            "campaign": "c",
            "results": self.results,
            "stacks": ("here",),
            "rounds": 1,
            "null": False,
            "device": "cpu",
            "benchmarks": self.path,
            "watchdog_seconds": 30.0,
            "extra": ("-p", "no:hypothesispytest"),  # its import is slow
        }
        output = io.StringIO()
        code = campaign.run(Plan(**given | changes), Console(file=output, width=200))
        self.said = output.getvalue()
        return code

    def table(self, name: str) -> list[dict[str, Any]]:
        return rows(self.results / "c", name)

    def cases(self, arm: str = "here") -> dict[str, tuple[str, str]]:
        """Op -> status and reason."""
        return {r["case_id"]: (r["status"], r["reason"]) for r in self.table("cases") if r["arm"] == arm}

    def rounds(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in (self.results / "c" / "rounds").glob("*.json")]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def test_a_crash_a_hang_and_a_failure_stay_where_they_happened(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench_lib.campaigns.watch._GRACE_SECONDS", 0.2)
    (kit.path / "bench_made.py").write_text(CPU_FILE)
    assert kit.run(watchdog_seconds=1.0) == 1
    cases = kit.cases()
    assert {case: status for case, (status, _) in cases.items()} == {
        "made/sum[n=1]": "ok",
        "made/sum[n=2]": "ok",
        "made/wrong": "failed",
        "made/abort": "crashed",
        "made/stuck": "hung",
    }
    assert len(kit.table("cases")) == 5  # each once
    assert cases["made/abort"][1] == "the process was ended by SIGABRT"
    assert cases["made/stuck"][1].startswith("no new line in the journal for 1 s")
    by_id = {row["case_id"]: row for row in kit.table("cases")}
    assert {row["margin"] for row in by_id.values()} == {0.03}
    assert json.loads(by_id["made/sum[n=2]"]["params"]) == {"n": 2}
    assert [r["seconds"] for r in kit.table("samples") if r["case_id"] == "made/sum[n=2]"] == [0.5, 0.5]
    assert len(kit.rounds()) == 1
    assert list((kit.results / "c" / "journal").iterdir()) == []


def test_what_the_plugin_refuses_stops_the_campaign(kit: Kit) -> None:
    (kit.path / "bench_made.py").write_text(CPU_FILE.replace("MARGIN = 0.03", "MARGIN = 0"))
    assert kit.run() == 4
    assert kit.said.startswith("measuring was refused:\n")
    assert "MARGIN = 0 of its file is not a share above 0 and at most 0.5; write 0.05" in kit.said
    assert kit.rounds() == []


def test_two_runtimes_in_turn_on_one_gpu(
    kit: Kit, fake_cuda: dict[str, str], fake_wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake_cuda.items():
        monkeypatch.setenv(name, value)
    (kit.path / "bench_made.py").write_text(GPU_FILE)
    stacks = ("cudart-11.8", "cudart-12.4")
    assert kit.run(stacks=stacks, null=True, device="cuda", wheels=fake_wheels) == 0, kit.said

    (this,) = kit.rounds()
    runs = {row["arm"]: row for row in kit.table("runs")}
    assert set(runs) == {"cudart-11.8", "cudart-11.8#2", "cudart-12.4"}
    assert [arm for arm, row in sorted(runs.items(), key=lambda item: int(item[1]["position"]))] == this[
        "order"
    ]
    versions = {arm: dict(row["stack_identity"])["cudart.version"] for arm, row in runs.items()}
    assert versions == {"cudart-11.8": "11.8", "cudart-11.8#2": "11.8", "cudart-12.4": "12.4"}
    assert {row["gpu_uuid"] for row in runs.values()} == {this["gpu_uuid"]}
    assert this["gpu_uuid"].startswith("GPU-")

    orders = set()
    for arm in runs:
        mine = [row for row in kit.table("cases") if row["arm"] == arm]
        orders.add(tuple(r["case_id"] for r in sorted(mine, key=lambda r: int(r["position"]))))
        assert kit.cases(arm)["made/torch"][0] == "not-applicable"
        assert kit.cases(arm)["made/launch[metric=a]"] == ("ok", "")
    assert len(orders) == 1  # the same case order in all arms of a round


def test_a_dead_context_costs_its_case_and_a_new_process_does_the_rest(
    kit: Kit, fake_cuda: dict[str, str], fake_wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**fake_cuda, "FAKE_CUDA_FAIL_LAUNCH_AFTER": "0"}.items():
        monkeypatch.setenv(name, value)
    source = GPU_FILE.replace('["a", "b", "c", "d"]', '["a", "b"]')
    (kit.path / "bench_made.py").write_text(source)
    assert kit.run(stacks=("cudart-12.4",), device="cuda", wheels=fake_wheels) == 1
    statuses = {case: status for case, (status, _) in kit.cases("cudart-12.4").items()}
    assert statuses == {
        "made/launch[metric=a]": "failed",
        "made/launch[metric=b]": "failed",
        "made/torch": "not-applicable",
        "made/cpu": "ok",
    }
    assert len(kit.table("cases")) == 4
    assert len(kit.rounds()) == 1


def test_a_campaign_that_measured_nothing_does_not_look_finished(kit: Kit) -> None:
    (kit.path / "bench_made.py").write_text("def bench_a(bench, gpu): pass\ndef bench_b(bench, gpu): pass\n")
    assert kit.run(quick=True) == 2
    assert "\n2 cases of made are not core; leave out --quick" in kit.said
    assert kit.run(campaign="d") == 1
    assert "here: 2 cases, 0 measured (" in kit.said
    last = kit.said.splitlines()[-1]
    assert last.startswith("nothing was measured: 2 cases, 0 measured: ")
    assert last.endswith("mend that, and measure into another --campaign")
    assert kit.run(campaign="d") == 1  # asked again, it is said again
    assert kit.said.splitlines()[-1] == last


EDITED = """
import os
from pathlib import Path
from bench_lib.model import Series
FAMILY = "made"
def bench_a(bench):
    bench.record(Series((1.0,)))
    if os.environ.get("EDIT"):
        file = Path(__file__)
        file.write_text(file.read_text() + "MARGIN = 0.04\\n")
"""


def test_rounds_of_an_edited_benchmark_file_are_refused(kit: Kit) -> None:
    said = f"campaign 'c' in {kit.results} measured made with other code in the benchmark file, and what is "
    said += "compared would partly be the code that measures; undo the edit, or name another campaign with "
    file = kit.path / "bench_made.py"
    file.write_text(EDITED)
    assert kit.run(rounds=1) == 0
    file.write_text(f"# a comment moves no number\n{EDITED}")
    assert kit.run(rounds=2) == 0
    file.write_text(EDITED.replace("1.0,", "2.0,"))
    assert kit.run(rounds=3) == 2
    assert f"{said}--campaign\n2 of 3 rounds are in " in kit.said.replace("\n--", " --")
    assert len(kit.rounds()) == len(kit.table("runs")) == 2
    assert kit.run(rounds=2) == 0  # there is nothing to measure
    assert kit.run(rounds=1, campaign="d") == 0
    file.write_text(EDITED)
    assert kit.run(rounds=3) == 0


def test_an_edit_in_the_middle_of_a_round_costs_that_round_alone(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kit.path / "bench_made.py").write_text(EDITED)
    assert kit.run(null=True) == 0
    monkeypatch.setenv("EDIT", "1")
    assert kit.run(null=True, rounds=2) == 2
    assert "measured made with other code" in kit.said
    assert len(kit.rounds()) == 1
    assert len(kit.table("runs")) == 3  # and the first process of the second round
