"""What was measured, as types: read this page first.

A *case* (family, op and parameters, the metric among them) is measured in a *run* (one process of
one stack) under a *policy*, and gives a *measurement*. Runs sit in *rounds*, rounds in a
*campaign*. What a comparison of them says has its types in bench_lib.comparing.changes.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bench_lib.units import count_text

# Raised whenever a change of the code could move a number; cases of different versions are
# never compared. The history of the reasons stands in CHANGELOG.md, "measurement changes".
MEASURE_VERSION = 1

CANARY = "canary"  # the family that no software upgrade should move
FEWEST = 3  # pairs, or runs a side, below which no verdict is given
NULL_SUFFIX = "#2"  # of the baseline's second arm in a round, or second copy in a contrast

Scalar = str | int | float | bool


def is_scalar(value: object) -> bool:
    """Whether a value can be that of a parameter: text, a boolean or a finite number."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


class Status(StrEnum):
    """How a case ended. Only `ok` has samples that are compared."""

    OK = "ok"
    FAILED = "failed"
    WRONG_RESULT = "wrong-result"
    OUT_OF_MEMORY = "out-of-memory"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    HUNG = "hung"
    SKIPPED = "skipped"
    NOT_APPLICABLE = "not-applicable"


MOST_FLAGGED = 0.10  # of the samples of a case in one run
_INSTALL = "pip install"  # in a reason: what is missing can be installed


def why_nothing(ends: Mapping[tuple[str, str], int]) -> str:
    """The commonest reason of cases of which none is `ok`; "" where one is, or where there are none.

    What a package would mend goes before all others: a missing GPU hides it from most cases.

    `ends`: how many cases ended with a status and a reason.
    """
    if not ends or any(status == Status.OK for status, _ in ends):
        return ""
    status, reason = max(ends, key=lambda end: (_INSTALL in end[1], ends[end]))
    return reason or str(status)


def nothing_measured(ends: Mapping[tuple[str, str], int]) -> str:
    """The sentence on cases of which none is `ok`, with the reason of `why_nothing`; "" where one is."""
    if not (reason := why_nothing(ends)):
        return ""
    reasons = Counter[str]()
    for (status, why), n in ends.items():
        reasons[why or str(status)] += n
    rarer = all(n < reasons[reason] for why, n in reasons.items() if why != reason)
    lead = "" if len(reasons) == 1 else ", most often" if rarer else ", among them"
    return f"nothing was measured: {count_text(reasons.total(), 'case')}, 0 measured{lead}: {reason}"


def too_many_flagged(n_flagged: int, n_samples: int) -> bool:
    """Whether so many flagged samples keep a case of a run out of every comparison."""
    return n_flagged > MOST_FLAGGED * n_samples


# A run that holds one of these did not do what it was asked to do; the exit code says so.
BAD = frozenset(
    {
        Status.FAILED,
        Status.WRONG_RESULT,
        Status.OUT_OF_MEMORY,
        Status.TIMEOUT,
        Status.CRASHED,
        Status.HUNG,
    }
)


class Timing(StrEnum):
    """How one sample is taken (see bench_lib.timing.timer)."""

    COLD = "cold"
    BATCH = "batch"
    GRAPH = "graph"
    HOST = "host"
    NATIVE = "native"
    FAKE = "fake"
    NVBENCH_COLD = "nvbench cold samples"  # these two by nvbench, for the family cross_check
    NVBENCH_BATCH = "nvbench batch mean"


class Flag(StrEnum):
    """A stated doubt about one sample. A flagged sample is kept, never dropped."""

    THROTTLED = "throttled"  # NVML reported an active throttle reason around it
    CLOCK_LOW = "clock-low"  # SM clock under 75 % of what the device can do under load
    HOLD_TIMED_OUT = "hold-timed-out"  # the stream was not held until all work was queued
    PREEMPTED = "preempted"  # the host thread lost its core inside a host-timed sample


# A warning of a case: what it measured is the CPU as well.
HOST_BOUND = "the host queued the work no faster than the device did it: a faster CPU would show less time"


