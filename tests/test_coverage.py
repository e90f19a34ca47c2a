"""The comparator proven honest in simulation: coverage, false alarms, power; and that other ways fail.

Every simulated run is a process of 100 samples. Seeds are fixed, so the outcome is the same each time;
4000 comparisons a cell put the standard error of a coverage of 0.95 at 0.0034.
"""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import signal
from scipy import stats as scipy_stats

from bench_lib.comparing import stats
from bench_lib.comparing.changes import Change

RUNS = 2000  # simulated comparisons at a time
BATCHES = 2  # of them in a cell of the coverage grid
SAMPLES = 100
SECONDS = 3e-6
PROCESS_SD = 0.004
SAMPLE_SD = 0.01
STEP = 32e-9

Array = stats.Floats
# A scenario gives the samples of both sides: comparisons x 2 sides x rounds x samples, no true effect.
Scenario = Callable[[np.random.Generator, int, int], Array]


def noise(rng: np.random.Generator, runs: int, n: int, process_sd: float = PROCESS_SD) -> Array:
    process = rng.normal(0, process_sd, (runs, 2, n, 1))
    return SECONDS * np.exp(process + rng.normal(0, SAMPLE_SD, (runs, 2, n, SAMPLES)))


def iid(rng, runs, n):
    return noise(rng, runs, n, process_sd=0.0)


def process_effect(rng, runs, n):
    return noise(rng, runs, n)


def ar1(phi: float) -> Scenario:
    def scenario(rng, runs, n):
        shocks = rng.normal(0, SAMPLE_SD * np.sqrt(1 - phi**2), (runs, 2, n, SAMPLES))
        shocks[..., 0] /= np.sqrt(1 - phi**2)  # begins in its stationary state
        return SECONDS * np.exp(signal.lfilter([1.0], [1.0, -phi], shocks, axis=-1))

    return scenario


def bimodal_processes(rng, runs, n):
    return noise(rng, runs, n) * np.where(rng.random((runs, 2, n, 1)) < 0.2, 1.04, 1.0)


def bimodal_samples(rng, runs, n):
    switches = rng.random((runs, 2, n, SAMPLES)) < 0.05
    switches[..., 0] = rng.random((runs, 2, n)) < 0.5
    return noise(rng, runs, n) * np.where(switches.cumsum(axis=-1) % 2, 1.04, 1.0)


def spikes(rng, runs, n):
    values = noise(rng, runs, n)
    values[rng.random(values.shape) < 0.02] *= 3
    return values


def quantised(rng, runs, n):
    return np.round(noise(rng, runs, n) / STEP) * STEP


def drifting(interleaved: bool) -> Scenario:
    """The machine gets 5 % slower from the first run to the last."""

    def scenario(rng, runs, n):
        if interleaved:  # the two runs of a round are neighbours, in random order
            first = rng.permuted(np.tile(np.arange(n) % 2, (runs, 1)), axis=1)
            place = 2 * np.arange(n) + np.stack([first, 1 - first], axis=1)
        else:  # A...A B...B
            place = np.broadcast_to(np.arange(2 * n).reshape(2, n), (runs, 2, n))
        return noise(rng, runs, n) * (1 + 0.05 * place / (2 * n - 1))[..., None]

    return scenario


SCENARIOS: dict[str, Scenario] = {
    "iid": iid,
    "process effect": process_effect,
    "AR(1) 0.5": ar1(0.5),
    "AR(1) 0.95": ar1(0.95),
    "bimodal processes": bimodal_processes,
    "bimodal samples": bimodal_samples,
    "spikes": spikes,
    "quantised": quantised,
    "drift, random pairs": drifting(interleaved=True),
}
EXACT = ("iid", "process effect", "AR(1) 0.5", "AR(1) 0.95")


def paired_effects(samples: Array) -> stats.Effects:
    """What the comparator does: the median a run, the log ratio a round."""
    medians = np.median(samples, axis=-1)
    log_ratios = np.log(medians[:, 1] / medians[:, 0])
    count = len(samples)
    step = np.full(count, STEP if len(np.unique(samples[0])) < SAMPLES else 1e-9)
    return stats.paired(log_ratios, stats.spread_floor(step, np.median(medians, axis=(1, 2))))


def covers(effects: stats.Effects) -> Array:
    low, high = effects.interval()
    return (low <= 1) & (high >= 1)


def ours(samples: Array) -> Array:
    return covers(paired_effects(samples))


def pooled_welch(samples: Array) -> Array:
    a, b = np.log(samples).reshape(len(samples), 2, -1).transpose(1, 0, 2)
    return scipy_stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue >= 0.05


def pooled_mann_whitney(samples: Array) -> Array:
    a, b = samples.reshape(len(samples), 2, -1).transpose(1, 0, 2)
    return scipy_stats.mannwhitneyu(a, b, axis=1, method="asymptotic").pvalue >= 0.05


