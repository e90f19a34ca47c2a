import json
import math
import shutil

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench_lib import schema
from bench_lib.campaigns.merge import merge
from bench_lib.comparing import store
from bench_lib.errors import DataError, UsageError
from bench_lib.journaling import journal
from bench_lib.layout import TABLES, CampaignFolder
from bench_lib.model import Status

STACKS = {"old": 1.0, "new": 0.9}


def campaign(results, rounds=2, **more):
    measured = synthetic.cases(2)
    synthetic.write_campaign(results, "demo", STACKS, rounds=rounds, measured=measured, samples=5, **more)
    return CampaignFolder(results, "demo")


def test_a_campaign_is_read_as_it_was_measured(tmp_path):
    campaign(tmp_path, rounds=3)
    data = store.load(tmp_path, ["demo"])
    assert sorted(data.runs["arm"].unique()) == ["new", "old", "old#2"]
    assert (len(data.runs), len(data.cases), data.samples.num_rows) == (9, 18, 90)
    assert data.samples.column_names == list(store.SAMPLE_COLUMNS)
    assert data.runs["stack_identity"][0]["cudart.version"] in ("11.8", "12.4")
    assert data.runs["complete"].all()
    assert data.skipped == ()


def test_samples_come_back_bit_for_bit(tmp_path):
    seconds = [1e-6 / 3, math.pi * 1e-6, 5e-324]
    case = synthetic.cases(1)[0]
    info = synthetic.run_info("demo", "old")
    machine = synthetic.identity(synthetic.Machine())
    synthetic.write_run(tmp_path, info, machine, [synthetic.measurement(case, seconds)])
    assert store.load(tmp_path, ["demo"]).samples["seconds"].to_pylist() == seconds


def test_a_journal_is_an_incomplete_run(tmp_path):
    info = synthetic.run_info("demo", "old")
    rows = [synthetic.measurement(case, [1e-6, 2e-6]) for case in synthetic.cases(2)]
    path = synthetic.write_run(
        tmp_path, info, synthetic.identity(synthetic.Machine()), rows, complete=False, finish=False
    )
    path.write_bytes(path.read_bytes() + b'{"event":"case","fam')  # killed in the middle of a line
    data = store.load(tmp_path, ["demo"])
    assert data.runs["complete"].tolist() == [False]
    assert (len(data.cases), data.samples.num_rows) == (2, 4)


def test_a_run_in_two_files_counts_once(tmp_path):
    folder = campaign(tmp_path)
    before = store.load(tmp_path, ["demo"])
    for table in TABLES:
        merged = pa.concat_tables([pq.read_table(path) for path in folder.parquet_files(table)])
        journal.write_table(folder.table(table, "merged"), merged)
    after = store.load(tmp_path, ["demo"])
    assert len(after.runs) == len(before.runs)
    assert len(after.cases) == len(before.cases)
    assert after.samples.num_rows == before.samples.num_rows


def test_a_journal_beside_its_parquet_counts_once(tmp_path):
    info = synthetic.run_info("demo", "old")
    rows = [synthetic.measurement(synthetic.cases(1)[0], [1e-6, 2e-6])]
    path = synthetic.write_run(tmp_path, info, synthetic.identity(synthetic.Machine()), rows, finish=False)
    copy = path.read_bytes()
    journal.finish(path, CampaignFolder(tmp_path, "demo"))
    CampaignFolder(tmp_path, "demo").table("runs", info.run_id).unlink()  # died before its last file
    path.write_bytes(copy)
    data = store.load(tmp_path, ["demo"])
    assert (len(data.runs), len(data.cases), data.samples.num_rows) == (1, 1, 2)


def _truncate(path):
    path.write_bytes(path.read_bytes()[:100])


def _empty(path):
    path.write_bytes(b"")


def _foreign(path):
    pq.write_table(pa.table({"run_id": ["x"], "seconds": [1.0]}), path)


def _newer(path):
    table = pq.read_table(path)
    newer = {b"cuda_gains_schema": str(schema.SCHEMA_VERSION + 1).encode()}
    pq.write_table(table.replace_schema_metadata(newer), path)


def _text(path):
    path.write_text("run_id,seconds\n")


