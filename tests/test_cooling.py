"""Waiting for a GPU to cool down: with a pretended NVML, and the campaign that waits."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from plugin_runs import Runs
from rich.console import Console
from test_campaign import STAND_IN, Kit

from bench_lib.campaigns.campaign_cooling import Cooling
from bench_lib.campaigns.progress import Progress
from bench_lib.errors import UsageError
from bench_lib.journaling import journal
from bench_lib.journaling.journal import Journal
from bench_lib.layout import CampaignFolder
from bench_lib.model import Case, Clocks, Identity, Measurement, RunInfo, Series, Status
from bench_lib.thermal import warm
from bench_lib.thermal.wait import temperatures

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
NVML = """
import os
from pathlib import Path
class NVMLError(Exception): pass
NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = NVML_CLOCK_MEM = 0
nvmlInit = nvmlShutdown = lambda: None
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid != "GPU-1": raise NVMLError("not found")
    return uuid
def nvmlDeviceGetTemperature(handle, kind):
    seen = Path(os.environ["TEMPERATURES"])
    now, *later = seen.read_text().split()
    seen.write_text(" ".join(later or [now]))  # the last one stays
    return int(now)
"""


class Room:
    """A machine whose GPU has the temperatures that are said, one a look."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "temperatures"
        (folder / "nvml").mkdir()
        (folder / "nvml" / "pynvml.py").write_text(NVML)
        monkeypatch.setenv("PYTHONPATH", str(folder / "nvml"))
        monkeypatch.setenv("TEMPERATURES", str(self._file))

    def has(self, *temperatures: int) -> None:
        self._file.write_text(" ".join(map(str, temperatures)))


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(tmp_path, monkeypatch)


class Said:
    """A progress, and what it said."""

    def __init__(self) -> None:
        self._output = io.StringIO()
        self.progress = Progress(Console(file=self._output, width=200), 1)
        self.progress.begin("round 1 of 1, here")

    @property
    def text(self) -> str:
        return self._output.getvalue()


def measured(
    folder: CampaignFolder, run_id: str, temperature_c: float | None, at: float, **known: str
) -> None:
    """A run whose first case began at that temperature."""
    machine = {"host": "h", "boot_id": BOOT, "gpu.uuid": "GPU-1"} | known
    with Journal(folder.journal(run_id)) as lines:
        lines.run(RunInfo(run_id, folder.name, "here", "here", device="cuda", started_at=at))
        lines.identity(Identity(machine=machine))
        for position, more in enumerate((0.0, 20.0)):
            start = None if temperature_c is None else temperature_c + more
            clocks = Clocks(temperature_c_start=start)
            series, case = Series((1.0, 2.0)), Case("made", f"op{position}")
            one = Measurement(case, Status.OK, "", series, 0.02, position, case.op, clocks=clocks)
            lines.case(one, "default")
        lines.end(0)
    journal.finish(lines.path, folder)


def test_looks_until_cool_enough() -> None:
    seen = iter([71.0, 66.0, 65.0, 40.0])
    assert list(temperatures(lambda: next(seen), 65.0, 60.0, look_seconds=0.0)) == [71.0, 66.0, 65.0]


def test_looks_once_when_there_is_no_time_or_no_need() -> None:
    assert list(temperatures(lambda: 71.0, 65.0, 0.5, look_seconds=1.0)) == [71.0]
    assert list(temperatures(lambda: 30.0, 65.0, 60.0)) == [30.0]
    assert list(temperatures(lambda: None, 65.0, 60.0)) == []


