"""A stack compared with itself in, the noise of this machine out: false alarms, and what can be seen.

The input is a Comparison of a baseline with its own repeat (`NAME#2`, or a null value of a contrast).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from bench_lib.comparing import stats
from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.comparing.matching import REMEDIES
from bench_lib.comparing.replicates import DOUBTED
from bench_lib.comparing.stats import ALPHA, FEWEST, Floats
from bench_lib.comparing.verdicts import Pairing, at_least
from bench_lib.errors import UsageError
from bench_lib.units import count_text

EFFECTS = (0.01, 0.02, 0.05)  # the effects that rounds are counted for
SAFE = 2  # a margin is supported when it is at least this many A/A half-widths
MOST_FALSE = 0.08  # share over all swaps above which the intervals themselves are doubted
FEWEST_CASES = 20  # below which their share over all swaps says nothing of the intervals
FEWEST_SUPPORTED = 0.5  # share of the cases whose margin is supported, below which a machine is too noisy
_ROUNDING = 1e-12
_PARTS = {2: ("first", "last"), 3: ("first", "middle", "last")}


@dataclass(frozen=True)
class CaseNoise:
    """What one case shows of a stack against itself, and what it can show of another one.

    Effects and spreads are relative (0.01 is 1 %). `sd` is that of one pair's log ratio, `run_sd` that
    of one run within its round. `resolves` is the smallest effect that n pairs show with 80 %
    probability, `supports` the smallest margin they support. `rounds` holds the pairs that each of
    `EFFECTS` needs; over `stats.MOST_ROUNDS` means that no number of them is advice.
    """

    case_id: str
    family: str
    margin: float
    n: int
    ratio: float
    low: float
    high: float
    differs: bool  # the 95 % interval excludes 1
    change: Change
    sd: float
    run_sd: float
    resolves: float
    supports: float
    rounds: tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """Runs in one part of their rounds against the other run of the same stack in those rounds."""

    part: str  # first, middle or last
    pairs: int  # at most, over the cases
    cases: int
    differing: int
    as_far: float  # share of the swaps of the two under which they lie as far apart
    ratio: float  # geometric mean over the cases


@dataclass(frozen=True)
class Calibration:
    """The noise of one machine, as one campaign shows it."""

    baseline: str
    repeat: str
    campaign: str
    pairing: str
    pairs: int
    cases: tuple[CaseNoise, ...]
    swaps: int  # relabellings of baseline and repeat that were tried, the data as they are among them
    swapped_share: float  # of cases differing, over all of them
    swapped_low: float  # the lower end of its 95 % interval, over the cases
    as_far: float  # share of the relabellings under which the two lie as far apart as they do
    places: tuple[Place, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    seconds_each: float | None = None  # what one pair took, where that was recorded

    @property
    def differing(self) -> int:
        """Cases in which the two differ at 95 %."""
        return sum(case.differs for case in self.cases)

    @property
    def beyond(self) -> int:
        """Cases in which the two differ by more than the margin."""
        return sum(case.change in (Change.FASTER, Change.SLOWER) for case in self.cases)

    @property
    def unit(self) -> str:
        """What the pairs are: `rounds`, or `runs` of a contrast."""
        return "runs" if self.pairing == Pairing.RUNS else "rounds"

    @property
    def supported(self) -> int:
        """Cases whose declared margin is supported by so many pairs."""
        return sum(case.supports <= case.margin for case in self.cases)

    @property
    def too_noisy(self) -> str:
        """Why most comparisons here would stay without a verdict, and what to do; "" where they would not.

        It is no doubt about the changes that are found: of an effect that is large enough they tell.
        """
        if self.supported >= FEWEST_SUPPORTED * len(self.cases):
            return ""
        return (
            f"this machine is too noisy for a verdict at these margins with {self.pairs} {self.unit}: they "
            f"are supported in {self.supported or 'none'} of {len(self.cases)} cases; quiet the machine "
            f"(cuda-gains doctor names what disturbs it) or measure more {self.unit}"
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against believing a comparison on this machine; empty when nothing does."""
        found = []
        if self.beyond:
            found.append(f"{self.beyond} of {len(self.cases)} cases differ from themselves beyond the margin")
        if self.as_far < ALPHA:
            found.append(
                f"only {100 * self.as_far:.1f} % of all swaps of the two set them as far apart, so the "
                "repeat is not like the baseline: look at the order of the runs, at caches, and at what "
                "ran beside them"
            )
        # The swaps of a case share its values: only so many cases, and their scatter, show an excess.
        shown = len(self.cases) >= FEWEST_CASES and self.swapped_low > ALPHA
        if shown and self.swapped_share > MOST_FALSE:
            found.append(
                f"over all swaps {100 * self.swapped_share:.1f} % of the cases differ, more than "
                f"{100 * MOST_FALSE:g} %, so the intervals are too narrow here"
            )
        return tuple(found)