def _wrong_type(path):
    table = pq.read_table(path)
    column = pa.array(["x"] * table.num_rows)
    pq.write_table(table.set_column(table.column_names.index("case_id"), "run_id_", column), path)
    table = table.drop_columns(["run_id"])
    pq.write_table(table, path)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_truncate, "cannot be read"),
        (_empty, "cannot be read"),
        (_foreign, "no schema version of this suite"),
        (_newer, "upgrade the suite"),
        (_text, "cannot be read"),
        (_wrong_type, "lacks the column 'run_id'"),
    ],
)
def test_a_damaged_file_is_skipped_by_name_and_the_rest_is_read(tmp_path, damage, why):
    folder = campaign(tmp_path)
    whole = store.load(tmp_path, ["demo"])
    path = folder.parquet_files("cases")[0]
    damage(path)
    data = store.load(tmp_path, ["demo"])
    assert len(data.cases) == len(whole.cases) - 2
    assert [(name, why in reason) for name, reason in data.skipped] == [(str(path), True)]


def test_cases_without_their_run_are_named_and_left_out(tmp_path):
    folder = campaign(tmp_path)
    path = folder.parquet_files("runs")[0]
    _truncate(path)
    data = store.load(tmp_path, ["demo"])
    assert path.stem not in set(data.cases["run_id"]) | set(data.samples["run_id"].to_pylist())
    assert [name for name, _ in data.skipped] == [str(path), f"run {path.stem}"]


def test_a_flipped_bit_in_a_page_is_found(tmp_path):
    folder = campaign(tmp_path)
    path = folder.parquet_files("samples")[0]
    metadata = pq.ParquetFile(path).metadata.row_group(0)
    column = next(
        metadata.column(i)
        for i in range(metadata.num_columns)
        if metadata.column(i).path_in_schema == "seconds"
    )
    start = column.dictionary_page_offset or column.data_page_offset
    raw = bytearray(path.read_bytes())
    raw[start + column.total_compressed_size - 5] ^= 0x10
    path.write_bytes(bytes(raw))
    assert [name for name, _ in store.load(tmp_path, ["demo"]).skipped] == [str(path)]


@pytest.mark.parametrize("content", [b"", b"\x00" * 50, b"{}\n", b'{"event":"run"}\n', b'[1]\n{"event":3}\n'])
def test_a_file_that_is_no_journal_is_skipped_by_name(tmp_path, content):
    folder = campaign(tmp_path)
    path = folder.journal("other")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    data = store.load(tmp_path, ["demo"])
    assert len(data.runs) == 6
    assert [name for name, _ in data.skipped] == [str(path)]


def test_a_journal_with_a_value_of_the_wrong_type_loses_that_case_alone(tmp_path):
    info = synthetic.run_info("demo", "old")
    good = synthetic.measurement(synthetic.cases(1)[0], [1e-6])
    path = synthetic.write_run(tmp_path, info, synthetic.identity(synthetic.Machine()), [good], finish=False)
    events = [json.loads(line) for line in path.read_bytes().splitlines()]
    events.append({"event": "case", "case_id": "launch/x", "family": {"a": 1}, "seconds": ["x"]})
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))  # as an older version wrote it
    data = store.load(tmp_path, ["demo"])
    assert data.cases["status"].tolist() == ["ok", "failed"]
    assert "its record is damaged: field 'family'" in data.cases["reason"][1]
    assert data.samples.num_rows == 1
    assert data.skipped == ()


def test_a_missing_column_of_an_older_file_is_empty(tmp_path):
    folder = campaign(tmp_path)
    path = folder.parquet_files("cases")[0]
    pq.write_table(pq.read_table(path).drop_columns(["nodeid", "quantities", "n_flagged"]), path)
    data = store.load(tmp_path, ["demo"])
    assert data.skipped == ()
    assert "" in set(data.cases["nodeid"])


def test_nothing_measured_is_empty_and_not_an_error(tmp_path):
    data = store.load(tmp_path, ["nothing"])
    assert data.runs.empty
    assert data.cases.empty
    assert data.samples.num_rows == 0


def test_a_campaign_name_cannot_leave_the_results(tmp_path):
    with pytest.raises(UsageError, match="campaign name"):
        store.load(tmp_path, ["../demo"])


def test_several_campaigns_are_read_together(tmp_path):
    campaign(tmp_path)
    synthetic.write_campaign(tmp_path, "other", {"x": 1.0}, rounds=1, null=False)
    assert set(store.load(tmp_path, ["demo", "other"]).runs["campaign"]) == {"demo", "other"}


