"""Damaged files: an error that names the file, or the right data; never a traceback, a hang, wrong data.

Everything is drawn from fixed seeds, so a failure comes back.
"""

# ruff: noqa: PT017  an error is looked at where it is caught: most draws raise none

import json
import random
import shutil
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench_lib.campaigns import merge
from bench_lib.campaigns.watch import Watchdog
from bench_lib.comparing import store
from bench_lib.errors import CudaGainsError, DataError, UsageError
from bench_lib.faults import seals
from bench_lib.journaling import journal
from bench_lib.layout import TABLES, CampaignFolder
from bench_lib.stacking.stacks import load_stacks

Damage = Callable[[random.Random, bytearray], None]


def flip_bits(rng: random.Random, raw: bytearray) -> None:
    for _ in range(rng.randint(1, 3)):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)


def other_digit(rng: random.Random, raw: bytearray) -> None:
    """The worst of flips in text: still valid, and another number."""
    digits = [place for place, byte in enumerate(raw) if 48 <= byte <= 57]
    place = rng.choice(digits)
    raw[place] = rng.choice([byte for byte in range(48, 58) if byte != raw[place]])


def cut(rng: random.Random, raw: bytearray) -> None:
    del raw[rng.randrange(len(raw)) :]


def zeros(rng: random.Random, raw: bytearray) -> None:
    """A block that never reached the disk."""
    begin = rng.randrange(len(raw))
    end = min(begin + rng.randint(1, 4096), len(raw))
    raw[begin:end] = bytes(end - begin)


def doubled(rng: random.Random, raw: bytearray) -> None:
    begin = rng.randrange(len(raw))
    raw[begin:begin] = raw[begin : begin + rng.randint(1, 400)]


