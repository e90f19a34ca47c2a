"""results/README.md is held to the code: each field once with its type, and its examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import synthetic

from bench_lib import schema
from bench_lib.layout import CampaignFolder
from bench_lib.model import Flag, Status, Timing

README = Path(__file__).parents[1] / "results" / "README.md"
CAMPAIGN = "h200-cudart-ladder"  # the one its examples read
ROW = re.compile(
    r"^\| `(?P<name>\w+)` \| `(?P<type>[^`]+)` \| (?P<unit>[^|]*)\| (?P<meaning>[^|]+) \|$", re.M
)
UNITS = {"seconds": "s", "mhz": "MHz", "c": "°C", "w": "W", "flop": "FLOP", "nbytes": "B"}


def type_name(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return f"dictionary<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"list<{type_name(kind.value_type)}>"
    if pa.types.is_timestamp(kind):
        return f"timestamp[{kind.unit}, {kind.tz}]"
    return {"double": "float64"}.get(str(kind), str(kind))


def documented(table: str) -> list[re.Match[str]]:
    section = re.split(r"^## ", README.read_text(), flags=re.M)
    return list(ROW.finditer(next(part for part in section if part.startswith(f"{table}\n"))))


@pytest.mark.parametrize("table", schema.SCHEMAS)
def test_every_field_stands_there_once_with_its_type(table):
    declared = [(field.name, type_name(field.type)) for field in schema.SCHEMAS[table]]
    assert [(row["name"], row["type"]) for row in documented(table)] == declared


@pytest.mark.parametrize("table", schema.SCHEMAS)
def test_a_unit_in_a_name_is_the_unit_documented(table):
    for row in documented(table):
        words = row["name"].removesuffix("_start").removesuffix("_end").split("_")
        if words[-1] in UNITS:
            assert row["unit"].strip() == UNITS[words[-1]], row["name"]


@pytest.mark.parametrize(
    ("table", "field", "values"),
    [
        ("cases", "status", Status),
        ("samples", "flags", Flag),
        ("samples", "timing", set(Timing) - {Timing.FAKE}),
    ],
)
def test_every_value_of_a_word_is_documented(table, field, values):
    meaning = next(row["meaning"] for row in documented(table) if row["name"] == field)
    assert {str(value) for value in values} <= set(re.findall(r"`([^`]+)`", meaning))


def test_the_version_documented_is_the_version_written():
    assert f"these pages describe version {schema.SCHEMA_VERSION}." in README.read_text()
    assert "`cuda_gains_schema`" in README.read_text()
    assert schema.version_of(schema.SCHEMAS["samples"]) == schema.SCHEMA_VERSION


def snippets() -> dict[str, str]:
    code = re.findall(r"^```python\n(.*?)```$", README.read_text(), flags=re.M | re.S)
    return {snippet.split()[1]: snippet for snippet in code}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("readme")
    synthetic.write_campaign(path / "results", CAMPAIGN, {"cudart-11.8": 1.0, "cudart-12.4": 0.5}, rounds=2)
    return path


@pytest.mark.parametrize("library", ["duckdb", "pandas", "polars"])
def test_an_example_runs_without_our_code(library, folder):
    code = snippets()[library]
    assert len(code.splitlines()) == 3
    check = f"{code}\nimport sys\nassert 'bench_lib' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", check], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cudart-11.8" in done.stdout


@pytest.mark.parametrize("table", schema.SCHEMAS)
def test_three_libraries_read_every_table(table, folder):
    import duckdb
    import pandas as pd
    import polars as pl

    path = folder / "results" / CAMPAIGN / table
    names = schema.SCHEMAS[table].names
    found = duckdb.sql(f"SELECT * FROM '{path}/*.parquet'")
    assert found.columns == list(pd.read_parquet(path).columns) == names
    assert pl.read_parquet(path / "*.parquet").columns == names
    assert len(found) == len(pd.read_parquet(path)) == pl.read_parquet(path / "*.parquet").height > 0


def test_the_layout_documented_is_the_layout_written(folder):
    campaign = CampaignFolder(folder / "results", CAMPAIGN)
    run_id = campaign.parquet_files("runs")[0].stem
    text = README.read_text()
    for table in schema.SCHEMAS:
        written = campaign.table(table, run_id)
        assert written.is_file()
        assert str(written.relative_to(campaign.path)).replace(run_id, "RUN_ID") in text
        assert str(campaign.table(table, "merged").relative_to(campaign.path)) in text
    assert str(campaign.journal("RUN_ID").relative_to(campaign.path)) in text