def coverage(scenario: Scenario, n: int, method: Callable[[Array], Array] = ours, runs: int = RUNS) -> float:
    """The share of comparisons of equal sides whose 95 % interval holds 1 (or whose p is not under 5 %)."""
    rng = np.random.default_rng(20)
    return float(np.mean([method(scenario(rng, runs, n)).mean() for _ in range(BATCHES)]))


@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_interval_covers_the_truth(name, n):
    found = coverage(SCENARIOS[name], n)
    assert found >= 0.94
    if name in EXACT:
        assert found <= 0.965


@pytest.mark.parametrize("method", [pooled_welch, pooled_mann_whitney])
@pytest.mark.parametrize("name", ["process effect", "AR(1) 0.95", "bimodal processes"])
def test_pooled_samples_fail_in_the_same_harness(name, method):
    assert coverage(SCENARIOS[name], 10, method, runs=200) < 0.6


@pytest.mark.parametrize("n", [5, 10, 20])
def test_one_side_after_the_other_fails_in_the_same_harness(n):
    assert coverage(drifting(interleaved=False), n) < 0.6


def test_p_is_uniform_where_nothing_changed():
    effects = paired_effects(process_effect(np.random.default_rng(21), RUNS, 10))
    p = 2 * scipy_stats.t.sf(np.abs(effects.mean / effects.se), effects.df)
    assert scipy_stats.kstest(p, "uniform").pvalue > 0.05
    assert abs((p < 0.05).mean() - 0.05) <= 0.01


@pytest.mark.parametrize("name", SCENARIOS)
def test_false_alarms_beyond_the_margin_are_under_one_percent(name):
    effects = paired_effects(SCENARIOS[name](np.random.default_rng(22), RUNS, 10))
    p = stats.p_change(effects, np.full(RUNS, 0.02))
    assert (p < 0.05).mean() < 0.01


def judged(factor: float, margin: float = 0.02, comparisons: int = 10, cases: int = 200) -> list[Change]:
    """The changes of whole comparisons of 200 cases, in all of which the candidate has this factor."""
    found: list[Change] = []
    rng = np.random.default_rng(23)
    for _ in range(comparisons):
        samples = process_effect(rng, cases, 10)
        samples[:, 1] *= factor
        found += stats.decide(paired_effects(samples), np.full(cases, margin)).change
    return found


@pytest.mark.parametrize(
    ("factor", "change"),
    [
        (0.94, Change.FASTER),
        (0.96, Change.FASTER),
        (1.0, Change.SAME),
        (1.04, Change.SLOWER),
        (1.06, Change.SLOWER),
    ],
)
def test_power_at_twice_the_margin_and_at_none(factor, change):
    found = judged(factor)
    assert found.count(change) / len(found) >= 0.8


@pytest.mark.parametrize(("factor", "change"), [(1 / 1.02, Change.FASTER), (1.02, Change.SLOWER)])
def test_at_the_margin_itself_a_change_is_rare(factor, change):
    found = judged(factor)
    assert found.count(change) / len(found) <= 0.035


def test_at_the_margin_each_single_test_keeps_its_level():
    samples = process_effect(np.random.default_rng(24), RUNS, 10)
    samples[:, 1] /= 1.02
    p = stats.p_change(paired_effects(samples), np.full(RUNS, 0.02))
    assert (p < 0.05).mean() <= 0.035


def test_thirty_of_two_hundred():
    samples = process_effect(np.random.default_rng(25), 200, 10)
    samples[:30, 1] *= 0.96
    change = stats.decide(paired_effects(samples), np.full(200, 0.02)).change
    assert change == (*[Change.FASTER] * 30, *[Change.SAME] * 170)


def test_nothing_among_two_hundred():
    samples = process_effect(np.random.default_rng(26), 200, 10)
    effects = paired_effects(samples)
    change = stats.decide(effects, np.full(200, 0.02)).change
    assert not {Change.FASTER, Change.SLOWER} & set(change)
    assert (~covers(effects)).sum() <= 17  # the 97.5 % bound of 200 independent cases at 5 %


def test_relabelling_real_rounds_keeps_the_level():
    """All swaps of baseline and repeat within 10 rounds of one campaign: the interval excludes 1 in 5 %."""
    rng = np.random.default_rng(27)
    medians = np.median(bimodal_processes(rng, 12, 10), axis=-1)
    d = np.log(medians[:, 1] / medians[:, 0])
    signs = 1 - 2 * ((np.arange(512)[:, None] >> np.arange(10)) & 1)
    relabelled = (signs[:, None, :] * d[None, :, :]).reshape(-1, 10)
    excluded = ~covers(stats.paired(relabelled, np.full(len(relabelled), 1e-9)))
    assert abs(excluded.mean() - 0.05) <= 0.015
