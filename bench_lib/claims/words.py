"""The words of claims as frozen types: what was claimed, what was found of it, and the verdict.

A *claim* selects cases and names two sides. Each pair of sides that the results hold gives a *finding*
(one a campaign, pair and group); all findings of a claim together are a `Judged`. Shares are parts of
one: 0.30 is 30 %.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What form a claim has, and so by which rule it is judged (docs/claims.md)."""

    UP_TO = "up to"
    AT_LEAST = "at least"
    ABOUT = "about"
    RANGE = "range"
    EXISTS = "exists"
    FACT = "fact"


class Effect(StrEnum):
    """What the claimed number is a share of; `ratio` is candidate / baseline."""

    LESS = "less"  # 1 - ratio: time saved, or a quantity lowered
    MORE = "more"  # ratio - 1: time added, or a quantity raised
    SPEED = "speed-up"  # 1 / ratio - 1: 0.35 is 1.35 times as fast
    VALUE = "value"  # no comparison: the number itself, in its own unit


class Verdict(StrEnum):
    """What the results say of a claim."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    MIXED = "mixed"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured"


AT_MOST = "at most"  # of a file: `up to` so much of a cost
OPEN = "open"  # what the public record says where it says nothing
SETTLED = (Verdict.SUPPORTED, Verdict.REFUTED, Verdict.MIXED)


def is_time(unit: str) -> bool:
    """Whether a unit is a time in seconds: `seconds`, `compile_seconds`."""
    return unit == "seconds" or unit.endswith("_seconds")


@dataclass(frozen=True)
class Scope:
    """Cases by globs: family and op, and parameters (the metric among them) that all must match."""

    family: str
    op: str = "*"
    params: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Contrast:
    """A parameter at two values, both measured in every run."""

    parameter: str
    baseline: str
    candidate: str


@dataclass(frozen=True)
class Check:
    """How a fact is looked up: the name of a check of `bench_lib.claims.checks`, and what it is given."""

    name: str
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """One published sentence with its selection, its sides and its bound."""

    id: str
    text: str  # the sentence in plain words
    source: str  # the title of where it stands
    figure: str  # the number or words as published
    kind: Kind
    effect: Effect = Effect.LESS
    low: float | None = None  # the bound; `about`: both, `up to`: high only, `at least`: low only
    high: float | None = None
    tolerance: float = 0.0  # a share; of a `value` a share of that value
    unit: str = "seconds"  # or the name of a quantity that the cases hold
    cost: bool = False  # the number is a cost: more of it is worse than claimed, not better
    cases: tuple[Scope, ...] = ()
    baseline: Mapping[str, str] = field(default_factory=dict)  # component -> version the stack holds
    candidate: Mapping[str, str] = field(default_factory=dict)
    contrasts: tuple[Contrast, ...] = ()
    inside: Mapping[str, str] = field(default_factory=dict)  # of contrasts and values: which stacks
    groups: tuple[str, ...] = ()  # parameters (or "op", "family") by which cases are judged apart
    needs: str = "1 GPU"
    lives_in: str = ""  # where the effect would be decided, if not in the toolkit: "driver"
    note: str = ""
    checks: tuple[Check, ...] = ()  # of a fact
    record: str = ""  # what the public record says, in words
    record_says: str = OPEN  # supported, refuted, mixed or open

    @property
    def ranks(self) -> int:
        """How many ranks its cases must have been measured with at least."""
        number = self.needs.partition(" ")[0]
        return int(number) if number.isdigit() else 1

    @property
    def on_gpu(self) -> bool:
        """Whether only cases that were measured on a GPU count."""
        return self.needs != "no GPU"

    def off(self, number: float) -> float:
        """How far off a number of the claim still counts, in the number's own unit."""
        return self.tolerance * abs(number) if self.effect is Effect.VALUE else self.tolerance

    @property
    def families(self) -> tuple[str, ...]:
        """The families its cases are of."""
        return tuple(dict.fromkeys(scope.family for scope in self.cases))


@dataclass(frozen=True)
class Finding:
    """One pair of sides judged: `value` with its 95 % interval, as shares like the claim's bound."""

    verdict: Verdict
    reason: str
    and_more: bool = False  # more than was claimed
    value: float | None = None
    low: float | None = None
    high: float | None = None
    shown: str = ""  # value and interval as text: "0.4 % less time [-0.8, 0.5]"
    of: str = ""  # what the value is of: a mean over cases, or one case
    n: int = 0  # pairs, or runs of a value
    n_cases: int = 0
    left_out: int = 0  # selected cases that have too few pairs
    cases: tuple[str, ...] = ()
    details: tuple[str, ...] = ()  # median, share of cases with a change, the winner's second estimate
    next_step: str = ""
    lacking: int = 0  # more pairs that should settle it; 0: it is settled, or none would
    campaign: str = ""
    baseline: str = ""
    candidate: str = ""
    group: str = ""
    stacks: str = ""  # what the sides held, or what differs between them
    confounders: tuple[str, ...] = ()
    gpu: str = ""
    driver: str = ""
    on_cpu: bool = False  # measured, and on no GPU
    driver_kept: bool = False  # the effect would live in the driver, and one served both sides

    @property
    def where(self) -> str:
        """The sentence that no verdict goes without."""
        if self.on_cpu:
            return "on the CPU"
        if not self.gpu:
            return "where it was looked up"
        return f"on this GPU ({self.gpu}), with this driver ({self.driver or 'unknown'})"


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict over all findings, why, and what it would take to say more."""

    claim: Claim
    verdict: Verdict
    reason: str
    and_more: bool = False
    takes: str = ""  # of `not measured` and `inconclusive`: hardware, stacks, rounds, command
    findings: tuple[Finding, ...] = ()

    @property
    def driver_kept(self) -> bool:
        """Whether the effect would live in the driver, and none of the findings exchanged it."""
        return bool(self.findings) and all(one.driver_kept for one in self.findings)
