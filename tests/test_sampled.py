"""What is known of samples: the same numbers, bit for bit, as DuckDB's own queries give."""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import synthetic

from bench_lib import schema
from bench_lib.comparing import sampled, store

COLUMNS = ("run_id", "case_id", "sample", "seconds", "flags")


def table(rows: list[tuple[str, str, int, float, str]]) -> pa.Table:
    named = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return schema.table("samples", named).select(COLUMNS)


def made(seed: int, in_order: bool) -> pa.Table:
    """Blocks of one to sixty samples, over several chunks with dictionaries of their own."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"r{run}", f"c{case}", sample, float(rng.lognormal(-10, 0.1 + case)), "")
        for run in range(6)
        for case in range(5)
        for sample in range(int(rng.integers(1, 60)))
    ]
    if not in_order:
        rows = [rows[i] for i in rng.permutation(len(rows))]
    return pa.concat_tables([table(rows[i : i + 300]) for i in range(0, len(rows), 300)])


@pytest.mark.parametrize("in_order", [True, False])
def test_medians_and_gaps_are_those_of_duckdb(in_order: bool) -> None:
    samples = made(1, in_order)
    blocks = sampled.blocks(samples)
    found = duckdb.sql(
        """SELECT run_id, case_id, median(seconds), count(*), min(gap) FILTER (gap > 0) FROM (
               SELECT *, seconds - lag(seconds) OVER (PARTITION BY run_id, case_id ORDER BY seconds) AS gap
               FROM samples) GROUP BY ALL"""
    ).fetchall()
    gaps = blocks.least_gaps(set(blocks.names))
    assert len(found) == len(blocks.names) == 30
    of_block = {name: (float(blocks.medians[i]), int(blocks.sizes[i])) for i, name in enumerate(blocks.names)}
    assert of_block == {(run, case): (median, n) for run, case, median, n, _ in found}
    known = {(run, case): gap for run, case, _, _, gap in found if gap is not None}
    assert known == {name: gap for name, gap in gaps.items() if not np.isnan(gap)}


def test_ratios_of_turns_are_those_of_duckdb() -> None:
    samples = made(2, in_order=False)
    cases = [(f"c{a}", f"c{b}") for a in range(5) for b in range(5)]
    pairs = [((f"r{run}", one), (f"r{run}", other)) for run in range(6) for one, other in cases]
    named = pa.table({"n": range(len(pairs))} | {key: [p[i][j] for p in pairs] for key, i, j in _PLACES})
    found = duckdb.sql(
        """SELECT n, median(ln(y.seconds / x.seconds)) FROM named
           JOIN samples x ON x.run_id = run AND x.case_id = one
           JOIN samples y ON y.run_id = run AND y.case_id = other AND y.sample = x.sample GROUP BY n"""
    ).fetchall()
    assert len(named) == len(found)
    assert sampled.blocks(samples).turn_ratios(pairs) == [ratio for _, ratio in sorted(found)]


_PLACES = (("run", 0, 0), ("one", 0, 1), ("other", 1, 1))


def test_turns_that_only_one_side_holds_do_not_count() -> None:
    rows = [("r", "a", turn, 1.0, "") for turn in range(4)]
    rows += [("r", "b", turn, 2.0 if turn % 2 else 9.0, "") for turn in (1, 3, 5)]
    ratios = sampled.blocks(table(rows)).turn_ratios(
        [(("r", "a"), ("r", "b")), (("r", "a"), ("r", "c")), (("q", "a"), ("q", "b"))]
    )
    assert ratios[0] == np.log(2.0)
    assert np.isnan(ratios[1:]).all()


def test_doubtful_and_unusable_samples_are_counted() -> None:
    seconds = [1.0, 0.0, float("nan"), -1.0, 2.0]
    flags = ["", "throttled", "preempted", "throttled", ""]
    rows = [("r", "a", i, of, flag) for i, (of, flag) in enumerate(zip(seconds, flags, strict=True))]
    blocks = sampled.blocks(table([*rows, ("r", "b", 0, 1.0, "")]))
    assert blocks.usable.tolist() == [2, 1]
    assert blocks.sizes.tolist() == [5, 1]
    assert blocks.commonest_flags == ["throttled", None]


def test_nothing_gives_nothing() -> None:
    blocks = sampled.blocks(table([]))
    assert (blocks.names, blocks.medians.tolist(), blocks.usable.tolist()) == ((), [], [])
    assert sampled.holding(table([]), "run_id", {"r"}).num_rows == 0


def test_rows_are_chosen_by_their_words() -> None:
    samples = pa.concat_tables([table([(run, "a", 0, 1.0, "")]) for run in ("r", "q", "r", "p")])
    assert sampled.holding(samples, "run_id", {"r", "p"})["run_id"].to_pylist() == ["r", "r", "p"]


def test_samples_are_sorted_once_for_all_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic.write_campaign(tmp_path, "c", {"a": 1.0}, rounds=2, null=False)
    data, sorts = store.load(tmp_path, ["c"]), []
    sort = sampled.blocks
    monkeypatch.setattr(sampled, "blocks", lambda samples: sorts.append(1) or sort(samples))
    parts = [data.of_runs({run}) for run in data.runs["run_id"]]
    assert len(parts) == 2
    assert all(part.measured.blocks is data.measured.blocks for part in parts)
    assert sorts == [1]
    assert sum(part.samples.num_rows for part in parts) == data.samples.num_rows
