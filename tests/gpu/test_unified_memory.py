"""unified_memory on a real GPU: prefetch against the pinned copy, the slope of a fault, a planted fault."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from plugin_runs import KEEPS_PAGES, rows, run_benchmarks

ROOT = Path(__file__).parents[2]
FILE = "benchmarks/bench_unified_memory.py"
LARGE = (256 << 20, 1 << 30)

pytestmark = pytest.mark.gpu


def measure(results: Path, *options: str, **variables: str) -> dict[str, dict]:
    """Cases of one run by id: the row, with its params, its facts and the median of its samples."""
    campaign = run_benchmarks(results, FILE, "--require-gpu", *options, **variables)
    cases, samples = rows(campaign, "cases"), pq.read_table(campaign / "samples").to_pandas()
    seconds = samples.groupby("case_id", observed=True)["seconds"].median()
    return {
        row["case_id"]: {**json.loads(row["params"]), **row, "seconds": seconds.get(row["case_id"])}
        for row in cases
    }


def moving(cases: dict[str, dict]) -> list[dict]:
    skipped = {row["reason"] for row in cases.values() if row["status"] == "skipped"}
    if skipped:
        pytest.skip("; ".join(skipped))
    assert {row["status"] for row in cases.values()} == {"ok"}, cases
    return list(cases.values())


def test_an_advice_that_is_taken_back_leaves_nothing_behind(tmp_path):
    """Reads come after SetAccessedBy, whose mapping would outlive it: then no page would move."""
    rows = moving(measure(tmp_path, "-k", "bench_migrate and 268435456 and (accessed_by or read)"))
    assert {row["advise"] for row in rows} == {"accessed_by", "none", "read_mostly"}


@pytest.mark.parametrize("direction", ["to_gpu", "to_cpu"])
def test_prefetch_reaches_the_pinned_copy(tmp_path, capsys, direction):
    asked = f"{direction} and (prefetch or pinned) and (268435456 or 1073741824)"
    rows = moving(measure(tmp_path, "-k", asked))
    seconds = {(row["way"], row["nbytes"]): row["seconds"] for row in rows}
    for nbytes in LARGE:
        share = seconds["pinned", nbytes] / seconds["prefetch", nbytes]
        with capsys.disabled():
            print(f"\n{direction} {nbytes >> 20} MiB: prefetch reaches {share:.1%} of the pinned copy")
        if direction == "to_gpu":
            assert 0.80 <= share <= 1.05
        else:
            assert 0 < share <= 1.05


def test_the_slope_of_a_fault_is_positive_and_repeats(tmp_path, capsys):
    first, second = (
        {row["order"]: row["seconds"] for row in moving(measure(tmp_path / run, "-k", "bench_fault"))}
        for run in ("first", "second")
    )
    for order in first:
        with capsys.disabled():
            print(f"\none fault, {order}: {first[order] * 1e6:.2f} and {second[order] * 1e6:.2f} us")
        assert min(first[order], second[order]) > 0
        assert abs(first[order] / second[order] - 1) < 0.20


def test_a_planted_skipped_homecoming_is_caught(tmp_path):
    (tmp_path / "plant.py").write_text(KEEPS_PAGES)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    options = ("-p", "plant", "-k", "to_gpu-faults-sequential-none-write-67108864")
    (row,) = measure(tmp_path / "results", *options, PYTHONPATH=path).values()
    if row["status"] == "skipped":
        pytest.skip(row["reason"])
    assert row["status"] == "wrong-result"
    assert "pages were not on the CPU" in row["reason"] or "times the usual" in row["reason"]


def test_cupys_allocator_gives_the_same_by_another_road(tmp_path, capsys):
    """Faults alike within 25 %; prefetch too, where CuPy still knows this runtime's prefetch."""
    pytest.importorskip("cupy")
    asked = "(to_gpu-faults-sequential-none-write or migrate_cupy) and 268435456"
    cases = measure(tmp_path, "-k", asked)
    ours = next(row for row in cases.values() if row["op"] == "migrate")
    theirs = next(row for row in cases.values() if row["op"] == "migrate_cupy" and row["way"] == "faults")
    if "skipped" in (ours["status"], theirs["status"]):
        pytest.skip(theirs["reason"] or ours["reason"])
    with capsys.disabled():
        print(f"\nfaults, 256 MiB: {ours['seconds']:.4f} s, through CuPy {theirs['seconds']:.4f} s")
    assert abs(theirs["seconds"] / ours["seconds"] - 1) < 0.25
