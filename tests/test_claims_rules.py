"""The rules of claims on made-up values: each verdict, at its boundary too, and how often they err."""

import math

import numpy as np
import pytest

from bench_lib.claims.judging import counted, judge
from bench_lib.claims.values import CaseValues
from bench_lib.claims.words import Claim, Effect, Kind, Scope, Verdict
from bench_lib.comparing.changes import Change

PAIRS = 10
SD = 0.01  # of a pair's log ratio
RUNS = 300  # simulated findings a cell: the standard error of 5 % is 1.3 points
SUPPORTED, REFUTED, INCONCLUSIVE = Verdict.SUPPORTED, Verdict.REFUTED, Verdict.INCONCLUSIVE


def claim(kind, low=None, high=None, tolerance=0.02, effect=Effect.LESS, **more):
    return Claim("c", "text", "source", "", kind, effect, low, high, tolerance, cases=(Scope("f"),), **more)


def up_to(value, **more):
    return claim(Kind.UP_TO, None, value, **more)


def about(value, **more):
    return claim(Kind.ABOUT, value, value, **more)


def at_least(value, **more):
    return claim(Kind.AT_LEAST, value, None, **more)


def between(low, high, **more):
    return claim(Kind.RANGE, low, high, **more)


def log_ratio(effect, share):
    return {
        Effect.LESS: lambda: math.log(1 - share),
        Effect.SPEED: lambda: -math.log(1 + share),
        Effect.MORE: lambda: math.log(1 + share),
        Effect.VALUE: lambda: math.log(share),
    }[effect]()


def cases(shares, effect=Effect.LESS, rng=None, pairs=PAIRS, sd=SD, shared_sd=0.0, change=Change.UNCLEAR):
    """A case a share, each with that true effect; `shared_sd` moves all cases of a pair together."""
    rng = rng or np.random.default_rng(5)
    names = tuple(f"round-{i}" for i in range(pairs))
    together = rng.normal(0, shared_sd, pairs)
    return [
        CaseValues(
            f"case-{i}",
            tuple(log_ratio(effect, share) + together + rng.normal(0, sd, pairs)),
            names,
            margin=0.02,
            change=change,
        )
        for i, share in enumerate(shares)
    ]


def rates(asked, shares, **noise):
    """How often each verdict comes out of simulated findings of one truth; supported: just as claimed."""
    rng = np.random.default_rng(8)
    found = [judge(asked, cases(shares, rng=rng, **noise)) for _ in range(RUNS)]
    names = ["more" if one.and_more else str(one.verdict) for one in found]
    return {name: names.count(name) / RUNS for name in (*map(str, Verdict), "more")}


def within(found, expected):
    return all(least <= found[name] <= most for name, (least, most) in expected.items())


@pytest.mark.parametrize(
    ("asked", "shares", "effect", "verdict", "more"),
    [
        (up_to(0.30), [0.05, 0.10, 0.31], Effect.LESS, SUPPORTED, False),
        (up_to(0.30), [0.05, 0.10, 0.40], Effect.LESS, SUPPORTED, True),
        (up_to(0.30), [0.05, 0.10, 0.20], Effect.LESS, REFUTED, False),
        (up_to(0.30), [0.05, 0.10, 0.275], Effect.LESS, INCONCLUSIVE, False),
        (up_to(1.0, tolerance=0.05, effect=Effect.SPEED), [0.3, 1.0], Effect.SPEED, SUPPORTED, False),
        (up_to(1.0, tolerance=0.05, effect=Effect.SPEED), [0.3, 0.6], Effect.SPEED, REFUTED, False),
        (about(0.15), [0.14, 0.16, 0.15], Effect.LESS, SUPPORTED, False),
        (about(0.15), [0.24, 0.26, 0.25], Effect.LESS, SUPPORTED, True),
        (about(0.15), [0.01, 0.00, 0.02], Effect.LESS, REFUTED, False),
        (about(0.15), [0.13], Effect.LESS, INCONCLUSIVE, False),
        (between(0.08, 0.12), [0.09, 0.11, 0.10], Effect.LESS, SUPPORTED, False),
        (between(0.08, 0.12), [0.20, 0.19, 0.21], Effect.LESS, SUPPORTED, True),
        (between(0.08, 0.12), [0.01, 0.02, 0.00], Effect.LESS, REFUTED, False),
        (between(0.08, 0.12), [0.07], Effect.LESS, INCONCLUSIVE, False),
        (at_least(1.0, effect=Effect.SPEED), [1.5, 2.0], Effect.SPEED, SUPPORTED, False),
        (at_least(1.0, effect=Effect.SPEED), [0.1, 0.2], Effect.SPEED, REFUTED, False),
        (at_least(0.98, effect=Effect.SPEED, tolerance=0.0), [0.98], Effect.SPEED, INCONCLUSIVE, False),
        (at_least(0.0, effect=Effect.MORE), [0.001], Effect.MORE, SUPPORTED, False),
        (at_least(0.0, effect=Effect.MORE), [-0.2], Effect.MORE, REFUTED, False),
        (about(2.0, effect=Effect.VALUE, tolerance=0.2), [2.05], Effect.VALUE, SUPPORTED, False),
        (between(1.0, 3.0, effect=Effect.VALUE), [2.0], Effect.VALUE, SUPPORTED, False),
        (between(1.0, 3.0, effect=Effect.VALUE), [40.0], Effect.VALUE, SUPPORTED, True),
        (between(1.0, 3.0, effect=Effect.VALUE), [0.2], Effect.VALUE, REFUTED, False),
    ],
)
def test_each_kind_gives_each_verdict(asked, shares, effect, verdict, more):
    found = judge(asked, cases(shares, effect))
    assert (found.verdict, found.and_more) == (verdict, more)
    assert found.reason
    assert found.low < found.value < found.high
    assert found.n == PAIRS
    assert found.n_cases == len(shares)
    assert bool(found.next_step) == (verdict is INCONCLUSIVE)


