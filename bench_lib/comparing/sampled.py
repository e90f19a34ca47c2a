"""Samples as a table in, what is known of each run and case out: sorted once, no query a question."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[Any]  # of whole numbers
Name = tuple[str, str]  # run and case

_TEXTS = ("run_id", "case_id", "flags")


@dataclass(frozen=True)
class Blocks:
    """Samples sorted by run and case, in the order they stand in within one: a block each."""

    names: tuple[Name, ...]
    starts: Ints  # of each block, and the end of the last one
    seconds: Floats
    sample: Ints  # the number of each sample in its run and case
    flag: Ints  # of each sample, a place in `flags`
    flags: tuple[str, ...]

    @cached_property
    def sizes(self) -> Ints:
        """How many samples each block has."""
        return np.diff(self.starts)

    @cached_property
    def places(self) -> dict[Name, int]:
        """Where each block stands among them."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def medians(self) -> Floats:
        """The median of each block."""
        return self._each(_middle)

    @cached_property
    def usable(self) -> Ints:
        """How many samples of each block are positive numbers."""
        good = np.isfinite(self.seconds) & (self.seconds > 0)
        if good.all():
            return self.sizes
        return np.diff(np.concatenate([[0], np.cumsum(good)])[self.starts])

    @cached_property
    def flagged(self) -> Ints:
        """How many samples of each block have a flag."""
        has = np.array([flag != "" for flag in self.flags], dtype=bool)[self.flag]
        return np.diff(np.concatenate([[0], np.cumsum(has)])[self.starts])

    @cached_property
    def commonest_flags(self) -> list[str | None]:
        """The flag that most samples of each block have, the first of several; None where none has one."""
        found: list[str | None] = [None] * len(self.names)
        flagged = np.flatnonzero(np.array([flag != "" for flag in self.flags], dtype=bool)[self.flag])
        held: dict[int, Counter[int]] = {}
        for block, flag in zip(self._block_of(flagged), self.flag[flagged].tolist(), strict=True):
            held.setdefault(block, Counter())[flag] += 1
        for block, counts in held.items():
            found[block] = self.flags[counts.most_common(1)[0][0]]
        return found

    def least_gaps(self, wanted: Collection[Name]) -> dict[Name, float]:
        """The least difference between two unequal samples of each wanted block; NaN where there is none."""
        return {name: _least_gap(self.seconds[part]) for name, part in self._parts() if name in wanted}

    def turn_ratios(self, pairs: Sequence[tuple[Name, Name]]) -> list[float]:
        """The median log ratio of each pair of blocks, second to first, over the turns both hold; or NaN."""
        parts = dict(self._parts())
        return [self._turn_ratio(parts.get(one), parts.get(other)) for one, other in pairs]

    def _turn_ratio(self, one: slice | None, other: slice | None) -> float:
        if one is None or other is None:
            return math.nan
        x, y = self.seconds[one], self.seconds[other]
        if not np.array_equal(self.sample[one], self.sample[other]):
            _, at, there = np.intersect1d(self.sample[one], self.sample[other], return_indices=True)
            x, y = x[at], y[there]
        if not len(x):
            return math.nan
        low, high = _middle_two(np.sort(y / x)[None, :])  # a logarithm rises: its median is at theirs
        return (math.log(low[0]) + math.log(high[0])) / 2

    def _parts(self) -> Iterator[tuple[Name, slice]]:
        starts = self.starts.tolist()
        return zip(self.names, map(slice, starts[:-1], starts[1:]), strict=True)

    def _block_of(self, rows: Ints) -> list[int]:
        found: list[int] = (np.searchsorted(self.starts, rows, side="right") - 1).tolist()
        return found

    def _each(self, of_rows: Callable[[Floats], Floats]) -> Floats:
        """A number of each block from its sorted samples; blocks of one size are one matrix."""
        found = np.full(len(self.names), np.nan)
        if len(self.names) and (self.sizes == self.sizes[0]).all():
            return of_rows(np.sort(self.seconds.reshape(-1, self.sizes[0]), axis=1))
        for size in np.unique(self.sizes):
            blocks = np.flatnonzero(self.sizes == size)
            rows = self.seconds[self.starts[blocks][:, None] + np.arange(size)]
            found[blocks] = of_rows(np.sort(rows, axis=1))
        return found


@dataclass(frozen=True)
class Samples:
    """A table with the columns of `store.SAMPLE_COLUMNS`, shared by all that look at a part of its runs."""

    table: pa.Table

    @cached_property
    def blocks(self) -> Blocks:
        """The samples by run and case, sorted once for all that asks for them."""
        return blocks(self.table)

    def of_runs(self, run_ids: Collection[str]) -> pa.Table:
        """The rows of some runs."""
        return holding(self.table, "run_id", run_ids)


def blocks(samples: pa.Table) -> Blocks:
    """The samples of a table with the columns of `store.SAMPLE_COLUMNS`, sorted into blocks."""
    (runs, run_ids), (cases, case_ids), (flag, flags) = (codes(samples[name]) for name in _TEXTS)
    seconds, sample = samples["seconds"].to_numpy(), samples["sample"].to_numpy()
    starts = _starts(runs, cases)
    if len({*zip(runs[starts[:-1]].tolist(), cases[starts[:-1]].tolist(), strict=True)}) < len(starts) - 1:
        order = np.lexsort((cases, runs))  # stable; else each block was written in one piece
        runs, cases, flag, seconds, sample = (of[order] for of in (runs, cases, flag, seconds, sample))
        starts = _starts(runs, cases)
    firsts = zip(runs[starts[:-1]].tolist(), cases[starts[:-1]].tolist(), strict=True)
    names = tuple((run_ids[run], case_ids[case]) for run, case in firsts)
    return Blocks(names, starts, seconds, sample, flag, tuple(flags))


def _starts(runs: Ints, cases: Ints) -> Ints:
    """Where another run or case begins, and the end."""
    if not len(runs):
        return np.zeros(1, np.int64)
    begins = np.flatnonzero((runs[1:] != runs[:-1]) | (cases[1:] != cases[:-1])) + 1
    return np.concatenate([[0], begins, [len(runs)]])


def codes(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """A text column as places in a list of its words; missing text is the word ""."""
    unified = column.dictionary_encode().unify_dictionaries()
    words = unified.chunk(0).dictionary.to_pylist() if unified.num_chunks else []
    parts = [chunk.indices.fill_null(len(words)).to_numpy() for chunk in unified.chunks]
    return np.concatenate([np.empty(0, np.int32), *parts]), [*words, ""]


def holding(samples: pa.Table, column: str, wanted: Collection[str]) -> pa.Table:
    """The rows whose text in `column` is among those wanted."""
    places, words = codes(samples[column])
    return samples.filter(pa.array(np.array([word in wanted for word in words], dtype=bool)[places]))


def _middle(rows: Floats) -> Floats:
    low, high = _middle_two(rows)
    with np.errstate(over="ignore"):  # what is too large for a float is no time either
        middle: Floats = (low + high) / 2
    return middle


def _middle_two(rows: Floats) -> tuple[Floats, Floats]:
    """The two values in the middle of sorted rows; the same one twice where their number is odd."""
    size = rows.shape[1]
    return rows[:, (size - 1) // 2], rows[:, size // 2]


def _least_gap(seconds: Floats) -> float:
    gaps = np.diff(np.sort(seconds))
    return float(gaps[gaps > 0].min(initial=np.inf)) if (gaps > 0).any() else math.nan
