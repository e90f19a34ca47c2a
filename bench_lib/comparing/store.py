"""Results on disk in, three tables out. Each file is opened once; a damaged one is skipped by name."""

import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench_lib import schema
from bench_lib.comparing.sampled import Samples, codes
from bench_lib.errors import DataError
from bench_lib.faults import seals
from bench_lib.journaling import journal, journal_rows
from bench_lib.layout import TABLES, CampaignFolder

SAMPLE_COLUMNS = ("run_id", "case_id", "sample", "seconds", "flags")  # what the readers need
Tables = dict[str, pa.Table]
_OURS = "name a file written by `pytest benchmarks --benchmark-json=FILE`"
_AT_ONCE = min(os.cpu_count() or 1, 4)  # files: while one waits for the disk or is unpacked, others are

# What pyarrow, the file system and a file of another shape can raise. Nothing else is caught.
_DAMAGE = (
    *(pa.ArrowException, OSError, DataError),
    *(KeyError, TypeError, ValueError, AttributeError, RecursionError),
)


@dataclass(frozen=True)
class Data:
    """What was measured, as read.

    `runs` and `cases` have a row a run and a row a run and case, with the columns of the schema;
    missing text is "", and maps are dicts. `measured` are their samples, and those of other runs where
    this is a part of what was read. `skipped` names what could not be read, and why.
    """

    runs: pd.DataFrame
    cases: pd.DataFrame
    measured: Samples
    skipped: tuple[tuple[str, str], ...] = ()

    @cached_property
    def samples(self) -> pa.Table:
        """The samples of these runs, a row each with `SAMPLE_COLUMNS`."""
        return self.measured.of_runs(set(self.runs["run_id"]))

    def of_runs(self, run_ids: Collection[str]) -> "Data":
        """The part that belongs to some runs; what was skipped stays named."""
        if set(self.runs["run_id"]) <= set(run_ids):
            return self
        return Data(
            self.runs[self.runs["run_id"].isin(run_ids)].reset_index(drop=True),
            self.cases[self.cases["run_id"].isin(run_ids)].reset_index(drop=True),
            self.measured,
            self.skipped,
        )


def load(results: Path, campaigns: Iterable[str]) -> Data:
    """Every run of some campaigns under `results`.

    Journals without Parquet files are runs that ended early (or still run) and are read as such. A
    run that lies in two files counts once. A campaign is what its folder is called now, whatever it was
    when it was measured. Raises UsageError for a name that cannot be a folder's.
    """
    gathered = _Gathered()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for name in campaigns:
            folder = CampaignFolder(results, name)
            # All are asked for before the first is waited for, so that no core is idle between tables.
            asked = [
                (paths, pool.map(partial(_read, partial(_parquet, table)), paths))
                for table in TABLES
                if (paths := folder.parquet_files(table))
            ]
            journals = folder.journals()
            for paths, found in (*asked, (journals, map(partial(_read, _journal), journals))):
                gathered.add(paths, found, name)
    return gathered.data()


class Results:
    """The campaigns of a folder, each read once, however many ask for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Data] = {}

    def campaign(self, name: str) -> Data:
        """Every run of a campaign; see `load`."""
        if name not in self._read:
            self._read[name] = load(self.folder, [name])
        return self._read[name]


def opened(results: Path | Results) -> Results:
    """The results of a folder; what is open already as it is."""
    return results if isinstance(results, Results) else Results(results)


def arms(results: Path, campaign: str) -> set[str]:
    """The arms of a campaign's finished runs, from the table of runs alone: many campaigns are asked soon."""
    files = CampaignFolder(results, campaign).parquet_files("runs")
    read = (_read(partial(_parquet, "runs"), path) for path in files)
    return {arm for found in read if not isinstance(found, str) for arm in found["runs"]["arm"].to_pylist()}


def params(results: Path, campaign: str) -> set[str]:
    """The parameters of the cases of a campaign's finished runs, each as its JSON."""
    files = CampaignFolder(results, campaign).parquet_files("cases")
    read = (_read(partial(_parquet, "cases"), path) for path in files)
    found = [tables["cases"]["params"].unique() for tables in read if not isinstance(tables, str)]
    return {text for texts in found for text in texts.to_pylist() if text}


def load_json(path: Path) -> Data:
    """The run in a `--benchmark-json` file of this suite.

    Raises DataError, naming the file, when it is not one or cannot be read.
    """
    try:
        tables = _json(path)
    except _DAMAGE as error:
        raise DataError(f"{path} {_why_not_ours(error)}") from None
    gathered = _Gathered()
    gathered.add([path], [tables])
    return gathered.data()


class _Gathered:
    """Tables read so far, the runs already seen in each, and what was skipped."""

    def __init__(self) -> None:
        self._parts: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        self._seen: dict[str, set[str]] = {name: set() for name in TABLES}
        self._skipped: list[tuple[str, str]] = []

    def add(self, paths: Sequence[Path], read: Iterable[Tables | str], campaign: str | None = None) -> None:
        """Add what was read of some files in this order: their tables, or the reason why not."""
        for path, tables in zip(paths, read, strict=True):
            if isinstance(tables, str):
                self._skipped.append((str(path), tables))
                continue
            for name, found in tables.items():
                self._add(name, found if campaign is None else _of_campaign(found, campaign))

    def _add(self, name: str, found: pa.Table) -> None:
        ids = set(found["run_id"].unique().to_pylist())
        if twice := ids & self._seen[name]:
            found = schema.without_runs(found, twice)
        self._seen[name] |= ids
        self._parts[name].append(found)

    def data(self) -> Data:
        """Everything that belongs to a run; cases and samples without one are named and left out."""
        runs = self._frame("runs")
        orphans = (self._seen["cases"] | self._seen["samples"]) - self._seen["runs"]
        why = "its cases or samples are there, its row in the runs table is not"
        skipped = [*self._skipped, *((f"run {run_id}", why) for run_id in sorted(orphans))]
        cases = self._frame("cases")
        if orphans:
            cases = cases[~cases["run_id"].isin(orphans)].reset_index(drop=True)
        return Data(runs, cases, Samples(self._table("samples")), tuple(skipped))

    def _table(self, name: str) -> pa.Table:
        wanted = SAMPLE_COLUMNS if name == "samples" else None
        empty = schema.conform(name, schema.table(name, []), wanted)
        return pa.concat_tables([empty, *self._parts[name]]).unify_dictionaries()

    def _frame(self, name: str) -> pd.DataFrame:
        # In one piece: ten thousand pieces, each with the words of all, take time as their square.
        table = self._table(name).combine_chunks()
        return pd.DataFrame({column: _series(table[column]) for column in table.column_names})