@pytest.mark.parametrize(
    ("seconds", "verdict", "more"),
    [(2.0, SUPPORTED, False), (40.0, REFUTED, False), (0.2, SUPPORTED, True)],
)
def test_more_of_a_cost_is_worse_and_less_is_better(seconds, verdict, more):
    asked = between(1.0, 3.0, effect=Effect.VALUE, cost=True, tolerance=0.1)
    found = judge(asked, cases([seconds], Effect.VALUE))
    assert (found.verdict, found.and_more) == (verdict, more)
    assert found.value == pytest.approx(seconds, rel=0.02)
    assert found.low < found.value < found.high


@pytest.mark.parametrize(("seconds", "verdict"), [([2.0, 4.0], SUPPORTED), ([2.0, 400.0], REFUTED)])
def test_a_cost_of_up_to_so_much_is_about_all_cases(seconds, verdict):
    asked = up_to(10.0, effect=Effect.VALUE, cost=True)
    assert judge(asked, cases(seconds, Effect.VALUE)).verdict is verdict


@pytest.mark.parametrize(
    ("effect", "shares", "change", "verdict"),
    [
        (Effect.LESS, [0.001, 0.10], Change.UNCLEAR, SUPPORTED),
        (Effect.LESS, [0.001, 0.002], Change.SAME, REFUTED),
        (Effect.LESS, [-0.10, -0.20], Change.SLOWER, REFUTED),
        (Effect.LESS, [0.02], Change.UNCLEAR, INCONCLUSIVE),
        (Effect.SPEED, [0.30], Change.FASTER, SUPPORTED),
        (Effect.MORE, [0.30], Change.SLOWER, SUPPORTED),
        (Effect.MORE, [-0.30], Change.FASTER, REFUTED),
    ],
)
def test_an_effect_exists_beyond_the_margin_in_the_claimed_direction(effect, shares, change, verdict):
    found = judge(claim(Kind.EXISTS, effect=effect), cases(shares, effect, change=change))
    assert found.verdict is verdict


ALWAYS, FIVE_PERCENT, RARELY = (0.99, 1.0), (0.0, 0.08), (0.0, 0.05)


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        # The boundary: refuting takes one bound of 5 %, supporting one that is adjusted for five cases.
        (0.28, {"refuted": FIVE_PERCENT, "supported": RARELY, "more": (0.0, 0.0)}),
        (0.25, {"refuted": ALWAYS}),
        (0.30, {"supported": ALWAYS}),
        (0.32, {"supported": (0.95, 1.0), "more": RARELY}),
        (0.36, {"more": ALWAYS}),
    ],
)
def test_error_rates_of_up_to(largest, expected):
    assert within(rates(up_to(0.30), [0.02, 0.05, 0.10, 0.15, largest], sd=0.012), expected)


@pytest.mark.parametrize(
    ("asked", "truth", "expected"),
    [
        (about(0.15), 0.13, {"supported": FIVE_PERCENT, "refuted": RARELY, "more": (0.0, 0.0)}),
        (about(0.15), 0.17, {"supported": FIVE_PERCENT, "more": RARELY, "refuted": (0.0, 0.0)}),
        (about(0.15), 0.15, {"supported": ALWAYS}),
        (about(0.15), 0.10, {"refuted": ALWAYS}),
        (about(0.15), 0.20, {"more": ALWAYS}),
        (between(0.08, 0.12), 0.08, {"supported": FIVE_PERCENT, "refuted": (0.0, 0.0)}),
        (between(0.08, 0.12), 0.06, {"refuted": RARELY, "supported": (0.0, 0.0)}),
        (between(0.08, 0.12), 0.10, {"supported": ALWAYS}),
        (at_least(0.10), 0.08, {"supported": FIVE_PERCENT, "refuted": RARELY}),
        (at_least(0.10), 0.04, {"refuted": ALWAYS}),
    ],
)
def test_error_rates_of_means_over_cases_that_move_together(asked, truth, expected):
    """Twelve cases that share what their runs share: as independent cases they would err far more often."""
    assert within(rates(asked, [truth] * 12, sd=0.01, shared_sd=0.01), expected)


