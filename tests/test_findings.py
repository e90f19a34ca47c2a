"""What the README says was found is what the shipped campaigns say."""

import re
from pathlib import Path

import pytest

from bench_lib import compare, sides
from bench_lib.model import Change

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RESULTS = ROOT / "results"
LADDER = "h200-cudart-ladder"
ROUNDS = "h200-cudart-rounds"
RUNTIMES = ["11.7", "12.1", "12.4", "12.6", "12.8", "12.9", "13.0", "13.5"]


def row_text(row) -> str:
    return f"{row.ratio:.3f} [{row.low:.3f}, {row.high:.3f}]"


@pytest.fixture(scope="module")
def ladder():
    return sides.whole_stack(None, LADDER, RESULTS)


def by_burst(ladder, runtime):
    return {row.params["burst"]: row for row in compare.contrast(ladder, "runtime", "11.8", runtime).cases}


@pytest.mark.parametrize(
    ("line", "runtime", "burst", "change"),
    [
        ("single launches", "12.4", 1, Change.SAME),
        ("bursts of 100", "12.4", 100, Change.SAME),
        ("the null: 11.8 against a second copy of itself, bursts of 100", "11.8#2", 100, Change.SAME),
        ("the control: no runtime at all, `cuLaunchKernel`, bursts of 100", "driver", 100, Change.FASTER),
    ],
)
def test_the_table_of_launches(ladder, line, runtime, burst, change):
    row = by_burst(ladder, runtime)[burst]
    assert row.change is change
    assert row.n >= 10
    assert f"| {line} | {row_text(row)} | {change}" in README


def test_all_runtimes_lie_within_one_percent(ladder):
    assert "within\n1 % of each other" in README
    ratios = [row.ratio for runtime in RUNTIMES for row in by_burst(ladder, runtime).values()]
    assert max(ratios) / min(ratios) < 1.02  # each within 1 % of the baseline
    assert all(abs(ratio - 1) < 0.01 for ratio in ratios)


def test_what_the_runtime_itself_costs(ladder):
    found = {round(100 * (1 - row.ratio)) for row in by_burst(ladder, "driver").values()}
    low, high = re.search(r"those (\d) to (\d) %", README).groups()
    assert found == {int(low), int(high)}


@pytest.mark.parametrize("candidate", ["cudart-11.8#2", *(f"cudart-{v}" for v in RUNTIMES)])
def test_no_runtime_comes_out_faster_or_slower_in_the_rounds(candidate):
    comparison = compare.compare(*sides.pair("cudart-11.8", candidate, ROUNDS, RESULTS))
    counts = comparison.counts()
    assert counts[Change.FASTER] == counts[Change.SLOWER] == 0
    assert comparison.interleaved
    assert not comparison.canaries_moved
    assert min(row.n for row in comparison.cases) >= 10