def calibrate(null: Comparison, runs: pd.DataFrame | None = None) -> Calibration:
    """The calibration that a comparison of a baseline with its repeat gives, canaries included.

    `runs` are those of the whole campaign, for the shares by position in the round. Raises UsageError
    where nothing pairs the two, or no case has three pairs.
    """
    if null.pairing not in (Pairing.ROUNDS, Pairing.RUNS):
        raise UsageError(
            f"no round holds both {null.baseline!r} and {null.candidate!r}; calibrating needs rounds that "
            "hold the baseline twice: finish them with cuda-gains run"
        )
    every = (*null.canaries, *null.cases)
    rows = [row for row in every if row.n >= FEWEST and row.ratio]
    if not rows:
        raise UsageError(_too_few(null, max((row.n for row in every), default=0)))
    log_ratios, names = aligned(rows)
    floor = np.array([row.floor for row in rows])
    swapped = stats.swapped(log_ratios, floor)
    return Calibration(
        baseline=null.baseline,
        repeat=null.candidate,
        campaign=null.campaign,
        pairing=null.pairing,
        pairs=len(names),
        cases=_noise(rows, Pairing(null.pairing)),
        swaps=swapped.shape[1],
        swapped_share=float(swapped.mean()),
        swapped_low=_lower(swapped.mean(axis=1)),
        as_far=_as_far(log_ratios),
        places=() if runs is None else _places(log_ratios, floor, _parts(null, names, runs)),
        left_out=tuple((row.case_id, f"{row.n} pairs, {FEWEST} needed") for row in every if row not in rows),
    )


def _too_few(null: Comparison, most: int) -> str:
    """That no case has pairs enough, the `most` that one has, what kept others out, and what to do."""
    doubted = [(case, why) for case, why in null.left_out if DOUBTED in why]
    cases = count_text(len({case for case, _ in doubted}), "case")
    left_out = f"; runs of {cases} are left out, {DOUBTED.replace('its', 'their')}" if doubted else ""
    remedies = [
        remedy for flag, remedy in REMEDIES.items() if any(f"{DOUBTED} {flag}" in w for _, w in doubted)
    ]
    mend = f"{' and '.join(remedies)}, then " if remedies else ""
    step = at_least(max(FEWEST - most, 1), Pairing(null.pairing))
    return (
        f"no case has {FEWEST} pairs of {null.baseline!r} and {null.candidate!r} (the most are {most})"
        f"{left_out}; {mend}{step}"
    )


def quoted(null: Comparison, moved: bool = True) -> str:
    """The calibration in one line, for a comparison to quote; "" where there is none.

    `moved`: the comparison lists changes, which can be doubted.
    """
    try:
        found = calibrate(null)
    except UsageError:
        return ""
    beyond = f"beyond the margin in {found.beyond or 'none'}"
    doubt = f"; DOUBT THE CHANGES BELOW: {'; '.join(found.doubts)}" if moved and found.doubts else ""
    return (
        f"A/A: {null.baseline} and its repeat differ in {found.differing} of {len(found.cases)} cases "
        f"({100 * ALPHA:g} % expected), {beyond}; {100 * found.swapped_share:.1f} % over all swaps of the "
        f"two{doubt} (see cuda-gains calibrate)"
    )