def test_cases_taken_as_independent_err_far_more_often():
    """Why the mean over the cases of a pair comes first: the same data as twelve times as many pairs."""
    rng, wrong = np.random.default_rng(8), 0
    for _ in range(100):
        one = cases([0.13] * 12, rng=rng, shared_sd=0.01)
        logs = tuple(log for case in one for log in case.logs)
        pooled = CaseValues("all", logs, tuple(map(str, range(len(logs)))))
        wrong += judge(about(0.15), [pooled]).verdict in (SUPPORTED, REFUTED)
    assert wrong > 30


def test_the_bounds_of_one_case_are_adjusted_for_the_cases_of_the_whole_claim():
    asked = up_to(0.30, tolerance=0.0)
    alone = cases([0.309], sd=0.015)
    assert judge(asked, alone).verdict is SUPPORTED
    assert judge(asked, alone, tests=500).verdict is INCONCLUSIVE


def test_a_winner_of_many_equal_cases_is_read_on_other_pairs_than_it_is_chosen_on():
    found = judge(up_to(0.30), cases([0.10] * 40, sd=0.06))
    (told,) = [detail for detail in found.details if detail.startswith("chosen on half")]
    apart = float(told.partition("time -")[2].partition(" %")[0]) / 100
    assert found.value > 0.12  # the luckiest of forty
    assert abs(apart - 0.10) < abs(found.value - 0.10)


def test_the_middle_and_the_share_of_cases_that_moved_stand_beside_an_up_to():
    moved, still = cases([0.35], change=Change.FASTER), cases([0.0] * 3, change=Change.SAME)
    details = judge(up_to(0.30), [*moved, *still]).details
    assert "median of 4 cases: time" in details[0]
    assert details[1] == "1 of 4 moved in the claimed direction, 0 against it"


def test_a_range_says_how_many_cases_of_their_own_lie_inside():
    told = judge(between(0.08, 0.12), cases([0.10, 0.10, 0.30, 0.08])).details[-1]
    assert told == "2 cases lie inside 8 % to 12 % less time, 1 outside, 1 across its ends"


def test_too_few_pairs_are_inconclusive_and_say_how_many_more():
    found = judge(up_to(0.30), cases([0.5], pairs=2))
    assert found.verdict is INCONCLUSIVE
    assert found.next_step == "measure at least 1 more round (cuda-gains run: raise --rounds by 1)"
    assert counted(cases([0.5], pairs=2)) == 0


def test_a_mean_needs_pairs_that_hold_all_cases():
    one, other = cases([0.15, 0.15])
    names = tuple(f"else-{i}" for i in range(PAIRS))
    shared = CaseValues("other", other.logs, (one.pairs[0], *names[1:]))
    assert judge(about(0.15), [one, shared]).reason.startswith("only 1 pair holds all 2 cases")
    found = judge(about(0.15), [one, CaseValues("other", other.logs, names)])
    assert found.verdict is INCONCLUSIVE
    assert found.reason == "only 0 pairs hold all 2 cases, a verdict needs 3"
    assert found.next_step == (
        "measure at least 3 more rounds (cuda-gains run: raise --rounds by 3), with all cases"
    )


def test_a_failed_case_leaves_nothing_to_say_but_what_another_shows():
    failed = CaseValues("broken", (), (), failed="out-of-memory (3 runs)")
    short = judge(up_to(0.30), [*cases([0.1]), failed])
    assert short.verdict is Verdict.NOT_MEASURED
    assert "1 of 2 cases could not be compared (broken: out-of-memory (3 runs))" in short.reason
    assert judge(up_to(0.30), [*cases([0.35]), failed]).verdict is SUPPORTED
    assert judge(about(0.15), [*cases([0.15]), failed]).verdict is Verdict.NOT_MEASURED
    assert judge(about(0.15), [failed]).verdict is Verdict.NOT_MEASURED


@pytest.mark.parametrize(("thin", "verdict"), [(0.05, REFUTED), (0.40, INCONCLUSIVE)])
def test_a_hardly_measured_case_may_overturn_a_refutation(thin, verdict):
    found = judge(up_to(0.30), [*cases([0.1, 0.2]), *cases([thin], pairs=2)])
    told = "1 case with fewer than 3 pairs was seen beyond the bound"
    assert (found.reason == told) is (verdict is INCONCLUSIVE)
    assert (found.verdict, found.left_out) == (verdict, 1)


def test_identical_values_of_a_coarse_clock_are_judged_by_the_floor_of_its_spread():
    names = tuple(map(str, range(5)))
    same = CaseValues("coarse", (math.log(0.7),) * 5, names, floor=0.05)
    fine = CaseValues("fine", (math.log(0.7),) * 5, names, floor=1e-9)
    assert judge(up_to(0.30, tolerance=0.01), [fine]).verdict is SUPPORTED
    assert judge(up_to(0.30, tolerance=0.01), [same]).verdict is INCONCLUSIVE
