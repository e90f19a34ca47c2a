"""A finished campaign as one Parquet file a table; journals that dead processes left, finished."""

import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench_lib import schema
from bench_lib.errors import DataError, Refused, UsageError
from bench_lib.journaling import journal
from bench_lib.layout import MERGED, TABLES, CampaignFolder
from bench_lib.places.address import Address
from bench_lib.places.mirror import Mirror
from bench_lib.places.place import Place
from bench_lib.places.writing import put


def _to_stderr(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


def merge(results: Path, campaign: str) -> list[Path]:
    """Merge a campaign's runs into `merged.parquet` of each table; the three paths.

    The files merged are removed once all three new ones are on disk, so it can be stopped anywhere
    and done again; later runs are merged into what is there. Raises Refused while a run is being
    measured, UsageError for an unknown campaign, DataError for a damaged file: nothing is removed.
    """
    folder = CampaignFolder(results, campaign)
    if not folder.exists():
        raise UsageError(f"there is no campaign {campaign!r} in {results}; measure one or name its --results")
    with folder.lock():
        return _merge(folder, MERGED)


def merge_elsewhere(address: Address, campaign: str) -> list[str]:
    """Merge a campaign that lies elsewhere; the new names of its three tables there.

    Each merge has names of its own and removes only what it holds, so that two at once lose nothing:
    a run that lies in two files counts once. Raises as `merge`, and Unreachable.
    """
    place = Place.open(address)
    mirror = Mirror(place, campaign)
    mirror.fetch()
    if not mirror.folder.exists():
        raise UsageError(f"there is no campaign {campaign!r} at {place}; measure one or name its --results")
    with mirror.folder.lock():
        before = mirror.names()
        paths = _merge(mirror.folder, f"{MERGED}-{uuid.uuid4().hex}")
        put(address, campaign)
        mirror.remove_elsewhere(before - mirror.names())
    return [f"{place}/{campaign}/{path.parent.name}/{path.name}" for path in paths]


def _merge(folder: CampaignFolder, name: str) -> list[Path]:
    if live := finish_dead(folder):
        raise Refused(
            f"run {live[0].stem} of campaign {folder.name!r} is being measured (its journal {live[0]} "
            "is locked); wait for its end"
        )
    sources = {table: _sources(folder, table) for table in TABLES}
    if missing := [table for table, files in sources.items() if not files]:
        raise DataError(
            f"campaign {folder.name!r} has no {missing[0]} that can be read; restore its files or "
            f"remove {folder.path}"
        )
    if len({tuple(file.name for file in files) for files in sources.values()}) == 1:
        (only, *more), *_ = sources.values()
        name = only.stem if not more and only.stem.startswith(MERGED) else name  # it is merged already
    for table, files in sources.items():
        if files != [folder.table(table, name)]:
            journal.write_table(folder.table(table, name), _joined(table, files))
    for table, files in sources.items():  # runs last: without a runs file, a run's others are not read
        for file in files:
            if file != folder.table(table, name):
                file.unlink()
    return [folder.table(table, name) for table in TABLES]


def _sources(folder: CampaignFolder, table: str) -> list[Path]:
    """The files of a table, those merged before first."""
    return sorted(folder.parquet_files(table), key=lambda path: not path.stem.startswith(MERGED))


def _joined(table: str, files: list[Path]) -> pa.Table:
    """The rows of all files. A run that two files hold (a merge was stopped) comes from the first."""
    seen: set[str] = set()
    parts = []
    for file in files:
        rows = _read(table, file)
        found = set(rows["run_id"].unique().to_pylist())
        if twice := found & seen:
            rows = schema.without_runs(rows, twice)
        parts.append(rows)
        seen |= found
    # In one piece: each piece would be written with all the words that any of them has.
    return pa.concat_tables(parts).combine_chunks()


def _read(table: str, file: Path) -> pa.Table:
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as stored:  # a flipped bit must not pass
            rows = stored.read()
            found = schema.conform(table, rows)
        found.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read ({error}); remove or restore it, then merge again") from None
    except DataError as error:
        raise DataError(f"{file} {error}") from None
    if unknown := [name for name in rows.column_names if name not in found.column_names]:
        # The file is removed after a merge: what no column takes would be gone.
        raise DataError(
            f"{file} has the column {unknown[0]!r}, which this suite does not know and a merge would lose; "
            "restore the file, or merge with the version of the suite that wrote it"
        )
    return found


def finish_dead(folder: CampaignFolder, say: Callable[[str], object] = _to_stderr) -> list[Path]:
    """Turn the journals of dead processes into Parquet; those still written are returned.

    A journal is dead when no process holds the lock on it. One that cannot be read stays and is named
    to `say`; no other file depends on it.
    """
    live = []
    for path in sorted((folder.path / "journal").glob("*.jsonl")):
        try:
            if journal.is_live(path):
                live.append(path)
            else:
                keep(path, folder)
        except (DataError, OSError) as error:
            say(f"left where it is: {error}")
    return live


def keep(path: Path, folder: CampaignFolder) -> None:
    """Turn the journal of a dead process into Parquet.

    One without a whole first line goes: its process died before it measured anything. So does one
    whose process died right after it wrote its last Parquet file. Raises DataError as journal.read.
    """
    if folder.table("runs", path.stem).exists() or b"\n" not in path.read_bytes():
        path.unlink()
    else:
        journal.finish(path, folder)
