import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW, ttost_paired

from bench_lib.comparing import stats
from bench_lib.comparing.changes import Change

NAN = math.nan
TINY = np.array([1e-9])


def effects_of(*log_ratios):
    longest = max(map(len, log_ratios))
    rows = [[*row, *[NAN] * (longest - len(row))] for row in log_ratios]
    return stats.paired(np.array(rows, float), np.full(len(rows), 1e-9))


def test_the_paired_interval_is_scipys():
    d = np.random.default_rng(1).normal(-0.03, 0.01, 9)
    effects = stats.paired(d[None, :], TINY)
    expected = scipy_stats.ttest_1samp(d, 0).confidence_interval(0.95)
    low, high = effects.interval()
    assert math.log(low[0]) == pytest.approx(expected.low, abs=1e-15)
    assert math.log(high[0]) == pytest.approx(expected.high, abs=1e-15)
    assert (effects.n[0], effects.df[0]) == (9, 8)


def test_the_unpaired_interval_is_welchs():
    rng = np.random.default_rng(2)
    a, b = rng.normal(0, 0.01, 6), rng.normal(0.02, 0.03, 9)
    padded = np.array([[*a, *[NAN] * 3]])
    effects = stats.unpaired(padded, b[None, :], TINY)
    means = CompareMeans(DescrStatsW(b), DescrStatsW(a))
    expected = means.tconfint_diff(alpha=0.05, usevar="unequal")
    assert np.log(effects.interval()).ravel() == pytest.approx(expected, abs=1e-15)
    assert effects.n[0] == 6


def test_the_equivalence_p_is_statsmodels():
    rng = np.random.default_rng(3)
    x, y = np.exp(rng.normal(0, 0.01, (2, 12)))
    effects = stats.paired(np.log(y / x)[None, :], TINY)
    p, _, _ = ttost_paired(y, x, 1 / 1.02, 1.02, transform=np.log)
    assert stats.p_same(effects, np.array([0.02]))[0] == pytest.approx(p)


@pytest.mark.parametrize("center", [-0.05, 0.05, 0.0])
def test_the_minimum_effect_p_is_two_one_sided_tests(center):
    d = np.random.default_rng(4).normal(center, 0.02, 10)
    effects = stats.paired(d[None, :], TINY)
    delta = math.log1p(0.02)
    below = scipy_stats.ttest_1samp(d, -delta, alternative="less").pvalue
    above = scipy_stats.ttest_1samp(d, delta, alternative="greater").pvalue
    expected = min(1, 2 * min(below, above))
    assert stats.p_change(effects, np.array([0.02]))[0] == pytest.approx(expected)


def test_missing_pairs_are_left_out():
    d = np.random.default_rng(5).normal(0, 0.01, 8)
    gaps = np.array([[d[0], NAN, *d[1:5], NAN, *d[5:]]])
    with_gaps, without = stats.paired(gaps, TINY), stats.paired(d[None, :], TINY)
    assert with_gaps.n[0] == 8
    for name in ("mean", "sd", "se", "df"):
        assert getattr(with_gaps, name) == pytest.approx(getattr(without, name))


def test_changes_at_the_margin_of_each_case():
    rng = np.random.default_rng(6)
    d = rng.normal(0, 0.002, (4, 10)) + np.array([[-0.05], [0.05], [0.0], [-0.05]])
    decisions = stats.decide(stats.paired(d, np.full(4, 1e-9)), np.array([0.02, 0.02, 0.02, 0.2]))
    assert decisions.change == (Change.FASTER, Change.SLOWER, Change.SAME, Change.SAME)


def test_fewer_than_three_pairs_are_unclear_and_take_no_part():
    clear = [-0.05, -0.0501, -0.0499, -0.05]
    alone = stats.decide(effects_of(clear), np.array([0.02]))
    beside = stats.decide(effects_of(clear, [-0.05, -0.05], [-0.05], []), np.full(4, 0.02))
    assert beside.change == (Change.FASTER, *[Change.UNCLEAR] * 3)
    assert beside.q_change[0] == alone.q_change[0]
    assert np.isnan(beside.q_change[1:]).all()


def test_the_adjusted_p_are_scipys():
    """Benjamini and Hochberg's, ties and rows without enough pairs among them."""
    rng = np.random.default_rng(5)
    drawn = rng.normal(rng.normal(0, 0.03, (40, 1)), 0.02, (40, 6))
    drawn[7] = drawn[8]
    drawn[11, 2:] = NAN
    effects = stats.paired(drawn, np.full(40, 1e-9))
    margin = np.full(40, 0.02)
    decided = stats.decide(effects, margin)
    counts = np.arange(40) != 11
    for p, q in (
        (stats.p_change(effects, margin), decided.q_change),
        (stats.p_same(effects, margin), decided.q_same),
    ):
        assert q[counts] == pytest.approx(scipy_stats.false_discovery_control(p[counts]), rel=1e-12)
        assert math.isnan(q[11])