def aligned(rows: Sequence[CaseChange]) -> tuple[Floats, list[str]]:
    """Log ratios as cases x pairs, NaN where a case lacks one, and the names of the pairs."""
    names = list(dict.fromkeys(name for row in rows for name in row.pairs))
    place = {name: i for i, name in enumerate(names)}
    matrix = np.full((len(rows), len(names)), np.nan)
    for line, row in zip(matrix, rows, strict=True):
        line[[place[name] for name in row.pairs]] = row.log_ratios
    return matrix, names


def _as_far(log_ratios: Floats) -> float:
    """The share of swaps, the data as they are among them, under which the sides lie as far apart."""
    lean = stats.leaning(log_ratios)
    return float((lean >= lean[0] - _ROUNDING).mean())


def _lower(shares: Floats) -> float:
    """The lower end of the 95 % interval of their mean; 0 of one."""
    if len(shares) < 2:
        return 0.0
    half = stdtrit(len(shares) - 1, 1 - ALPHA / 2) * shares.std(ddof=1) / math.sqrt(len(shares))
    return float(shares.mean() - half)


def _noise(rows: Sequence[CaseChange], pairing: Pairing) -> tuple[CaseNoise, ...]:
    n = np.array([row.n for row in rows])
    sd = np.array([row.sd or 0.0 for row in rows])
    differs = [not (row.low or 0.0) <= 1 <= (row.high or math.inf) for row in rows]
    half = np.array([math.log((row.high or 1.0) / (row.low or 1.0)) / 2 for row in rows])
    resolves = np.expm1(stats.resolved(sd, n))
    rounds = [stats.rounds_to_resolve(sd, math.log1p(effect)) for effect in EFFECTS]
    # Of two runs of one round each has half the variance; the two values of one run are no runs.
    run_sd = sd / math.sqrt(2) if pairing is Pairing.ROUNDS else sd
    return tuple(
        CaseNoise(
            case_id=row.case_id,
            family=row.family,
            margin=row.margin,
            n=row.n,
            ratio=row.ratio or 1.0,
            low=row.low or 0.0,
            high=row.high or math.inf,
            differs=differs[i],
            change=row.change,
            sd=float(sd[i]),
            run_sd=float(run_sd[i]),
            resolves=float(resolves[i]),
            supports=math.expm1(SAFE * half[i]),
            rounds=tuple(int(of[i]) for of in rounds),
        )
        for i, row in enumerate(rows)
    )


def _parts(
    null: Comparison, names: Sequence[str], runs: pd.DataFrame
) -> Mapping[str, tuple[list[bool], list[bool]]]:
    """Part of the round -> whether baseline and repeat stood in it, a value a pair."""
    positions = runs.set_index(["round", "arm"])["position"]
    positions = positions[~positions.index.duplicated(keep="last")]
    known = not positions.isna().any()  # a damaged file may hold none
    if null.pairing != Pairing.ROUNDS or not known or not set(names) <= set(runs["round"]):
        return {}
    places = int(runs["position"].max()) + 1
    parts = _PARTS.get(min(places, 3), ())
    sides = [
        [int(positions[name, arm]) * len(parts) // places for name in names]
        for arm in (null.baseline, null.candidate)
    ]
    return {
        part: ([at == i for at in sides[0]], [at == i for at in sides[1]]) for i, part in enumerate(parts)
    }


def _places(
    log_ratios: Floats, floor: Floats, parts: Mapping[str, tuple[list[bool], list[bool]]]
) -> tuple[Place, ...]:
    found = []
    for part, (baseline, repeat) in parts.items():
        # The run in this part over the one outside it; no pair where both are in it, or neither.
        signs = np.array(repeat, float) - np.array(baseline, float)
        apart = (log_ratios * signs)[:, signs != 0]
        effects = stats.paired(apart, floor)
        enough = effects.n >= FEWEST
        if enough.any():
            differing = int(effects.differs()[enough].sum())
            mean = float(np.exp(effects.mean[enough].mean()))
            as_far = _as_far(apart[enough])
            found.append(Place(part, apart.shape[1], int(enough.sum()), differing, as_far, mean))
    return tuple(found)
