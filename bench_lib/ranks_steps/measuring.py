"""All strategies of one set-up in turns over the same ranks: series by strategy and metric.

A step's quantities say what its communication costs: `exposed_seconds`, the median over turns of the
step minus the same step without communication; and `overlap_share`, the part of the communication (its
collectives alone) that the computation hid.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from bench_lib.compiling.executions import told
from bench_lib.convolution.precision import Precision
from bench_lib.device.telemetry import Reading
from bench_lib.errors import WrongResult
from bench_lib.model import Policy, Series, Timing, Work
from bench_lib.ranks.group import Ranks
from bench_lib.ranks_steps.arms import ALONE, FP16_HOOK, NONE, WITHOUT
from bench_lib.ranks_steps.networks import Setup
from bench_lib.ranks_steps.trainer import COMMUNICATION, STEP, Block, Build, Built, Look, Weights
from bench_lib.timing.turns import Parts, in_turns

Outcome = Series | Exception
Key = tuple[str, str]  # strategy and metric

BUILD_SECONDS, BLOCK_SECONDS = 300.0, 120.0
_STEPS = 2  # in a block

# Largest relative distance of a gradient from the mean of the ranks' own. Ranks that train alone
# are off by about 1; kernels that sum in another order under autocast by a few per cent.
_TOLERANCE = {"": 1e-4, "float16": 0.05, "bfloat16": 0.1}
_OF_THE_HOOK = 0.01


class _SlowestClock:
    """A clock that only moves by the time of the slowest rank."""

    def __init__(self) -> None:
        self._passed = 0.0

    def add(self, seconds: Sequence[float]) -> None:
        self._passed += max(seconds)

    def synchronize(self) -> None:
        """Nothing runs between two answers."""

    def record(self) -> float:
        return self._passed

    def elapsed(self, start: float, end: float) -> float:
        return end - start


class _WorstReader:
    """NVML over all ranks: throttled if one is, and the lowest clock."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.max_sm_clock_mhz: float | None = self._ask()[0][1]

    def read(self) -> Reading:
        readings = [reading for reading, _ in self._ask()]
        clocks = [one.sm_clock_mhz for one in readings if one.sm_clock_mhz is not None]
        reasons = dict.fromkeys(reason for one in readings for reason in one.throttle_reasons)
        return Reading(sm_clock_mhz=min(clocks, default=None), throttle_reasons=tuple(reasons))

    def _ask(self) -> list[tuple[Reading, float | None]]:
        return self._ranks.ask(Look(), BLOCK_SECONDS)


def measure(
    ranks: Ranks, setup: Setup, strategies: Sequence[str], policy: Policy, seed: int = 0
) -> dict[Key, Outcome]:
    """Steps and collectives of every strategy that works here, in turns; the weights agree afterwards.

    `ranks` are made with `trainer.make` and this set-up. Before, the first gradient of each strategy is
    checked against the mean of what the ranks compute on their own.
    """
    outcomes: dict[Key, Outcome] = {}
    built: dict[str, Built] = {}
    for strategy in strategies:
        try:
            built[strategy] = _build(ranks, setup, strategy)
        except Exception as error:  # one strategy that fails leaves the others to be measured
            outcomes |= dict.fromkeys(metrics(strategy), told(strategy, error))
    keys = [key for strategy in built for key in metrics(strategy)]
    try:
        series = _in_turns(ranks, setup, keys, policy, seed) if keys else {}
        failed = {strategy: _disagreement(ranks, strategy) for strategy in built if strategy not in ALONE}
    except Exception as error:  # the ranks are gone, and all arms with them
        return outcomes | dict.fromkeys(keys, told(setup.name, error))
    for key in keys:
        wrong = failed.get(key[0], "")
        outcomes[key] = WrongResult(wrong) if wrong else _told_more(key, series, built[key[0]], ranks.size)
    return outcomes


def metrics(strategy: str) -> list[Key]:
    """What is measured of a strategy."""
    return [(strategy, STEP)] + ([] if strategy in ALONE else [(strategy, COMMUNICATION)])


def _build(ranks: Ranks, setup: Setup, strategy: str) -> Built:
    found: list[Built] = ranks.ask(Build(strategy), BUILD_SECONDS)
    worst = max(found, key=lambda one: one.error)
    allowed = tolerance(setup.precision, strategy)
    if not all(one.error <= allowed for one in found):
        raise WrongResult(
            f"the gradient of {strategy} is {worst.error:.2g} from the mean over the ranks, relative; at "
            f"most {allowed:g} was expected: these ranks do not train together"
        )
    return replace(
        worst, peak_nbytes=max((one.peak_nbytes for one in found if one.peak_nbytes), default=None)
    )


def tolerance(precision: Precision, strategy: str) -> float:
    """How far a gradient may be from the mean over the ranks, relative."""
    return max(_TOLERANCE[precision.half], _OF_THE_HOOK if strategy == FP16_HOOK else 0.0)


def _disagreement(ranks: Ranks, strategy: str) -> str:
    """What is wrong with the weights after all steps; "" where the ranks agree bit by bit."""
    digests = ranks.ask(Weights(strategy), BUILD_SECONDS)
    different = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if not different:
        return ""
    return f"after the steps of {strategy} the weights of rank {different[0]} are not those of rank 0"


def _in_turns(
    ranks: Ranks, setup: Setup, keys: Sequence[Key], policy: Policy, seed: int
) -> dict[Key, Series]:
    clock, steps = _SlowestClock(), _STEPS

    def block(strategy: str, metric: str) -> Callable[[], None]:
        return lambda: clock.add(ranks.ask(Block(strategy, metric, steps), BLOCK_SECONDS))

    arms: dict[str, Parts] = {f"{s}/{m}": {STEP: block(s, m)} for s, m in keys}
    timing = Timing.BATCH if ranks.device == "cuda" else Timing.HOST
    reader = _WorstReader(ranks) if ranks.device == "cuda" else None
    found = in_turns(arms, clock, policy, setup.name, seed, timing, reader, steps=1)
    return {
        (s, m): replace(one, calls=steps, warmup_calls=one.warmup_calls * steps)
        for s, m in keys
        for one in [found[f"{s}/{m}"][STEP]]
    }


def _told_more(key: Key, series: Mapping[Key, Series], built: Built, ranks: int) -> Series:
    """The series with its quantities: what of a step is exposed, how much memory it takes."""
    strategy, metric = key
    own = series[key]
    if metric == COMMUNICATION:
        return replace(own, work=Work(nbytes=float(built.gradient_nbytes)))
    quantities = {} if strategy in ALONE else {"gradient_relative_error": built.error}
    if built.peak_nbytes is not None:
        quantities["peak_nbytes"] = float(built.peak_nbytes)
    without = (WITHOUT.get(strategy, NONE), STEP)
    if (strategy, COMMUNICATION) in series and without in series:
        quantities |= exposed(own, series[without], series[strategy, COMMUNICATION])
        if ranks == 1:  # nothing moves that could be hidden
            del quantities["overlap_share"]
    return replace(own, quantities=quantities)


def exposed(step: Series, without: Series, communication: Series) -> dict[str, float]:
    """What a step takes longer than the same step without communication, turn by turn, and its overlap.

    The overlap is the share of the communication that did not lengthen the step: 1 where it was hidden
    whole, 0 where none of it was, below 0 where communicating slowed the computation down.
    """
    longer = median(a - b for a, b in zip(step.seconds, without.seconds, strict=True))
    alone = median(communication.seconds)
    return {"exposed_seconds": longer, "communication_seconds": alone, "overlap_share": 1 - longer / alone}