DAMAGES: list[Damage] = [flip_bits, flip_bits, other_digit, cut, zeros, doubled]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Campaign `c`, of Parquet files; `j`, of a journal; and run.json."""
    folder = tmp_path_factory.mktemp("whole")
    rows = [synthetic.measurement(case, [1.25e-6, 2.5e-6, 3.75e-6]) for case in synthetic.cases(3)]
    machine = synthetic.identity(synthetic.Machine())
    synthetic.write_run(folder, synthetic.run_info("c", "a", run_id="run"), machine, rows)
    left = synthetic.run_info("j", "a", run_id="run")
    path = synthetic.write_run(folder, left, machine, rows, finish=False)
    synthetic.write_json(folder / "run.json", path)
    document = json.loads((folder / "run.json").read_text())
    ours = document["cuda_gains"]
    ours["sha256"] = seals.digest(ours["runs"], ours["cases"], document["benchmarks"])
    (folder / "run.json").write_text(json.dumps(document, indent=4))
    return folder


def values(data: store.Data) -> set[tuple[str, int, float]]:
    names = ("case_id", "sample", "seconds")
    return {tuple(row[name] for name in names) for row in data.samples.to_pylist()}  # type: ignore[misc]


def fully(data: store.Data) -> list[dict[str, Any]]:
    return list(
        data.cases[["case_id", "status", "margin", "params", "calls", "n_samples"]].to_dict("records")
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_parquet_file(whole: Path, tmp_path: Path, table: str) -> None:
    truth = store.load(whole, ["c"])
    shutil.copytree(whole / "c", tmp_path / "c")
    path = CampaignFolder(tmp_path, "c").table(table, "run")
    raw, rng, named = path.read_bytes(), random.Random(table), 0
    begin = time.monotonic()
    for number in range(60):
        damaged = bytearray(raw)
        DAMAGES[number % len(DAMAGES)](rng, damaged)
        path.write_bytes(damaged)
        found = store.load(tmp_path, ["c"])
        if found.skipped:
            named += 1
            assert str(path) in {name for name, _ in found.skipped}
            assert all("\n" not in why for _, why in found.skipped)
        else:
            assert values(found) == values(truth), (number, "wrong data, unmarked")
            assert fully(found) == fully(truth), (number, "wrong data, unmarked")
    assert named > 30  # most damage is damage
    assert time.monotonic() - begin < 60


def test_a_damaged_journal(whole: Path, tmp_path: Path) -> None:
    truth = store.load(whole, ["j"])
    folder = CampaignFolder(tmp_path, "j")
    path = folder.journal("run")
    path.parent.mkdir(parents=True)
    raw, rng, named, short = (whole / "j" / "journal" / "run.jsonl").read_bytes(), random.Random(7), 0, 0
    for number in range(150):
        damaged = bytearray(raw)
        DAMAGES[number % len(DAMAGES)](rng, damaged)
        path.write_bytes(damaged)
        assert Watchdog(path, 1.0, 60.0).overdue() == ""
        found = store.load(tmp_path, ["j"])
        if found.skipped:
            named += 1
            assert [name for name, _ in found.skipped] == [str(path)]
            said: list[str] = []
            merge.finish_dead(folder, said.append)
            assert path.exists() is (b"\n" in damaged)  # without a whole line nothing was measured
            assert not path.exists() or [str(path) in sentence for sentence in said] == [True]
            continue
        # What a cut takes away is as if the process had died there: an incomplete run, marked so.
        short += len(found.cases) < len(truth.cases)
        assert values(found) <= values(truth), (number, "wrong data, unmarked")
        assert all(row in fully(truth) for row in fully(found)), (number, "wrong data, unmarked")
        assert len(found.cases) == len(truth.cases) or not found.runs["complete"].any()
    assert named > 60
    assert short > 5


def test_a_damaged_json_file(whole: Path, tmp_path: Path) -> None:
    truth = store.load_json(whole / "run.json")
    path, rng, named = tmp_path / "run.json", random.Random(11), 0
    raw = (whole / "run.json").read_bytes()
    for number in range(150):
        damaged = bytearray(raw)
        DAMAGES[number % len(DAMAGES)](rng, damaged)
        path.write_bytes(damaged)
        try:
            found = store.load_json(path)
        except DataError as error:
            named += 1
            assert str(path) in str(error)
            continue
        assert values(found) == values(truth), (number, "wrong data, unmarked")
        assert fully(found) == fully(truth), (number, "wrong data, unmarked")
    assert named > 60


def test_a_damaged_stacks_file(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[1] / "benchmarks" / "stacks.toml"
    raw, rng = shipped.read_bytes(), random.Random(13)
    path = tmp_path / "stacks.toml"
    for number in range(120):
        damaged = bytearray(raw)
        DAMAGES[number % len(DAMAGES)](rng, damaged)
        path.write_bytes(damaged)
        try:
            entries = load_stacks(path)
        except UsageError as error:
            assert "stacks.toml" in str(error)
        else:
            assert "here" in entries
            assert set(entries) - {"here"} <= set(tomllib.loads(path.read_text()))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
QUICK = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
EVENT = st.sampled_from(["run", "identity", "start", "case", "note", "end", "other"])
FIELD = st.sampled_from(
    ["run_id", "campaign", "case_id", "family", "params", "seconds", "flags", "margin", "nodeid", "warnings",
     "facts", "quantities", "started_at", "status", "calls", "text", "machine", "stack", "settings"]
)  # fmt: skip


@QUICK
@given(events=st.lists(st.fixed_dictionaries({"event": EVENT}, optional={}), max_size=6), data=st.data())
def test_any_event_in_a_journal(tmp_path_factory: pytest.TempPathFactory, events: Any, data: Any) -> None:
    """A journal of the right form with anything in its fields gives rows that fit, or an error."""
    folder = CampaignFolder(tmp_path_factory.mktemp("any"), "c")
    path = folder.journal("r")
    path.parent.mkdir(parents=True)
    keys = dict.fromkeys(("campaign", "stack", "arm", "round", "device"), "x")
    lines = [{"event": "run", "run_id": "r", **keys}]
    lines += [{**event, **data.draw(st.dictionaries(FIELD, JSON, max_size=5))} for event in events]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = store.load(folder.results, ["c"])
    if not found.skipped:
        assert len(found.runs) == 1
        assert len(found.cases) == sum(line["event"] == "case" for line in lines)
        journal.finish(path, folder)
        again = store.load(folder.results, ["c"])
        assert again.cases["status"].tolist() == found.cases["status"].tolist()
    else:
        assert found.skipped[0][0] == str(path)


@QUICK
@given(document=JSON, version=st.just(1) | JSON)
def test_any_json_file(tmp_path_factory: pytest.TempPathFactory, document: Any, version: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "run.json"
    inner = {"schema_version": version, "runs": [document], "cases": [document]}
    for content in (document, {"cuda_gains": inner, "benchmarks": document}):
        path.write_text(json.dumps(content))
        with pytest.raises(DataError, match=r"run\.json"):
            store.load_json(path)


TOML = st.dictionaries(
    st.sampled_from(["kind", "pins", "python", "index", "base", "library", "folder", "declares", "other"]),
    st.sampled_from(['"here"', '"cudart"', '"swap"', "1", "[]", '["x==1"]', "{}", '"../x"', "true", '""']),
    max_size=6,
)


@QUICK
@given(tables=st.dictionaries(st.sampled_from(["a", "b-1", '"c.d"', '"../e"', '""']), TOML, max_size=4))
def test_any_stacks_file(tmp_path_factory: pytest.TempPathFactory, tables: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "stacks.toml"
    lines = [
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in table.items())
        for name, table in tables.items()
    ]
    path.write_text("\n".join(lines))
    try:
        entries = load_stacks(path)
    except CudaGainsError as error:
        assert "\n" not in str(error)
    else:
        assert all(name == entry.name for name, entry in entries.items())
