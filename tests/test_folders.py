"""Results folders that something went wrong in: two writers, kills, other versions, very many runs."""

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from plugin_runs import Runs
from typer.testing import CliRunner

from bench_lib import schema
from bench_lib.campaigns import merge
from bench_lib.cli import app
from bench_lib.comparing import compare, sides, store
from bench_lib.errors import UsageError
from bench_lib.journaling import journal
from bench_lib.journaling.journal import Journal
from bench_lib.layout import TABLES, CampaignFolder
from bench_lib.model import Case, Measurement, RunInfo, Series, Status


def finished(folder: CampaignFolder, run_id: str, op: str = "a") -> None:
    with Journal(folder.journal(run_id)) as written:
        written.run(RunInfo(run_id, folder.name, "here", "here", started_at=time.time()))
        written.case(Measurement(Case("f", op), Status.OK, series=Series((1.0, 2.0)), nodeid=op), "default")
        written.end(0)
    journal.finish(folder.journal(run_id), folder)


def test_two_writers_in_one_folder_keep_both(runs: Runs) -> None:
    """Two plain sessions measure into one campaign at once, and a third merges nothing that lives."""
    runs.write(
        "import time\ndef bench_a(bench):\n"
        "    import os\n    open(f'here-{os.getpid()}', 'w').close()\n"
        "    end = time.monotonic() + 120\n"
        "    while len([n for n in os.listdir() if n.startswith('here-')]) < 2 and time.monotonic() < end:\n"
        "        time.sleep(0.01)\n    bench.record(Series((1.0, 2.0)))\n"
    )
    command = [sys.executable, "-m", "pytest", "-q"]
    both = [subprocess.Popen(command, cwd=runs.path, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    data = store.load(runs.path / "results", ["local"])
    assert len(data.runs) == len(data.cases) == 2
    assert data.samples.num_rows == 4
    assert data.skipped == ()


def test_merging_while_runs_are_written_loses_none(tmp_path: Path) -> None:
    """Readers and a merge beside a writer: every run that had ended is there, whole, at any time."""
    folder = CampaignFolder(tmp_path, "c")
    finished(folder, "first")
    stop, seen, wrong = threading.Event(), [0], list[str]()

    def read() -> None:
        while not stop.is_set():
            data = store.load(tmp_path, ["c"])
            seen[0] += 1
            if len(data.runs) < 1 or any("orphan" in why for _, why in data.skipped):
                wrong.append(str(data.skipped))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(12):
            finished(folder, f"run{number}")
            if number % 4 == 3:
                merge.merge(tmp_path, "c")
    finally:
        stop.set()
        reader.join()
    data = store.load(tmp_path, ["c"])
    assert len(data.runs) == len(data.cases) == 13
    assert data.samples.num_rows == 26
    assert seen[0] > 0
    assert wrong == []


KILLED = """
import os, signal, sys
from pathlib import Path
import pyarrow.parquet as pq
from bench_lib.journaling import journal
from bench_lib.layout import CampaignFolder
whole, at = pq.write_table, int(sys.argv[2])
def write_half(data, stream, **options):
    global at
    at -= 1
    if at >= 0:
        return whole(data, stream, **options)
    whole(data, stream, **options)
    stream.flush()
    os.ftruncate(stream.fileno(), stream.tell() // 2)
    os.kill(os.getpid(), signal.SIGKILL)
pq.write_table = write_half
folder = CampaignFolder(Path(sys.argv[1]), "c")
journal.finish(folder.journal("r"), folder)
"""


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_kill_in_the_middle_of_a_parquet_file_loses_nothing(tmp_path: Path, at: int) -> None:
    folder = CampaignFolder(tmp_path, "c")
    with Journal(folder.journal("r")) as written:
        written.run(RunInfo("r", "c", "here", "here"))
        written.case(Measurement(Case("f", "a"), Status.OK, series=Series((1.0, 2.0)), nodeid="a"), "default")
        written.end(0)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(at)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert sum(len(folder.parquet_files(table)) for table in TABLES) == at
    for _ in range(2):  # as it was left, and after the journal was finished
        data = store.load(tmp_path, ["c"])
        assert data.samples["seconds"].to_pylist() == [1.0, 2.0]
        assert (len(data.runs), len(data.cases), data.skipped) == (1, 1, ())
        merge.finish_dead(folder)
    assert folder.journals() == []


def test_a_table_that_does_not_fit_leaves_no_part_of_it(tmp_path: Path) -> None:
    """A file size limit stands for a full disk, as every user can have one."""
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom bench_lib.journaling import journal\n"
        "from bench_lib.layout import CampaignFolder\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "folder = CampaignFolder(Path(sys.argv[1]), 'c')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "try: journal.finish(folder.journal('r'), folder)\n"
        "except OSError as error: sys.exit(error.strerror)\n"
    )
    folder = CampaignFolder(tmp_path, "c")
    with Journal(folder.journal("r")) as written:
        written.run(RunInfo("r", "c", "here", "here"))
        written.case(Measurement(Case("f", "a"), Status.OK, series=Series((1.0, 2.0))), "default")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (1, "File too large")
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".jsonl"]


