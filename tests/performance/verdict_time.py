"""How long a comparison takes that resolves 2 %: this suite beside two other stopping rules.

Recorded samples in, seconds out. Each rule is replayed on the samples that runs of the shipped campaigns
hold: how long it would have sampled a case, and how far two of its runs would have lain apart. From that
follows how many pairs of runs resolve 2 %, by the same formula for all, and how long they take.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bench_lib.comparing import stats, store
from bench_lib.comparing.stats import Floats
from bench_lib.model import NULL_SUFFIX, Status
from performance.figures import Figure, Part, times

EFFECT = math.log(1.02)
CAMPAIGNS = ("h200-cudart-rounds", "h200-convolutions")
BASELINE = "cudart-11.8"  # of the rounds; it ran twice in each
FEWEST_RUNS = 5  # to know a spread from
LONGEST = 100_000  # samples that a replay draws at most
DRAWN = 100  # resamples behind the spread of a median


@dataclass(frozen=True)
class Sampled:
    """What a rule would have done in one run: for how long it sampled, and how many samples it took."""

    seconds: float
    samples: int


Rule = Callable[[Floats, np.random.Generator], Sampled]


@dataclass(frozen=True)
class Recorded:
    """One case as it was recorded: the samples of each run, and the spread of two runs' log ratio."""

    name: str
    family: str
    runs: tuple[Floats, ...]
    wall_seconds: dict[str, float]  # by policy, of the case in one run of ours: warm-up, checks and all
    spread: float


@dataclass(frozen=True)
class Outcome:
    """A case under one rule: pairs of runs that resolve 2 %, and the seconds that one run takes."""

    pairs: int
    run_seconds: float

    @property
    def seconds(self) -> float:
        """Of both sides of all pairs."""
        return 2 * self.pairs * self.run_seconds


def pytest_benchmark(recorded: Floats, _: np.random.Generator) -> Sampled:
    """Its defaults: rounds of at least 5 us until 1 s is over, five at least.

    https://pytest-benchmark.readthedocs.io/en/latest/usage.html; its calibration is not counted.
    """
    seconds = max(float(np.median(recorded)), 5e-6)
    rounds = max(5, math.ceil(1.0 / seconds))
    return Sampled(rounds * seconds, rounds)


def nvbench(recorded: Floats, rng: np.random.Generator) -> Sampled:
    """Its defaults, `stdrel`: at least 10 samples and 0.5 s of GPU time, then noise < 0.5 % or a steady one.

    https://github.com/NVIDIA/nvbench/blob/main/docs/cli_help.md. Noise is the relative standard deviation;
    it is steady when its last 512 values vary by less than 5 %, asked every 16 samples. At most 15 s. Of
    each sample its GPU time alone is counted, not the flush; nor the batch that nvbench measures besides.
    """
    if 0.5 / recorded.mean() > LONGEST:
        return Sampled(0.5, int(0.5 / recorded.mean()))  # steady long before
    most = int(min(LONGEST, max(10, 15.0 / recorded.mean())))
    drawn = rng.choice(recorded, most)
    count, total = np.arange(1, most + 1), np.cumsum(drawn)
    mean = total / count
    noise = np.sqrt(np.maximum(np.cumsum(drawn**2) - count * mean**2, 0) / np.maximum(count - 1, 1)) / mean
    begin = max(10, int(np.searchsorted(total, 0.5)) + 1)
    for n in range(begin, most):
        if noise[n - 1] < 0.005 or (n > 64 and n % 16 == 0 and _steady(noise[max(n - 512, 1) : n])):
            return Sampled(float(total[n - 1]), n)
    return Sampled(float(total[-1]), most)


def _steady(noise: Floats) -> bool:
    now = noise[-1]
    return bool(math.sqrt(((noise - now) ** 2).sum() / (len(noise) - 1)) < 0.05 * now)


def recorded(results: Path) -> Iterator[Recorded]:
    """The cases of the shipped campaigns that enough runs measured in one way."""
    for campaign in CAMPAIGNS:
        data = store.load(results, [campaign])
        good = data.cases[(data.cases["status"] == Status.OK) & (data.cases["n_samples"] > 1)]
        good = good[good["arm"].isin([BASELINE, BASELINE + NULL_SUFFIX, "here"])]
        blocks = data.measured.blocks
        parts = np.split(blocks.seconds, blocks.starts[1:-1])
        samples = dict(zip(blocks.names, parts, strict=True))
        # Cases of one function may be measured together, in turns: each then has its share of that time.
        good = good.assign(share=good.groupby(["run_id", "family", "op"])["wall_seconds"].transform("mean"))
        wall = good.groupby(["case_id", "policy"])["share"].mean()
        for (case_id, policy), rows in good.groupby(["case_id", "policy"]):
            if len(rows) >= FEWEST_RUNS:
                runs = {run: samples[(run, str(case_id))] for run in rows.sort_values("started_at")["run_id"]}
                known = {str(name): float(of) for name, of in wall[case_id].items()}
                family = str(rows["family"].iloc[0])
                yield Recorded(
                    f"{case_id} ({policy})", family, tuple(runs.values()), known, _spread(rows, runs)
                )