def join_flags(flags: "list[Flag] | tuple[Flag, ...]") -> str:
    """The stored form of a sample's flags: names joined by "+", empty when there are none."""
    return "+".join(flags)


@dataclass(frozen=True)
class Work:
    """What one call of a case is counted as doing. Rates are derived when read, never stored."""

    flop: float | None = None
    nbytes: float | None = None


@dataclass(frozen=True)
class Case:
    """One question: family, op and parameters (the metric among them); the unit compared."""

    family: str
    op: str
    params: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The metric, `time` where the parameters name none."""
        return str(self.params.get("metric", "time"))

    @property
    def params_json(self) -> str:
        """The parameters as canonical JSON: keys sorted, no spaces."""
        return json.dumps(dict(sorted(self.params.items())), separators=(",", ":"))

    @property
    def case_id(self) -> str:
        """`family/op[key=value,...]` with keys sorted: stable over runs and machines."""
        if not self.params:
            return f"{self.family}/{self.op}"
        inner = ",".join(f"{key}={scalar_text(value)}" for key, value in sorted(self.params.items()))
        return f"{self.family}/{self.op}[{inner}]"


def scalar_text(value: object) -> str:
    """A parameter's value as a case's name has it: true and false as in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Policy:
    """How often and how long a case is measured. Runs of different policies are never pooled."""

    name: str
    samples: int
    budget_seconds: float  # sampling stops here once `min_samples` are there
    min_samples: int = 5
    warmup_seconds: float = 0.05  # at least; on until stable
    max_warmup_seconds: float = 1.0


DEFAULT_POLICY = Policy("default", samples=50, budget_seconds=10.0)
QUICK_POLICY = Policy("quick", samples=15, budget_seconds=3.0, warmup_seconds=0.02, max_warmup_seconds=0.3)


@dataclass(frozen=True)
class Series:
    """Samples of one metric in seconds per call, with the flags of each; what a timer gave.

    `turns` names the set of turns the samples were taken in: in two series of one run with the
    same non-empty `turns`, sample i of both belongs to one turn. A scalar is a series of one.
    """

    seconds: tuple[float, ...]
    flags: tuple[str, ...] = ()  # joined flags, one string a sample; empty: none flagged
    timing: Timing = Timing.HOST
    calls: int = 1  # calls in one sample, a constant of the case
    turns: str = ""
    work: Work = Work()
    warmup_calls: int = 0
    warnings: tuple[str, ...] = ()
    quantities: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Clocks:
    """What NVML said around a case; None where it said nothing."""

    sm_clock_mhz_start: float | None = None
    sm_clock_mhz_end: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c_start: float | None = None
    temperature_c_end: float | None = None
    power_w: float | None = None
    throttle_reasons: str = ""


@dataclass(frozen=True)
class Measurement:
    """One finished case of one run: its end, its samples and what was seen around them."""

    case: Case
    status: Status
    reason: str = ""
    series: Series | None = None  # None unless status is ok
    margin: float = 0.05
    position: int = 0  # place in the order of the run
    nodeid: str = ""
    started_at: float = 0.0  # seconds since the epoch
    wall_seconds: float = 0.0
    world_size: int = 1
    clocks: Clocks = Clocks()


@dataclass(frozen=True)
class RunInfo:
    """One run: which stack, where in the campaign, and how it was asked for."""

    run_id: str
    campaign: str
    stack: str
    arm: str  # the stack's place in a round; the baseline's second run is NAME#2
    round: str = ""  # random id of the round; "" for a plain run
    position: int = 0  # place of the arm in its round
    device: str = "cpu"  # cuda or cpu
    policy: str = DEFAULT_POLICY.name
    seed: int = 0  # of the case order; 0: the order of the files
    command: str = ""
    started_at: float = 0.0


@dataclass(frozen=True)
class Identity:
    """What a run ran on, as loaded and read back. Keys are dotted: `cudart.version`."""

    stack: Mapping[str, str] = field(default_factory=dict)
    driver: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    quantities: Mapping[str, float] = field(default_factory=dict)  # loop_overhead_seconds, ...