def test_an_nvml_that_does_not_know_the_gpu_says_nothing(room: Room) -> None:
    room.has(50)
    command = [sys.executable, "-m", "bench_lib.thermal.wait"]
    for uuid, said in (("GPU-1", "50\n"), ("GPU-2", "")):
        done = subprocess.run([*command, uuid, "60", "5"], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == (said, "")


def test_waits_until_within_the_band_of_the_first_process(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = CampaignFolder(tmp_path, "c"), Said()
    measured(folder, "first", 55.0, at=1.0)
    measured(folder, "second", 70.0, at=2.0)
    measured(folder, "other-gpu", 20.0, at=0.5, **{"gpu.uuid": "GPU-2", "boot_id": "another"})
    room.has(61, 60)
    cooling = Cooling(folder, 5.0, 30.0)
    found = cooling.wait("third", said.progress)
    assert found.pop("cool_down_seconds") >= 1.0
    assert found == {"cool_down_from_c": 61.0, "cool_down_to_c": 60.0, "cool_down_limit_c": 60.0}
    assert said.text == "round 1 of 1, here: cooling: 61 -> 60 °C\n"
    (kept,) = cooling.of_round()["cool_down"]
    assert kept["run"] == "third"
    assert "warning" not in kept
    assert cooling.of_round() == {}


def test_a_wait_that_runs_out_is_a_stored_warning(room: Room, tmp_path: Path) -> None:
    folder, said = CampaignFolder(tmp_path, "c"), Said()
    measured(folder, "first", 55.0, at=1.0)
    room.has(71)
    cooling = Cooling(folder, 5.0, 1.2)
    assert cooling.wait("second", said.progress)["cool_down_to_c"] == 71.0
    (kept,) = cooling.of_round()["cool_down"]
    assert kept["warning"].startswith("the GPU is still at 71 °C after ")
    assert kept["warning"].endswith(" s, expected at most 60 °C")
    assert f"{kept['warning']}; it is measured so" in said.text


@pytest.mark.parametrize(
    ("band", "temperature", "known"),
    [
        (None, 55.0, {}),
        (5.0, None, {}),  # NVML told nothing then
        (5.0, 55.0, {"boot_id": "before-a-reboot"}),  # which GPU this is, the next process tells
        (5.0, 55.0, {"gpu.uuid": "GPU-3"}),  # NVML does not know it
    ],
)
def test_where_nothing_is_known_nothing_is_waited_for(
    room: Room, tmp_path: Path, band: float | None, temperature: float | None, known: dict[str, str]
) -> None:
    folder, said = CampaignFolder(tmp_path, "c"), Said()
    measured(folder, "first", temperature, at=1.0, **known)
    room.has(99)
    cooling = Cooling(folder, band, 30.0)
    assert cooling.wait("second", said.progress) == {}
    assert (cooling.of_round(), said.text) == ({}, "")


def test_a_campaign_stores_its_waits_and_the_band_is_of_the_plan(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit(tmp_path, monkeypatch)
    child = STAND_IN.replace('"boot_id": "b"', f'"boot_id": {BOOT!r}')
    child = child.replace("import Case,", "import Case, Clocks,")
    child = child.replace("position, case.op)", "position, case.op, clocks=Clocks(temperature_c_start=55.0))")
    assert child.count("Clocks") == 2
    (kit.path / "child.py").write_text(child)
    room.has(58, 63, 59)
    assert kit.run(rounds=1, cool_down_c=5.0) == 0
    assert "cooling: 63 -> 60 °C" in kit.said
    (this,) = kit.rounds()
    waits = {one["run"]: (one["cool_down_from_c"], one["cool_down_to_c"]) for one in this["cool_down"]}
    assert list(waits.values()) == [(58.0, 58.0), (63.0, 59.0)]
    assert list(waits) == this["runs"][1:]  # the first process is what the others are held against
    assert kit.stored_plan()["command"].count("--cool-down 5") == 1
    with pytest.raises(UsageError, match=r"begun with cool_down_c 5\.0, this command says null"):
        kit.run(rounds=2)


@pytest.mark.parametrize("band", [0.0, -1.0, 100.0, float("nan")])
def test_a_band_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, band: float) -> None:
    with pytest.raises(UsageError, match=r"--cool-down is .*expected a band such as 5"):
        Kit(tmp_path, monkeypatch).plan(cool_down_c=band)


def test_the_wait_stands_in_the_row_of_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(pytester, monkeypatch)
    runs.write("def bench_one(bench):\n    bench.record(Series((1.0, 2.0)))\n")
    waited: dict[str, Any] = {"cool_down_seconds": 3.5, "cool_down_to_c": 60.0}
    task = {"run_id": "abc", "round": "r", "arm": "here", "seed": 1, "quantities": waited}
    (runs.path / "task.json").write_text(json.dumps(task))
    monkeypatch.setenv("CUDA_GAINS_TASK", str(runs.path / "task.json"))
    assert runs.pytest("--device=cpu").ret == 0
    (row,) = runs.table("runs")
    assert waited.items() <= dict(row["quantities"]).items()


def test_a_comparison_says_which_runs_began_warm() -> None:
    band = {"cool_down_limit_c": 60.0}
    kept = [{}, {**band, "cool_down_to_c": 60.0}, {**band, "cool_down_to_c": 71.0}]
    assert warm.notes("a", pd.DataFrame({"quantities": kept[:2]})) == []
    assert warm.notes("a", pd.DataFrame({"quantities": kept})) == [
        "a: 1 of 3 runs began up to 11 °C above the band of --cool-down: the wait ran out"
    ]
