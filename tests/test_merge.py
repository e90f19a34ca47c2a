"""Merging keeps every row once, wherever it is stopped, and leaves live runs alone."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from bench_lib.campaigns import merge
from bench_lib.cli import app
from bench_lib.errors import DataError, Refused, UsageError
from bench_lib.journaling import journal
from bench_lib.journaling.journal import Journal
from bench_lib.layout import TABLES, CampaignFolder
from bench_lib.model import Case, Identity, Measurement, RunInfo, Series, Status, Work


def begin(folder: CampaignFolder, run_id: str) -> Journal:
    """A run with an ok, a skipped and a failed case, and one in flight."""
    written = Journal(folder.journal(run_id))
    written.run(RunInfo(run_id, folder.name, "here", "here", round=f"round-{run_id}", started_at=1.5))
    written.identity(Identity(machine={"host": f"host-{run_id}"}, quantities={"loop_overhead_seconds": 1e-9}))
    seconds = tuple(0.1 * i + len(run_id) for i in range(1, 6))
    series = Series(
        seconds, ("", "throttled", "", "", ""), work=Work(nbytes=8.0), facts={"algorithm": run_id}
    )
    written.case(Measurement(Case("f", "a", {"n": 1}), Status.OK, series=series, nodeid="a"), "quick")
    written.case(Measurement(Case("f", "b"), Status.SKIPPED, f"why {run_id}", nodeid="b"), "quick")
    written.case(Measurement(Case("f", "c"), Status.FAILED, "broken", nodeid="c"), "quick")
    written.start(Measurement(Case("f", "d"), Status.FAILED, nodeid="d"), "quick", 1.0)
    return written


def measure(folder: CampaignFolder, run_id: str) -> None:
    with begin(folder, run_id) as written:
        written.end(1)
    journal.finish(written.path, folder)


@pytest.fixture
def folder(tmp_path: Path) -> CampaignFolder:
    found = CampaignFolder(tmp_path, "c")
    for run_id in ("r1", "r22", "r333"):
        measure(found, run_id)
    return found


def contents(folder: CampaignFolder) -> dict[str, list[str]]:
    """All rows of each table, in an order of their own."""
    found: dict[str, list[str]] = {}
    for table in TABLES:
        rows: list[dict[str, Any]] = []
        for file in folder.parquet_files(table):
            rows += pq.read_table(file).to_pylist()
        found[table] = sorted(map(repr, rows))
    return found


def names(folder: CampaignFolder) -> dict[str, list[str]]:
    return {table: [path.name for path in folder.parquet_files(table)] for table in TABLES}


ONE_FILE = {table: ["merged.parquet"] for table in TABLES}


def test_merged_rows_equal_the_runs_and_again(folder: CampaignFolder) -> None:
    before = contents(folder)
    assert [len(before[table]) for table in TABLES] == [15, 9, 3]
    paths = merge.merge(folder.results, "c")
    assert paths == [folder.table(table, "merged") for table in TABLES]
    assert names(folder) == ONE_FILE
    assert contents(folder) == before
    stamp = paths[0].stat()
    assert merge.merge(folder.results, "c") == paths
    assert paths[0].stat() == stamp  # nothing new: not even written
    assert contents(folder) == before


def test_the_command_takes_campaigns_in_both_ways(folder: CampaignFolder) -> None:
    for name in ("d", "e"):
        measure(CampaignFolder(folder.results, name), "r1")
    asked = ["merge", "c", "d", "--campaign", "e", "--campaign", "c", "--results", str(folder.results)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) == 9
    assert names(CampaignFolder(folder.results, "e")) == ONE_FILE
    usage = CliRunner().invoke(app, ["merge", "--help"]).output.strip().splitlines()[0]
    assert usage.endswith("merge [OPTIONS] [NAME]...")


def test_later_runs_are_merged_into_it(folder: CampaignFolder) -> None:
    merge.merge(folder.results, "c")
    measure(folder, "r4444")
    before = contents(folder)
    merge.merge(folder.results, "c")
    assert names(folder) == ONE_FILE
    assert contents(folder) == before


@pytest.mark.parametrize("written", range(4))
def test_a_merge_that_was_stopped_is_done_again(folder: CampaignFolder, tmp_path: Path, written: int) -> None:
    """Stopped after so many of the new files: a run then lies in two files of a table."""
    before = contents(folder)
    whole = CampaignFolder(tmp_path / "copy", "c")
    shutil.copytree(folder.path, whole.path)
    merge.merge(whole.results, "c")
    for table in TABLES[:written]:
        whole.table(table, "merged").rename(folder.table(table, "merged"))
    merge.merge(folder.results, "c")
    assert names(folder) == ONE_FILE
    assert contents(folder) == before


@pytest.mark.parametrize("removed", range(9))
def test_a_merge_stopped_while_it_removes(folder: CampaignFolder, removed: int) -> None:
    before = contents(folder)
    keep = {path: path.read_bytes() for table in TABLES for path in folder.parquet_files(table)}
    merge.merge(folder.results, "c")
    for path in list(keep)[removed:]:
        path.write_bytes(keep[path])
    merge.merge(folder.results, "c")
    assert names(folder) == ONE_FILE
    assert contents(folder) == before


def test_a_damaged_file_is_named_and_nothing_removed(folder: CampaignFolder) -> None:
    before = names(folder)
    damaged = folder.table("cases", "r22")
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(DataError, match=r"cases/r22\.parquet cannot be read"):
        merge.merge(folder.results, "c")
    kept = names(folder)
    assert {table: [n for n in kept[table] if n != "merged.parquet"] for table in TABLES} == before


def test_a_live_run_is_refused_a_dead_one_finished(folder: CampaignFolder) -> None:
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from pathlib import Path; import test_merge\n"
        "folder = test_merge.CampaignFolder(Path(sys.argv[2]), 'c')\n"
        "journal = test_merge.begin(folder, 'live'); print('ready', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(folder.results)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    before = contents(folder)
    with pytest.raises(Refused, match="run live of campaign 'c' is being measured"):
        merge.merge(folder.results, "c")
    assert contents(folder) == before
    process.kill()
    process.communicate()
    merge.merge(folder.results, "c")
    assert names(folder) == ONE_FILE
    assert folder.journals() == []
    runs = pq.read_table(folder.table("runs", "merged")).to_pylist()
    assert {run["run_id"]: run["complete"] for run in runs} == {
        "r1": True, "r22": True, "r333": True, "live": False,
    }  # fmt: skip


def test_a_campaign_of_nothing_but_a_dead_journal(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path, "c")
    begin(folder, "r1").close()
    merge.merge(tmp_path, "c")
    assert [len(rows) for rows in contents(folder).values()] == [5, 3, 1]


def test_a_journal_without_a_line_holds_nothing(folder: CampaignFolder) -> None:
    folder.journal("r5").write_bytes(b'{"event": "ru')
    assert merge.finish_dead(folder) == []
    assert list((folder.path / "journal").iterdir()) == []


def test_a_journal_that_cannot_be_read_stays(folder: CampaignFolder) -> None:
    folder.journal("r5").write_bytes(b"not a journal\nat all\n")
    merge.merge(folder.results, "c")
    assert folder.journal("r5").exists()
    assert names(folder) == ONE_FILE


def test_an_unknown_campaign_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no campaign 'nothing'"):
        merge.merge(tmp_path, "nothing")
    assert list(tmp_path.iterdir()) == []


def test_the_status_of_a_dead_case_follows_a_cut_line(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path, "c")
    written = begin(folder, "r1")
    written.close()
    with written.path.open("ab") as stream:
        stream.write(b'{"event": "case", "seconds": [1.0, 2')
    ended = journal.append_status(written.path, Status.CRASHED, "SIGSEGV")
    assert ended is not None
    assert (ended["nodeid"], ended["family"], ended["status"]) == ("d", "f", "crashed")
    assert journal.append_status(written.path, Status.CRASHED, "again") is None  # nothing in flight
    assert [event["event"] for event in journal.read(written.path)][-2:] == ["start", "case"]
    journal.finish(written.path, folder)
    case = pq.read_table(folder.table("cases", "r1")).to_pylist()[-1]
    assert (case["case_id"], case["status"], case["reason"], case["run_id"]) == (
        "f/d",
        "crashed",
        "SIGSEGV",
        "r1",
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_flipped_bit_is_named_and_the_file_stays(folder: CampaignFolder, table: str) -> None:
    file = folder.table(table, "r22")
    whole, group = file.read_bytes(), pq.read_metadata(file).row_group(0)
    for column in map(group.column, range(group.num_columns)):
        place = column.data_page_offset + column.total_compressed_size
        if column.dictionary_page_offset is not None:
            place -= column.data_page_offset - column.dictionary_page_offset
        flipped = whole[: place - 1] + bytes([whole[place - 1] ^ 4]) + whole[place:]
        file.write_bytes(flipped)
        with pytest.raises(DataError, match=rf"{table}/r22\.parquet"):
            merge.merge(folder.results, "c")
        assert file.read_bytes() == flipped


@pytest.mark.parametrize("renamed", ["seconds", "sample"])
def test_a_column_that_no_table_has_is_named_and_the_file_stays(folder: CampaignFolder, renamed: str) -> None:
    """A merge writes the columns it knows and removes the file: a renamed one would be lost with it."""
    path = folder.table("samples", "r22")
    found = pq.read_table(path)
    names = [f"{name}_s" if name == renamed else name for name in found.column_names]
    pq.write_table(found.rename_columns(names).replace_schema_metadata(found.schema.metadata), path)
    before = path.read_bytes()
    with pytest.raises(DataError, match=rf"r22\.parquet has the column '{renamed}_s', which .* would lose"):
        merge.merge(folder.results, "c")
    assert path.read_bytes() == before
