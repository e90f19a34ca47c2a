"""A journal keeps what it can: text that is no UTF-8, fields of a wrong type, foreign files."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench_lib.campaigns import merge
from bench_lib.errors import DataError
from bench_lib.journaling import journal
from bench_lib.journaling.journal import Journal
from bench_lib.layout import CampaignFolder
from bench_lib.model import Case, Identity, Measurement, RunInfo, Series, Status

NO_UTF8 = "caf\udce9"


def measured(op: str, **facts: Any) -> Measurement:
    return Measurement(Case("f", op), Status.OK, series=Series((1.0, 2.0), facts=facts), nodeid=op)


def finished(folder: CampaignFolder, table: str) -> list[dict[str, Any]]:
    return list(pq.read_table(folder.table(table, "r")).to_pylist())


def test_text_that_is_no_utf8_is_kept_escaped(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path, "c")
    with Journal(folder.journal("r")) as written:
        written.run(RunInfo("r", "c", "here", "here", command=f"pytest {NO_UTF8}"))
        written.identity(Identity(settings={f"env.{NO_UTF8}": NO_UTF8}))
        written.case(measured("a", path=NO_UTF8), "quick")
        written.case(Measurement(Case("f", "b"), Status.FAILED, NO_UTF8), "quick")
    write(written.path, [json.loads(line) for line in written.path.read_bytes().splitlines()])
    with written.path.open("ab") as stream:  # as an older version wrote it, without checksums
        stream.write(b'{"event":"case","case_id":"f/c","status":"failed","reason":"\\udce9"}\n')
    journal.finish(written.path, folder)
    escaped = "caf\\udce9"
    assert finished(folder, "runs")[0]["command"] == f"pytest {escaped}"
    assert finished(folder, "runs")[0]["settings"] == [(f"env.{escaped}", escaped)]
    cases = finished(folder, "cases")
    assert [case["reason"] for case in cases] == ["", escaped, "\\udce9"]
    assert cases[0]["facts"] == [("path", escaped)]


WRONG: dict[str, Any] = {
    "wall_seconds": "long", "calls": 2**40, "facts": [1], "quantities": {"x": "y"}, "warnings": 3,
    "started_at": "now", "seconds": [1.0, "2"], "flags": 5, "family": 7, "reason": {},
}  # fmt: skip


@pytest.mark.parametrize("field", WRONG)
def test_a_field_of_a_wrong_type_costs_its_case_only(tmp_path: Path, field: str) -> None:
    folder = CampaignFolder(tmp_path, "c")
    with Journal(folder.journal("r")) as written:
        written.run(RunInfo("r", "c", "here", "here"))
        written.case(measured("a"), "quick")
        written.case(measured("b"), "quick")
    lines = [json.loads(line) for line in written.path.read_bytes().splitlines()]
    lines[2][field] = WRONG[field]
    write(written.path, lines)
    journal.finish(written.path, folder)
    good, bad = finished(folder, "cases")
    assert (good["status"], good["n_samples"], bad["status"], bad["n_samples"]) == ("ok", 2, "failed", 0)
    assert f"'{field}'" in bad["reason"]
    assert bad["case_id"] == "f/b"
    assert [row["case_id"] for row in finished(folder, "samples")] == ["f/a", "f/a"]


def test_the_row_of_a_run_keeps_what_fits(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path, "c")
    with Journal(folder.journal("r")) as written:
        written.run(RunInfo("r", "c", "here", "here", seed=5))
        written.case(measured("a"), "quick")
    lines = [json.loads(line) for line in written.path.read_bytes().splitlines()]
    lines[0]["position"] = "first"
    write(written.path, [*lines, {"event": "identity", "machine": 5, "stack": "x", "settings": {"a": "b"}}])
    journal.finish(written.path, folder)
    (run,) = finished(folder, "runs")
    assert (run["position"], run["seed"], run["settings"]) == (None, 5, [("a", "b")])
    assert len(finished(folder, "cases")) == 1


RUN = {"event": "run", "run_id": "r", "campaign": "c", "stack": "s", "arm": "s", "round": "", "device": "cpu"}


@pytest.mark.parametrize(
    "change",
    [
        *({key: value} for key in RUN if key != "event" for value in (None, 5, ["x"])),
        *({"run_id": name} for name in ("../../../out", "r.copy", "", "/r")),
    ],
)
def test_a_foreign_journal_is_a_data_error_and_stays(tmp_path: Path, change: dict[str, Any]) -> None:
    folder, said = CampaignFolder(tmp_path / "results", "c"), list[str]()
    path = folder.journal("r")
    path.parent.mkdir(parents=True)
    write(path, [RUN | change, {"event": "end"}])
    with pytest.raises(DataError, match=r"r\.jsonl"):
        journal.read(path)
    assert merge.finish_dead(folder, said.append) == []
    assert [path.name in sentence for sentence in said] == [True]
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]
    with pytest.raises(DataError, match="no samples that can be read"):
        merge.merge(folder.results, "c")


def test_a_copy_never_replaces_the_run(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path, "c")
    with Journal(folder.journal("r")) as written:
        written.run(RunInfo("r", "c", "here", "here"))
        written.case(measured("a"), "quick")
    copy = folder.journal("r.copy")
    copy.write_bytes(written.path.read_bytes().splitlines(keepends=True)[0])
    (folder.path / "journal" / "folder.jsonl").mkdir()
    merge.merge(tmp_path, "c")
    assert copy.exists()
    assert [case["op"] for case in pq.read_table(folder.table("cases", "merged")).to_pylist()] == ["a"]


def write(path: Path, events: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def test_a_line_that_was_changed_is_named_and_never_read(tmp_path: Path) -> None:
    """One digit of a sample: still JSON, another number."""
    folder = CampaignFolder(tmp_path, "c")
    with Journal(folder.journal("r")) as written:
        written.run(RunInfo("r", "c", "here", "here"))
        written.case(measured("a"), "quick")
        written.end(0)
    whole = written.path.read_bytes()
    written.path.write_bytes(whole.replace(b"[1.0,2.0]", b"[1.0,7.0]"))
    with pytest.raises(DataError, match=r"r\.jsonl: line 2 is not a journal event"):
        journal.read(written.path)
    lines = whole.splitlines(keepends=True)
    written.path.write_bytes(lines[0] + lines[1].replace(b'"crc32"', b'"crc33"') + lines[2])
    with pytest.raises(DataError, match="line 2"):
        journal.read(written.path)


def test_a_note_is_one_more_warning_of_its_case(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path, "c")
    with Journal(folder.journal("r")) as written:
        written.run(RunInfo("r", "c", "here", "here"))
        written.case(measured("a"), "quick")
        written.note("a", "it left 1.0 GiB behind")
        written.case(Measurement(Case("f", "b"), Status.FAILED, "broken", nodeid="b"), "quick")
        written.note("b", "it changed a setting")
        written.note("gone", "of no case")
    journal.finish(written.path, folder)
    warnings = [case["warnings"] for case in finished(folder, "cases")]
    assert warnings == [["it left 1.0 GiB behind"], ["it changed a setting"]]
