"""Rows of a campaign's Parquet files, as far as they can be read: what one damaged file held is missing."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench_lib.journaling.journal_rows import Row

_DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)


def unreadable(files: Iterable[Path]) -> list[Path]:
    """The files that were cut off or are none of Parquet, by their ends: what one holds is not read."""
    return [file for file in files if not _has_footer(file)]


def _has_footer(file: Path) -> bool:
    with contextlib.suppress(*_DAMAGE):
        return bool(pq.read_metadata(file).num_columns)
    return False


def rows(files: Iterable[Path], names: Sequence[str]) -> Iterator[Row]:
    """Some columns of every file that can be read, and has them."""
    for file in files:
        # Not by read_table, which imports pandas: processes that measure ask this before they begin.
        with contextlib.suppress(*_DAMAGE), pq.ParquetFile(file) as opened:
            if {*names} <= {*opened.schema_arrow.names}:
                yield from opened.read(list(names)).to_pylist()