@pytest.mark.parametrize("merged", [False, True])
def test_a_campaign_is_what_its_folder_is_called(tmp_path, merged):
    """Folders are renamed and copied: two of one old name would be one, and one of two old names two."""
    campaign(tmp_path)
    synthetic.write_campaign(tmp_path, "more", {"x": 1.0}, rounds=1, null=False)
    for table in ("runs", "cases", "samples"):
        for path in (tmp_path / "more" / table).iterdir():
            path.rename(tmp_path / "demo" / table / path.name)
    (tmp_path / "demo").rename(tmp_path / "before")
    if merged:
        merge(tmp_path, "before")
    data = store.load(tmp_path, ["before"])
    assert {"x", "old", "new"} <= set(data.runs["arm"])
    assert set(data.runs["campaign"]) == set(data.cases["campaign"]) == {"before"}


def test_the_part_of_some_runs(tmp_path):
    campaign(tmp_path)
    data = store.load(tmp_path, ["demo"])
    one = data.of_runs({data.runs["run_id"][0]})
    assert (len(one.runs), len(one.cases), one.samples.num_rows) == (1, 2, 10)
    assert data.of_runs(set(data.runs["run_id"])) is data


def test_duckdb_reads_the_loaded_samples(tmp_path):
    campaign(tmp_path)
    samples = store.load(tmp_path, ["demo"]).samples
    with duckdb.connect() as connection:
        connection.register("samples", samples)
        assert connection.sql("SELECT count(DISTINCT run_id) FROM samples").fetchall() == [(6,)]


def _json(tmp_path):
    flags = ([], ["preempted", "", "throttled+clock-low"])
    rows = [
        synthetic.measurement(case, [1e-6, 2e-6, 3e-6], flags=found)
        for case, found in zip(synthetic.cases(2), flags, strict=True)
    ]
    rows.append(synthetic.measurement(synthetic.cases(3)[2], [], status=Status.SKIPPED, reason="no GPU here"))
    info = synthetic.run_info("local", "here")
    path = synthetic.write_run(tmp_path, info, synthetic.identity(synthetic.Machine()), rows, finish=False)
    return synthetic.write_json(tmp_path / "run.json", path)


def test_a_json_file_is_read_as_its_run(tmp_path):
    data = store.load_json(_json(tmp_path))
    from_journal = store.load(tmp_path, ["local"])
    assert data.runs.iloc[0].to_dict() == from_journal.runs.iloc[0].to_dict()
    assert data.cases["status"].tolist() == ["ok", "ok", "skipped"]
    assert data.samples.to_pylist() == from_journal.samples.to_pylist()
    assert {"preempted", "throttled+clock-low"} < set(data.samples["flags"].to_pylist())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is no JSON, or a damaged one"),
        ("[]", "is JSON, but not of this suite; name a file written by `pytest benchmarks"),
        ('{"benchmarks": []}', "is JSON, but not of this suite; name a file written by `pytest benchmarks"),
        ('{"cuda_gains": {"schema_version": 99}, "benchmarks": []}', "upgrade the suite"),
        ('{"cuda_gains": {"schema_version": 1}, "benchmarks": []}', "cannot be read"),
        ('{"cuda_gains": {"schema_version": 1, "runs": 3, "cases": [1]}}', "cannot be read"),
        ("[" * 100_000, "is no JSON, or a damaged one; name a file"),
        ("# A README", "is no JSON, or a damaged one; name a file"),
    ],
)
def test_a_json_file_that_is_not_ours_is_named(tmp_path, content, why):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(DataError, match=why) as caught:
        store.load_json(path)
    assert str(path) in str(caught.value)


def test_a_missing_json_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.json is not there; name a file written by"):
        store.load_json(tmp_path / "absent.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    results = tmp_path_factory.mktemp("whole")
    campaign(results, rounds=1)
    return results


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_are_named_or_harmless(whole, tmp_path, data):
    results = tmp_path / "flipped"
    shutil.rmtree(results, ignore_errors=True)
    shutil.copytree(whole, results)
    folder = CampaignFolder(results, "demo")
    path = folder.parquet_files(data.draw(st.sampled_from(TABLES)))[0]
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw))
    found, truth = store.load(results, ["demo"]), store.load(whole, ["demo"])
    if not found.skipped:
        assert sorted(found.samples["seconds"].to_pylist()) == sorted(truth.samples["seconds"].to_pylist())