def _spread(rows: pd.DataFrame, runs: dict[str, Floats]) -> float:
    """The sd of the log ratio of two runs: of those of one round where they are, else of any two."""
    value = {run: math.log(np.median(seconds)) for run, seconds in runs.items()}
    rounds = rows[rows["round"] != ""].groupby("round")["run_id"].apply(list)
    pairs = [value[pair[0]] - value[pair[1]] for pair in rounds if len(pair) == 2]
    if len(pairs) >= FEWEST_RUNS:
        return float(np.std(pairs, ddof=1))
    return math.sqrt(2) * float(np.std(list(value.values()), ddof=1))


def ours(case: Recorded, policy: str) -> Outcome:
    """The case as it was measured: its real spread and time; of the other policy where it lacks this one."""
    seconds = case.wall_seconds.get(policy, next(iter(case.wall_seconds.values())))
    return Outcome(_pairs(case.spread), seconds)


def theirs(case: Recorded, rule: Rule, rng: np.random.Generator) -> Outcome:
    """The case under another rule: what its longer sampling makes steadier is taken off the spread."""
    sampled = [rule(seconds, rng) for seconds in case.runs]
    within = 2 * float(np.mean([_of_median(seconds, rng) for seconds in case.runs]))
    fewer = np.mean([len(of) / what.samples for of, what in zip(case.runs, sampled, strict=True)])
    spread = math.sqrt(max(case.spread**2 - within, 0.0) + within * min(1.0, float(fewer)))
    return Outcome(_pairs(spread), float(np.mean([what.seconds for what in sampled])))


def _of_median(seconds: Floats, rng: np.random.Generator) -> float:
    """The variance of the log of the median of so many samples, by the bootstrap."""
    drawn = rng.choice(seconds, (DRAWN, len(seconds)))
    return float(np.var(np.log(np.median(drawn, axis=1)), ddof=1))


def _pairs(spread: float) -> int:
    return int(stats.rounds_to_resolve(np.array([max(spread, 1e-9)]), EFFECT)[0])


def part(results: Path) -> Part:
    """The figures of this page; `results` holds the shipped campaigns."""
    rng = np.random.default_rng(1)
    rows: list[tuple[str, list[Outcome]]] = []
    for case in recorded(results):
        others = [theirs(case, rule, rng) for rule in (pytest_benchmark, nvbench)]
        rows.append((case.family, [ours(case, "default"), ours(case, "quick"), *others]))
    able = [(family, found) for family, found in rows if max(one.pairs for one in found) <= stats.MOST_MORE]
    of_family = [_line(name, able) for name in dict.fromkeys(family for family, _ in able)]
    default, _, repeated, nvbenchs = _sums(able)
    return Part(
        "Time to a verdict",
        "How long both sides of a comparison sample until it resolves 2 %, with 80 % power at 5 %, replayed "
        "on the recorded samples of the shipped campaigns. For each rule the pairs of runs follow from how "
        "far two runs of the same thing lay apart, by one formula. The others are helped twice: what their "
        "longer sampling makes steadier is taken off that spread, and nothing is counted but the time of the "
        "samples themselves (ours is the whole case: warm-up, L2 flushes, checks). Starting a process costs "
        "the same under each rule and is counted for none.\n\n"
        "pytest-benchmark samples a case for 1 s and at least 5 rounds. nvbench samples until it has 10 "
        "samples and 0.5 s of GPU time and the noise is below 0.5 % or steady, 15 s at most "
        "([its options](https://github.com/NVIDIA/nvbench/blob/main/docs/cli_help.md)); the batch that it "
        "measures besides is not counted. Neither of them says how many processes a verdict needs.",
        (
            Figure("this suite, of repeating pytest-benchmark", default / repeated, 0.5, times),
            Figure("this suite, of repeating nvbench's rule", default / nvbenchs, 0.5, times),
        ),
        (
            "\n".join((*_HEAD, *of_family, _line("all", able))),
            f"These are {len(able)} of the {len(rows)} cases that {FEWEST_RUNS} runs or more recorded; each "
            f"of the others needs more than {stats.MOST_MORE} pairs of runs under some rule. For launches "
            "this suite has the ladder instead, which resolves 1 % in ten runs of 7.5 s.",
        ),
    )


_HEAD = (
    "| family | cases | this suite, default | this suite, quick | pytest-benchmark | nvbench |",
    "| --- | --- | --- | --- | --- | --- |",
)


def _sums(rows: list[tuple[str, list[Outcome]]]) -> list[float]:
    return [sum(one.seconds for one in column) for column in zip(*(found for _, found in rows), strict=True)]


def _line(name: str, able: list[tuple[str, list[Outcome]]]) -> str:
    rows = [row for row in able if name in (row[0], "all")]
    cells = (name, str(len(rows)), *(f"{of:.0f} s" for of in _sums(rows)))
    return f"| {' | '.join(cells)} |"