@pytest.mark.parametrize("what", ["a file in its place", "a link to nowhere", "no folder to be had"])
def test_results_that_cannot_be_written_are_one_sentence_before_the_first_case(runs: Runs, what: str) -> None:
    """chmod does not stop root: these stop everybody."""
    runs.write("def bench_a(bench):\n    raise SystemExit('it was measured')\n")
    target = runs.path / "results"
    if what == "a file in its place":
        target.write_text("")
    elif what == "a link to nowhere":
        target.symlink_to("/proc/nowhere")
    else:
        target = Path("/proc/self/results")
    done = runs.pytest("--results", str(target), "--benchmark-json=run.json")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: *results*"])
    assert "it was measured" not in done.stdout.str()
    assert "Traceback" not in done.stdout.str() + done.stderr.str()


def test_a_clock_that_steps_back_changes_no_time(runs: Runs) -> None:
    """The day goes back by an hour in a case and between two; samples and durations do not notice."""
    runs.write(
        "import time\n"
        "def back():\n    now = time.time() - 3600\n    time.time = lambda: now\n"
        "def bench_a(bench):\n    back()\n    bench(lambda: None, timing='host', calls=10)\n"
        "def bench_b(bench):\n    back()\n    bench.record(Series((1.0,)))\n"
    )
    runs.pytest("--benchmark-json=run.json").assert_outcomes(passed=2)
    rows = {row["op"]: row for row in runs.table("cases")}
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert all(0 <= row["wall_seconds"] < 60 for row in rows.values())
    assert all(0 < row["seconds"] < 1e-3 for row in runs.table("samples") if row["case_id"] == "made/a")
    (run,) = runs.table("runs")
    assert run["complete"]
    assert run["ended_at"] < run["started_at"]  # as the clock said


def test_a_death_after_the_clock_stepped_back_took_no_negative_time(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path, "c")
    with Journal(folder.journal("r")) as written:
        written.run(RunInfo("r", "c", "here", "here"))
        written.start(Measurement(Case("f", "a"), Status.FAILED), "default", 1.0)
    with mock.patch("time.time", return_value=5.0):
        row = journal.append_status(folder.journal("r"), Status.CRASHED, "gone")
    assert row is not None
    assert row["wall_seconds"] == 0.0


def rewritten(folder: CampaignFolder, version: int | None, drop: tuple[str, ...] = ()) -> None:
    """All files of a campaign as another version of the suite would have written them."""
    for table in TABLES:
        for path in folder.parquet_files(table):
            data = pq.read_table(path)
            metadata = {} if version is None else {b"cuda_gains_schema": str(version).encode()}
            data = data.drop_columns([name for name in drop if name in data.column_names])
            pq.write_table(data.replace_schema_metadata(metadata), path)


def test_a_folder_of_a_newer_suite_is_refused_with_what_to_do(tmp_path: Path) -> None:
    synthetic.write_campaign(tmp_path, "c", {"a": 1.0, "b": 1.0}, rounds=1, null=False)
    rewritten(CampaignFolder(tmp_path, "c"), schema.SCHEMA_VERSION + 1)
    with pytest.raises(UsageError, match=r"campaign 'c' holds no run that can be read .*upgrade the suite"):
        sides.pair("a", "b", "c", tmp_path)


def test_a_folder_of_an_older_suite_is_read(tmp_path: Path) -> None:
    synthetic.write_campaign(tmp_path, "c", {"a": 1.0, "b": 1.0}, rounds=1, null=False)
    before = store.load(tmp_path, ["c"])
    later = ("turns", "world_size", "suite_commit", "mig", "facts", "quantities", "warnings", "power_w")
    rewritten(CampaignFolder(tmp_path, "c"), schema.SCHEMA_VERSION, later)
    data = store.load(tmp_path, ["c"])
    assert data.skipped == ()
    assert data.cases["case_id"].tolist() == before.cases["case_id"].tolist()
    assert data.samples.to_pylist() == before.samples.to_pylist()
    a, b = sides.pair("a", "b", "c", tmp_path)
    assert compare.compare(a, b).cases


