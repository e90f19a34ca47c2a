"""Arrays of log ratios in, intervals and decisions out: the statistics, with no names and no files.

The unit of replication is a run (one process): per run the median of its samples, per pair the log
of candidate / baseline, a t interval on those (tests/test_coverage.py shows why not pooled samples).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit  # t's cdf and its inverse; scipy.stats takes far longer to import

from bench_lib.comparing.changes import Change
from bench_lib.model import FEWEST as FEWEST

ALPHA = 0.05
POWER = 0.80  # with which the stated number of rounds is meant to settle a case
MOST_ROUNDS = 2000  # no number of them is told beyond this
MOST_MORE = 100  # beyond those there: more are no advice, and what disturbs the values is
MOST_SWAPPED = 12  # pairs whose swaps are all tried: 2**11 relabellings
SOME_SWAPS = 2048  # relabellings drawn where there are more pairs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Effects:
    """Log ratios summed up, one entry a case; NaN where a case has too little for it."""

    n: Ints  # pairs, or runs on the smaller side
    mean: Floats  # of the log ratio
    sd: Floats  # of one pair's log ratio (unpaired: of a pair of independent runs)
    se: Floats  # of the mean
    df: Floats

    def interval(self, level: float = 1 - ALPHA) -> tuple[Floats, Floats]:
        """The t interval of the ratio candidate / baseline at `level`."""
        half = self.half_width(level)
        return np.exp(self.mean - half), np.exp(self.mean + half)

    def half_width(self, level: float = 1 - ALPHA) -> Floats:
        """Half the width of the t interval of the log ratio at `level`."""
        half: Floats = stdtrit(self.df, 0.5 + level / 2) * self.se
        return half

    def differs(self) -> NDArray[np.bool_]:
        """Whether the 95 % interval excludes 1; never with fewer than `FEWEST` pairs."""
        return (self.n >= FEWEST) & (np.abs(self.mean) > self.half_width())


@dataclass(frozen=True)
class Decisions:
    """What the effects mean at their margins, one entry a case."""

    change: tuple[Change, ...]  # faster, slower, same or unclear
    q_change: Floats
    q_same: Floats
    rounds: Ints  # in all, that would settle an unclear case; over MOST_ROUNDS: no number of them


def paired(log_ratios: Floats, floor: Floats) -> Effects:
    """Effects of paired data.

    `log_ratios`: cases x pairs, NaN where a case lacks a pair. `floor`: per case the least spread of
    a log ratio that its timer can show, see `spread_floor`.
    """
    n, mean, variance = _moments(log_ratios)
    sd = np.maximum(np.sqrt(variance), floor)
    return Effects(n, mean, sd, sd / np.sqrt(_or_nan(n)), _or_nan(n - 1))


def unpaired(baseline: Floats, candidate: Floats, floor: Floats) -> Effects:
    """Effects of unpaired data by Welch's t on logs.

    `baseline`, `candidate`: cases x runs, log seconds, NaN where there is no run. `floor` as in
    `paired`; each side gets its share.
    """
    n_a, mean_a, variance_a = _moments(baseline)
    n_b, mean_b, variance_b = _moments(candidate)
    variance_a = np.maximum(variance_a, floor**2 / 2)
    variance_b = np.maximum(variance_b, floor**2 / 2)
    part_a, part_b = variance_a / _or_nan(n_a), variance_b / _or_nan(n_b)
    df = (part_a + part_b) ** 2 / (part_a**2 / _or_nan(n_a - 1) + part_b**2 / _or_nan(n_b - 1))
    sd = np.sqrt(variance_a + variance_b)
    return Effects(np.minimum(n_a, n_b), mean_b - mean_a, sd, np.sqrt(part_a + part_b), df)


def spread_floor(step: Floats, value: Floats) -> Floats:
    """The least sd of a log ratio of two values read on a clock of this step: (q/x)/sqrt(6).

    Each reading is uniform within a step, variance q**2/12. Without it identical medians on a coarse
    clock give a spread of zero and no test. Never exactly zero, so that a test is always possible.
    """
    with np.errstate(over="ignore"):  # a value of nearly nothing: no spread of it is too wide
        floor: Floats = np.maximum(step / value / math.sqrt(6), 1e-12)
    return floor


def p_change(effects: Effects, margin: Floats) -> Floats:
    """p of the minimum-effect test: the ratio lies beyond the margin, on either side."""
    delta = np.log1p(margin)
    below = stdtr(effects.df, (effects.mean + delta) / effects.se)
    above = stdtr(effects.df, (delta - effects.mean) / effects.se)
    doubled: Floats = np.minimum(1.0, 2 * np.minimum(below, above))
    return doubled


def p_same(effects: Effects, margin: Floats) -> Floats:
    """p of the equivalence test (TOST): the ratio lies inside the margin."""
    delta = np.log1p(margin)
    not_below = stdtr(effects.df, -(effects.mean + delta) / effects.se)
    not_above = stdtr(effects.df, (effects.mean - delta) / effects.se)
    larger: Floats = np.maximum(not_below, not_above)
    return larger


def decide(effects: Effects, margin: Floats) -> Decisions:
    """Decisions over all cases of one comparison: two families, each controlled by Benjamini-Hochberg.

    Cases with fewer than `FEWEST` pairs are unclear and take no part in the control.
    """
    enough = (effects.n >= FEWEST) & np.isfinite(effects.se)
    q_change = _adjusted(p_change(effects, margin), enough)
    q_same = _adjusted(p_same(effects, margin), enough)
    changed, same = q_change < ALPHA, q_same < ALPHA
    moved = np.where(effects.mean < 0, Change.FASTER, Change.SLOWER)
    change = np.where(changed, moved, np.where(same, Change.SAME, Change.UNCLEAR))
    rounds = _rounds(effects, margin, _level(changed, enough), _level(same, enough))
    return Decisions(tuple(Change(one) for one in change), q_change, q_same, rounds)


def resolved(sd: Floats, n: Ints) -> Floats:
    """The least log ratio that n pairs of this sd show as a difference from 1 with `POWER`.

    The two-sided t test at `ALPHA` in the closed form that `decide` uses for rounds.
    """
    least: Floats = sd * _standard_effect(n)
    return least


def rounds_to_resolve(sd: Floats, effect: float) -> Ints:
    """How many pairs of this sd show a log ratio of `effect`; over MOST_ROUNDS: no number of them."""
    falling = _standard_effect(np.arange(FEWEST, MOST_ROUNDS + 1))
    places: Ints = np.searchsorted(-falling, -effect / sd).astype(np.int64) + FEWEST
    return places


def swapped(log_ratios: Floats, floor: Floats) -> NDArray[np.bool_]:
    """Whether each case differs from 1 under each swap of the two sides within pairs.

    `log_ratios` and `floor` as in `paired`; the result is cases x relabellings, the first of them the
    data as they are. All 2**(n - 1) relabellings of up to `MOST_SWAPPED` pairs, else a seeded sample
    of `SOME_SWAPS` (swapping every pair only turns the sign, so the first pair is never swapped).
    """
    there = np.isfinite(log_ratios)
    values = np.where(there, log_ratios, 0.0)
    n = there.sum(axis=1, keepdims=True)
    mean = values @ _swaps(log_ratios.shape[1]) / _or_nan(n)
    squares = (values**2).sum(axis=1, keepdims=True)
    sd = np.sqrt(np.maximum(squares - n * mean**2, 0.0) / _or_nan(n - 1))
    half = stdtrit(_or_nan(n - 1), 1 - ALPHA / 2) * np.maximum(sd, floor[:, None]) / np.sqrt(_or_nan(n))
    found: NDArray[np.bool_] = (n >= FEWEST) & (np.abs(mean) > half)
    return found


def leaning(log_ratios: Floats) -> Floats:
    """How far the two sides lie apart under each swap of `swapped`, from 0 to 1, over all cases at once.

    The mean over the cases of abs(sum d) / sqrt(n sum d**2), which rises with a case's t. Cases that
    share their runs lean together; so they do under the swaps, which makes this comparable over them.
    """
    values = np.where(np.isfinite(log_ratios), log_ratios, 0.0)
    n = np.isfinite(log_ratios).sum(axis=1)
    most = np.maximum(np.sqrt(n * (values**2).sum(axis=1)), np.finfo(float).tiny)
    lean: Floats = (np.abs(values @ _swaps(log_ratios.shape[1])) / most[:, None]).mean(axis=0)
    return lean


def _swaps(pairs: int) -> Floats:
    """Signs, pairs x relabellings; none swapped in the first."""
    if pairs <= MOST_SWAPPED:
        numbers = np.arange(2 ** max(pairs - 1, 0))
        flipped = (numbers[None, :] << 1 >> np.arange(pairs)[:, None]) & 1
    else:
        flipped = np.random.default_rng(pairs).integers(0, 2, (pairs, SOME_SWAPS))
        flipped[:, 0] = flipped[0] = 0
    return np.where(flipped, -1.0, 1.0)


def _standard_effect(n: Ints) -> Floats:
    """The effect in units of the sd that n pairs show with `POWER`."""
    effect: Floats = (stdtrit(n - 1, POWER) - stdtrit(n - 1, ALPHA / 2)) / np.sqrt(n)
    return effect


def _moments(values: Floats) -> tuple[Ints, Floats, Floats]:
    """Count, mean and variance of each row, NaN left out; NaN where the count does not allow it."""
    there = np.isfinite(values)
    n = there.sum(axis=1)
    mean = np.where(there, values, 0.0).sum(axis=1) / _or_nan(n)
    squares = (np.where(there, values - mean[:, None], 0.0) ** 2).sum(axis=1)
    return n, mean, squares / _or_nan(n - 1)


def _or_nan(n: Ints) -> Floats:
    return np.where(n > 0, n, np.nan)


def _adjusted(p: Floats, enough: NDArray[np.bool_]) -> Floats:
    """The q of each p that counts, by Benjamini and Hochberg; NaN of the others."""
    q = np.full(p.shape, np.nan)
    order = np.flatnonzero(enough)[np.argsort(p[enough])]
    at_rank = p[order] * (len(order) / np.arange(1, len(order) + 1))
    q[order] = np.minimum(1.0, np.minimum.accumulate(at_rank[::-1])[::-1])
    return q


def _level(rejected: NDArray[np.bool_], enough: NDArray[np.bool_]) -> float:
    """The p that one more case would need for its q to be under ALPHA."""
    return ALPHA * min(1.0, (int(rejected.sum()) + 1) / max(int(enough.sum()), 1))


def _rounds(effects: Effects, margin: Floats, change_level: float, same_level: float) -> Ints:
    """How many pairs would settle each case if its effect and spread are as seen.

    With gap the distance of the effect from the margin, a one-sided t test has POWER once
    gap / sd >= (t_level + t_power) / sqrt(n): the usual closed form, with t for the normal quantiles.
    """
    n = np.arange(FEWEST, MOST_ROUNDS + 1)
    root = np.sqrt(n)
    # Inside the margin both one-sided tests must succeed, so each gets half of the allowed failure.
    for_same = (stdtrit(n - 1, (1 + POWER) / 2) - stdtrit(n - 1, same_level)) / root
    for_change = (stdtrit(n - 1, POWER) - stdtrit(n - 1, change_level / 2)) / root
    gap = np.abs(effects.mean) - np.log1p(margin)
    size = np.nan_to_num(np.abs(gap) / effects.sd)
    place = np.where(gap > 0, np.searchsorted(-for_change, -size), np.searchsorted(-for_same, -size))
    rounds: Ints = place.astype(np.int64) + FEWEST
    return rounds
