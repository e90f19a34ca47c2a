"""Rows of a campaign's Parquet files, as far as they can be read: what one damaged file held is missing."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench_lib.journaling.journal_rows import Row


def rows(files: Iterable[Path], names: Sequence[str]) -> Iterator[Row]:
    """Some columns of every file that can be read."""
    for file in files:
        with contextlib.suppress(pa.ArrowException, OSError, UnicodeDecodeError):
            yield from pq.read_table(file, columns=list(names), partitioning=None).to_pylist()
