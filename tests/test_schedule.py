"""Orders come from the seed alone; each arm is in each place, and after each other arm, equally often."""

from collections import Counter
from itertools import pairwise

import pytest

from bench_lib.campaigns import schedule

NAMES = ["a", "a#2", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_places_are_balanced_after_every_round(n: int, seed: int) -> None:
    names = NAMES[:n]
    counts: Counter[tuple[str, int]] = Counter()
    for index in range(4 * n):
        order = schedule.order(names, seed, index)
        assert sorted(order) == sorted(names)
        counts.update((arm, place) for place, arm in enumerate(order))
        per_place = [counts[arm, place] for arm in names for place in range(n)]
        assert max(per_place) - min(per_place) <= 1


@pytest.mark.parametrize("n", range(2, 8))
def test_each_arm_follows_each_other_equally_often(n: int) -> None:
    names, cycles = NAMES[:n], 2
    after: Counter[tuple[str, str]] = Counter()
    for index in range(cycles * n):
        order = schedule.order(names, 7, index)
        after.update(pairwise(order))
    assert set(after.values()) == {cycles}
    assert len(after) == n * (n - 1)


def test_the_order_is_random_and_repeatable() -> None:
    orders = {tuple(schedule.order(NAMES, seed, 0)) for seed in range(50)}
    assert len(orders) > 40
    assert schedule.order(NAMES, 3, 5) == schedule.order(NAMES, 3, 5)
    cycles = {tuple(tuple(schedule.order(NAMES, 3, 7 * c + i)) for i in range(7)) for c in range(6)}
    assert len(cycles) == 6


def test_stored_seeds_give_the_same_orders_for_ever() -> None:
    """A campaign that is continued later must go on with its own plan."""
    assert schedule.order(["a", "a#2", "b", "c"], 42, 5) == ["a#2", "a", "b", "c"]
    assert schedule.case_seed(42, 5) == 421689625


def test_case_seeds_differ_between_rounds_and_are_never_zero() -> None:
    seeds = [schedule.case_seed(0, index) for index in range(1000)]
    assert len(set(seeds)) == 1000
    assert all(0 < seed < 2**31 for seed in seeds)


def test_the_baseline_has_a_second_arm() -> None:
    assert schedule.arms(["x", "y"], null=True) == {"x": "x", "y": "y", "x#2": "x"}
    assert schedule.arms(["x", "y"], null=False) == {"x": "x", "y": "y"}
