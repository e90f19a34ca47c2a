"""A journal keeps what it can: text that is no UTF-8, fields of a wrong type, foreign files."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench_lib import journal
from bench_lib.journal import Journal
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
    with written.path.open("ab") as stream:  # as an older version wrote it
        stream.write(b'{"event":"case","case_id":"f/c","status":"failed","reason":"\\udce9"}\n')
    journal.finish(written.path, folder)
    escaped = "caf\\udce9"
    assert finished(folder, "runs")[0]["command"] == f"pytest {escaped}"
    assert finished(folder, "runs")[0]["settings"] == [(f"env.{escaped}", escaped)]
    cases = finished(folder, "cases")
    assert [case["reason"] for case in cases] == ["", escaped, "\\udce9"]
    assert cases[0]["facts"] == [("path", escaped)]