def _of_campaign(found: pa.Table, campaign: str) -> pa.Table:
    """The same rows, of a campaign of this name."""
    place = found.schema.get_field_index("campaign")
    if place < 0:
        return found
    field = found.schema.field(place)
    return found.set_column(
        place, field, pa.repeat(campaign, len(found)).dictionary_encode().cast(field.type)
    )


def _series(column: pa.ChunkedArray) -> Any:
    if pa.types.is_map(column.type):
        return [one for chunk in column.chunks for one in _dicts(chunk)]
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        # As objects, a block of all: pandas takes rows of its own strings column by column, and slowly.
        places, words = codes(column)
        return pd.Series(np.array(words, dtype=object)[places], dtype=object)
    if pa.types.is_boolean(column.type):
        return pc.fill_null(column, False).to_pandas()
    return column.to_pandas()


def _dicts(maps: pa.MapArray) -> list[dict[str, Any]]:
    """The maps of one chunk as dicts, a missing one as an empty one; far quicker than `to_pylist`."""
    if maps.null_count:
        return [dict(value or ()) for value in maps.to_pylist()]
    ends = maps.offsets.to_pylist()
    keys, items = (part.slice(ends[0], ends[-1] - ends[0]).to_pylist() for part in (maps.keys, maps.items))
    spans = itertools.pairwise(end - ends[0] for end in ends)
    return [
        dict(zip(keys[start:end], items[start:end], strict=True)) if end > start else {}
        for start, end in spans
    ]


def _read(reader: Callable[[Path], Tables], path: Path) -> Tables | str:
    """The tables of one file, or why it cannot be read."""
    try:
        return {name: _checked(found) for name, found in reader(path).items()}
    except _DAMAGE as error:
        return _why(error)


def _checked(found: pa.Table) -> pa.Table:
    found.validate(full=True)
    if found["run_id"].null_count:
        raise DataError("has rows without a run_id")
    return found


def _parquet(table: str, path: Path) -> Tables:
    wanted = SAMPLE_COLUMNS if table == "samples" else None
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        names = set(file.schema_arrow.names)
        columns = [name for name in wanted or schema.SCHEMAS[table].names if name in names]
        # No threads of its own: files are read side by side, and a small one's columns are not worth them.
        return {table: schema.conform(table, file.read(columns=columns, use_threads=False), wanted)}


def _journal(path: Path) -> Tables:
    return _tables(journal_rows.rows(journal.read(path)))


def _tables(rows: dict[str, list[journal_rows.Row]]) -> Tables:
    wanted = {"samples": SAMPLE_COLUMNS}
    return {
        name: schema.conform(name, schema.table(name, found), wanted.get(name))
        for name, found in rows.items()
    }


def _json(path: Path) -> Tables:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise DataError(f"is no JSON, or a damaged one; {_OURS}") from None
    ours = document.get("cuda_gains") if isinstance(document, dict) else None
    if not isinstance(ours, dict):
        raise DataError(f"is JSON, but not of this suite; {_OURS}")
    version = ours.get("schema_version")
    if not isinstance(version, int) or version > schema.SCHEMA_VERSION:
        raise DataError(
            f"has schema version {version}, this suite reads up to {schema.SCHEMA_VERSION}; upgrade the suite"
        )
    benchmarks = document.get("benchmarks", [])
    if "sha256" in ours and ours["sha256"] != seals.digest(ours["runs"], ours["cases"], benchmarks):
        raise DataError("was changed after it was written: its checksum does not hold; measure it again")
    shown = {one["fullname"]: one for one in benchmarks}
    samples = [
        {**case, "sample": i, "seconds": value, "flags": flags}
        for case in ours["cases"]
        if case["nodeid"] in shown
        for i, (value, flags) in enumerate(_flagged(shown[case["nodeid"]]))
    ]
    return _tables({"samples": samples, "cases": ours["cases"], "runs": ours["runs"]})


def _flagged(benchmark: dict[str, Any]) -> Iterable[tuple[float, str]]:
    """The samples of one row, each with its flags; a row without any was written without the list."""
    seconds = benchmark["stats"]["data"]
    flags = benchmark.get("extra_info", {}).get("flags") or [""] * len(seconds)
    return zip(seconds, flags, strict=True)


def _why_not_ours(error: Exception) -> str:
    """The same of a file that the user named: what was found, what was expected."""
    if isinstance(error, FileNotFoundError):
        return f"is not there; {_OURS}"
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror}); {_OURS}"
    return str(error) if isinstance(error, DataError) else f"{_why(error)}: it is damaged; {_OURS}"


def _why(error: Exception) -> str:
    """The reason in one line: what a damaged file makes a library say may be long."""
    if isinstance(error, DataError):
        return str(error)
    text = " ".join(str(error).split())
    return f"cannot be read ({type(error).__name__}: {text[:200]})"
