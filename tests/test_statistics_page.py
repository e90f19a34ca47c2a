"""The worked numbers of docs/statistics.md are what the shipped campaigns say."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from bench_lib.comparing import compare, sides, stats
from bench_lib.comparing.bridge import bridge
from bench_lib.comparing.calibrate import calibrate
from bench_lib.comparing.changes import Change

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results", " ".join((ROOT / "docs/statistics.md").read_text().split())
LADDER, ROUNDS = "h200-cudart-ladder", "h200-cudart-rounds"
SUBMIT = "launch/empty[api=cudart,metric=submit]"


def of_case(comparison, case_id):
    (row,) = [row for row in (*comparison.canaries, *comparison.cases) if row.case_id == case_id]
    return row


@pytest.fixture(scope="module")
def null():
    return sides.pair("cudart-11.8", "cudart-11.8#2", ROUNDS, RESULTS)


@pytest.fixture(scope="module")
def burst():
    comparison = compare.contrast(sides.whole_stack(None, LADDER, RESULTS), "runtime", "11.8", "12.4")
    return of_case(comparison, "ladder/launch[burst=100,metric=submit]")


@pytest.fixture(scope="module")
def upgrade():
    return compare.compare(*sides.pair("cudart-11.8", "cudart-12.4", ROUNDS, RESULTS))


def test_pooled_samples_call_a_file_different_from_itself(null):
    pooled = [side.data.samples.to_pandas().groupby("case_id", observed=True)["seconds"] for side in null]
    p = [scipy_stats.mannwhitneyu(of, pooled[1].get_group(case)).pvalue for case, of in pooled[0]]
    assert {len(of) for _, of in pooled[0]} == {150}
    assert f"(Mann-Whitney, 150 a side) calls {sum(one < 0.05 for one in p)} of {len(p)} cases" in PAGE
    assert f"one with p = {min(p):.0e}".replace("e-0", "e-") in PAGE
    assert calibrate(compare.compare(*null)).differing == 0
    assert f"On runs, none of the {len(p)} is" in PAGE


def test_ratio_and_interval(burst):
    percent = 100 * np.array(burst.log_ratios)
    mean, sd, half = percent.mean(), percent.std(ddof=1), 100 * math.log(burst.high / burst.low) / 2
    assert "`d = " + " ".join(f"{one:.2f}" for one in percent) + "`" in PAGE
    assert f"with mean {mean:.3f} and standard deviation s = {sd:.3f}" in PAGE
    assert f"exp({mean / 100:.5f}) = {burst.ratio:.4f}" in PAGE
    t = scipy_stats.t.ppf(0.975, burst.n - 1)
    assert f"{t:.3f} · {sd:.3f} / √10 = {half:.3f}, so [{burst.low:.4f}, {burst.high:.4f}]" in PAGE


def test_a_bootstrap_of_ten_runs_is_too_narrow():
    rng = np.random.default_rng(0)
    d = rng.standard_normal((2000, 10))
    drawn = rng.integers(0, 10, (10, 400))
    low, high = np.quantile(d[:, drawn].mean(axis=1), [0.025, 0.975], axis=1)
    percent = 100 * float(((low < 0) & (high > 0)).mean())
    assert f"a percentile bootstrap holds it in {percent:.0f} of 100 cases" in PAGE
    assert 100 * float((~stats.paired(d, np.zeros(2000)).differs()).mean()) == pytest.approx(95, abs=1.5)


def test_equivalence(burst):
    effects, margin = stats.paired(np.array([burst.log_ratios]), np.zeros(1)), np.array([burst.margin])
    delta, mean = 100 * math.log1p(burst.margin), 100 * effects.mean[0]
    inside = (delta - mean) / (100 * effects.se[0])
    assert f"δ = 1 % is Δ = {delta:.3f}. The {mean:.3f} above lies ({delta:.3f} - {mean:.3f})" in PAGE
    p = stats.p_same(effects, margin)[0]
    assert f"= {inside:.2f} standard errors inside, p = {p:.4f}: `same`" in PAGE
    assert burst.change is Change.SAME
    assert burst.low > 1


def test_the_floor_of_a_coarse_clock(upgrade):
    row = of_case(upgrade, "canary/device_copy")
    assert row.sd == row.floor
    assert f"{1e6 * row.baseline:.1f} µs by events of 0.5 µs, has a floor of {100 * row.floor:.2f} %" in PAGE


def test_intervals_that_exclude_one_are_no_changes(upgrade):
    excluded = [row for row in upgrade.cases if row.low > 1 or row.high < 1]
    assert f"{len(excluded)} of {len(upgrade.cases)} intervals exclude 1" in PAGE
    assert upgrade.counts()[Change.SLOWER] == upgrade.counts()[Change.FASTER] == 0


def test_canaries(upgrade):
    same = [row for row in upgrade.canaries if row.change is Change.SAME]
    (loop,) = [row for row in upgrade.canaries if row not in same]
    assert f"{len(same)} of {len(upgrade.canaries)} are `same`; `cpu_loop` is `unclear`" in PAGE
    assert (
        f"at {100 * (loop.ratio - 1):.1f} % more time and a spread of {100 * math.expm1(loop.sd):.1f} %"
        in PAGE
    )


def test_calibrate(null):
    found = calibrate(compare.compare(*null))
    told = f"{found.differing} of {len(found.cases)} differ; over all {found.swaps} swaps"
    assert f"{told} {100 * found.swapped_share:.1f} %" in PAGE
    of_one = stats.resolved(np.ones(1), np.array([10]))[0]
    assert f"which is {of_one:.2f} s at n = 10" in PAGE
    resolves = {case.case_id: f"{100 * case.resolves:.2g} %" for case in found.cases}
    graph = "launch/graph[api=cudart,metric={},nodes=100]"
    assert f"{resolves['canary/sm_spin']} for the SM clock" in PAGE
    assert f"{resolves[graph.format('total')]} for a graph of 100 nodes until its end" in PAGE
    assert f"{resolves[graph.format('submit')]} for submitting one" in PAGE


def test_the_bridge_multiplies(upgrade):
    versions = ["11.8", "12.4", "13.0", "13.5"]
    found = bridge(sides.several([f"cudart-{one}" for one in versions], ROUNDS, RESULTS))
    (line,) = [line for line in found.lines if line.name == SUBMIT]
    assert " · ".join(f"{step.ratio:.3f}" for step in line.steps) + f" = {line.whole.ratio:.3f}" in PAGE


def test_turns_resolve_more_than_processes(burst, upgrade):
    fine, coarse = (
        50 * math.log(row.high / row.low) for row in (burst, of_case(upgrade, SUBMIT))
    )  # half the width, in per cent
    assert f"±{fine:.1f} %, against ±{coarse:.0f} % process by process; both have ten pairs" in PAGE
    assert burst.n == of_case(upgrade, SUBMIT).n == 10


def test_the_verdict_is_that_of_the_readme():
    """tests/test_findings.py holds the README's table to what is judged."""
    (row,) = re.findall(
        r"^\| `launch-latency-small-kernels`.*$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    shown = re.search(r"\| refuted \| (time [^|]*?\]) to ", row)[1]
    assert f"is refuted by the ladder: {shown} in its best case" in PAGE