def test_no_case_at_all_is_no_error():
    decisions = stats.decide(stats.paired(np.empty((0, 0)), np.empty(0)), np.empty(0))
    assert decisions.change == ()


def test_equal_medians_on_a_coarse_clock_still_decide():
    floor = stats.spread_floor(np.array([32e-9]), np.array([3e-6]))
    effects = stats.paired(np.zeros((1, 10)), floor)
    assert effects.sd[0] == pytest.approx(32e-9 / 3e-6 / math.sqrt(6))
    assert stats.decide(effects, np.array([0.02])).change == (Change.SAME,)
    coarse = stats.paired(np.zeros((1, 3)), stats.spread_floor(np.array([3e-7]), np.array([3e-6])))
    assert stats.decide(coarse, np.array([0.02])).change == (Change.UNCLEAR,)


def test_without_a_known_step_equal_values_are_the_same():
    effects = stats.paired(np.zeros((1, 3)), stats.spread_floor(np.zeros(1), np.ones(1)))
    assert stats.decide(effects, np.array([0.02])).change == (Change.SAME,)


def test_each_side_of_unpaired_data_has_its_share_of_the_floor():
    effects = stats.unpaired(np.zeros((1, 5)), np.zeros((1, 5)), np.array([0.01]))
    assert effects.sd[0] == pytest.approx(0.01)
    assert effects.se[0] == pytest.approx(0.01 / math.sqrt(5))


@pytest.mark.parametrize(("effect", "sd"), [(-0.04, 0.015), (0.05, 0.03), (-0.06, 0.01), (0.3, 0.1)])
def test_the_rounds_that_settle_a_change_are_those_of_statsmodels(effect, sd):
    d = np.array([effect - sd, effect, effect + sd])  # of this mean and spread exactly
    rounds = stats.decide(stats.paired(d[None, :], TINY), np.array([0.02])).rounds[0]
    gap = abs(effect) - math.log1p(0.02)
    needed = TTestPower().solve_power(gap / sd, alpha=0.025, power=0.8, alternative="larger")
    assert abs(rounds - math.ceil(needed)) <= 1


def test_the_rounds_that_settle_sameness_reach_the_power():
    rng = np.random.default_rng(7)
    sd = 0.03
    d = np.array([-sd, 0.0, sd])
    rounds = stats.decide(stats.paired(d[None, :], TINY), np.array([0.02])).rounds[0]
    trials = rng.normal(0, sd, (4000, rounds))
    p = stats.p_same(stats.paired(trials, np.full(4000, 1e-9)), np.full(4000, 0.02))
    assert 0.78 <= (p < 0.05).mean() <= 0.88


def test_more_cases_ask_for_more_rounds():
    d = np.array([-0.06, -0.04, -0.02])
    one = stats.decide(stats.paired(d[None, :], TINY), np.array([0.02])).rounds[0]
    among = np.vstack([d, np.random.default_rng(8).normal(0, 0.02, (99, 3))])
    many = stats.decide(stats.paired(among, np.full(100, 1e-9)), np.full(100, 0.02)).rounds[0]
    assert many > one


def test_an_effect_at_the_margin_is_settled_by_no_number_of_rounds():
    edge = math.log1p(0.02)
    decisions = stats.decide(effects_of([edge - 0.03, edge, edge + 0.03]), np.array([0.02]))
    assert decisions.rounds[0] > stats.MOST_ROUNDS


samples = st.lists(st.floats(-0.2, 0.2), min_size=3, max_size=12)


@settings(deadline=None)  # a busy machine is no failure
@given(samples, st.floats(0.005, 0.2))
def test_swapping_the_sides_inverts_the_ratio_and_the_change(d, margin):
    there = stats.paired(np.array([d]), np.array([1e-4]))
    back = stats.paired(-np.array([d]), np.array([1e-4]))
    assert np.exp(there.mean[0]) == pytest.approx(1 / np.exp(back.mean[0]))
    low, high = there.interval()
    low_back, high_back = back.interval()
    assert (low[0], high[0]) == pytest.approx((1 / high_back[0], 1 / low_back[0]))
    inverse = {Change.FASTER: Change.SLOWER, Change.SLOWER: Change.FASTER}
    one, other = (stats.decide(e, np.array([margin])).change[0] for e in (there, back))
    assert other is inverse.get(one, one)


@settings(deadline=None)  # a busy machine is no failure
@given(samples, st.randoms())
def test_the_order_of_the_rounds_does_not_matter(d, random):
    shuffled = list(d)
    random.shuffle(shuffled)
    one, other = (stats.paired(np.array([x]), np.array([1e-4])) for x in (d, shuffled))
    assert one.mean == pytest.approx(other.mean, abs=1e-12)
    assert one.sd == pytest.approx(other.sd)


def test_numbers_at_the_ends_of_floats_are_no_warning():
    """Damaged files hold them; the suite's tests count a warning as an error."""
    assert stats.spread_floor(np.array([1e-9]), np.array([1e-320]))[0] == np.inf
    assert stats.spread_floor(np.array([1e-9]), np.array([1e308]))[0] == 1e-12