def many(results: Path, count: int) -> CampaignFolder:
    """Runs as fast as a disk takes them: one is measured, the others are it under other ids."""
    case = synthetic.cases(1)[0]
    known = synthetic.identity(synthetic.Machine())
    info = synthetic.run_info("many", "a", run_id="run-0")
    synthetic.write_run(results, info, known, [synthetic.measurement(case, [1e-6, 2e-6])])
    folder = CampaignFolder(results, "many")
    for table in TABLES:
        data = pq.read_table(folder.table(table, "run-0"))
        place, kind = data.column_names.index("run_id"), data.schema.field("run_id")
        for number in range(1, count):
            ids = pa.array([f"run-{number}"] * data.num_rows).cast(kind.type)
            copy = data.set_column(place, kind, ids)
            pq.write_table(copy, folder.table(table, f"run-{number}"), write_page_checksum=True)
    return folder


@contextlib.contextmanager
def counting_opens() -> Iterator[Counter[str]]:
    """How often each Parquet file is opened meanwhile."""
    opened: Counter[str] = Counter()
    real = pq.ParquetFile

    def counted(path: Any, **options: Any) -> Any:
        opened[str(path)] += 1
        return real(path, **options)

    with mock.patch.object(pq, "ParquetFile", counted):
        yield opened


def read_many(results: Path, count: int) -> float:
    """Read a campaign of so many runs; each file is opened once. Seconds."""
    folder = many(results, count)
    begin = time.perf_counter()
    with counting_opens() as opened:
        data = store.load(results, ["many"])
    seconds = time.perf_counter() - begin
    assert len(data.runs) == len(data.cases) == count
    assert data.samples.num_rows == 2 * count
    assert set(opened.values()) == {1}
    assert len(opened) == 3 * count
    merge.merge(results, "many")
    assert len(list(folder.path.rglob("*.parquet"))) == 3
    assert len(store.load(results, ["many"]).runs) == count
    return seconds


def test_of_many_runs_each_file_is_opened_once(tmp_path: Path) -> None:
    read_many(tmp_path, 100)


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "a", "b", "--campaign", "c"),
        ("calibrate", "--campaign", "c"),
        ("claims", "--campaign", "c"),
        ("report", "a", "b", "--campaign", "c", "-o", "page.html"),
        ("report", "--all", "-o", "pages"),
        ("chart", "launch-by-runtime", "--campaign", "c"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_no_command_opens_a_file_twice(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic.write_campaign(tmp_path / "results", "c", {"a": 1.0, "b": 1.0}, rounds=3)
    entry = '[[report]]\nname = "{}"\nquestion = "?"\ncampaign = "c"\nsides = ["a", "b"]\n'
    (tmp_path / "results" / "reports.toml").write_text(entry.format("x") + entry.format("y"))
    monkeypatch.chdir(tmp_path)
    with counting_opens() as opened:
        done = CliRunner().invoke(app, [*arguments, "--results", "results"])
    assert done.exit_code == 0 or arguments[0] == "chart", done.output  # of other stacks there is no chart
    assert len(opened) == 3 * 9
    assert set(opened.values()) == {1}


@pytest.mark.slow
def test_ten_thousand_runs_in_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = read_many(tmp_path, 10_000)
    with capsys.disabled():
        print(f"\n10,000 runs were read in {seconds:.0f} s")
    shutil.rmtree(tmp_path / "many")
    assert seconds < 600


def test_a_run_of_another_machine_is_never_a_pair(tmp_path: Path) -> None:
    other = synthetic.Machine("boot-9", "node-9", "GPU-9", "NVIDIA A100")
    synthetic.write_campaign(tmp_path, "c", {"a": 1.0}, rounds=4, null=False)
    synthetic.write_campaign(tmp_path, "d", {"b": 1.0}, rounds=4, null=False, machine=other)
    for path in (tmp_path / "d").rglob("*.parquet"):  # copied from there
        shutil.copy(path, tmp_path / "c" / path.parent.name / path.name)
    found = compare.compare(*sides.pair("a", "b", "c", tmp_path))
    assert {row.reason for row in found.cases} == {"GPU NVIDIA H200 against NVIDIA A100"}
