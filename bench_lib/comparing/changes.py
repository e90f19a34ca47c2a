"""What a comparison says, as types: two sides of a campaign, case by case, in rows of *case changes*."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bench_lib.model import Scalar


class Change(StrEnum):
    """What a comparison found for one case."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"
    NOT_COMPARABLE = "not comparable"


MOVED = (Change.FASTER, Change.SLOWER)
NO_CANARY = "no canary was measured on both sides"  # how the note begins where none counts
FLAGGED_CANARIES = "canaries were measured, but flagged"


@dataclass(frozen=True)
class Difference:
    """One thing in which the two sides of a comparison differ."""

    axis: str  # stack, driver, machine or settings
    component: str  # cudart, torch, kernel, CUDA_MODULE_LOADING, ...
    baseline: str
    candidate: str


@dataclass(frozen=True)
class CaseChange:
    """One case compared: ratio = candidate seconds / baseline seconds, and what it means."""

    case_id: str
    family: str
    op: str
    params: Mapping[str, Scalar]
    metric: str
    change: Change
    reason: str
    next_step: str = ""
    unit: str = "seconds"  # "seconds", or the quantity's name for a row of quantities
    n: int = 0  # pairs, or the smaller side's runs when unpaired
    margin: float = 0.05
    baseline: float | None = None  # geometric mean over the runs used, in `unit`
    candidate: float | None = None
    ratio: float | None = None
    low: float | None = None  # 95 % interval of the ratio
    high: float | None = None
    q_change: float | None = None
    q_same: float | None = None
    sd: float | None = None  # of the log ratio over pairs; unpaired: of one pair's equivalent
    floor: float = 0.0  # the least sd that its timer can show
    log_ratios: tuple[float, ...] = ()  # one a pair, in run order; empty when unpaired
    pairs: tuple[str, ...] = ()  # what paired each of them: a round, a run, two installations
    lacking: int = 0  # more pairs, or runs a side, that should settle it; 0: it is settled, or none would
    failed: str = ""  # the side on which it failed, where that leaves nothing to compare


@dataclass(frozen=True)
class MachineSpread:
    """A case whose ratio differs between two machines of one GPU model by more than its margin."""

    case_id: str
    low: float  # the mean ratio on the machine that gains more, and the pairs measured there
    low_n: int
    high: float  # the same on the other
    high_n: int


@dataclass(frozen=True)
class Comparison:
    """Two sides compared: what differs, the canaries, then the cases sorted by effect."""

    baseline: str
    candidate: str
    campaign: str
    interleaved: bool
    pairing: str  # "rounds", "runs" (a contrast) or "unpaired"
    differences: tuple[Difference, ...]
    attribution: str  # "cudart 11.8.89 -> 12.4.127", "confounded: ...", "nothing differs", or not known
    canaries: tuple[CaseChange, ...]
    canaries_moved: bool
    cases: tuple[CaseChange, ...]
    quantities: tuple[CaseChange, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()  # (case or file, why)
    notes: tuple[str, ...] = ()
    machines_differ: tuple[MachineSpread, ...] = ()  # whole steps first, then the widest
    next_step: str = ""  # of the whole: what is left to measure, as a command where there is one

    @property
    def without_canary(self) -> str:
        """The note that no canary counts, and why; "" where one does."""
        return next((note for note in self.notes if note.startswith((NO_CANARY, FLAGGED_CANARIES))), "")

    @property
    def compared(self) -> tuple[CaseChange, ...]:
        """The cases that were measured on both sides, in rows as they stand."""
        return tuple(row for row in self.cases if row.change is not Change.NOT_COMPARABLE)

    @property
    def mostly_unclear(self) -> bool:
        """Whether more than half of what was compared is unclear: then nothing is said of the whole yet."""
        return 2 * self.counts()[Change.UNCLEAR] > len(self.compared)

    def counts(self) -> dict[Change, int]:
        """Cases by change; canaries and quantities are not counted."""
        return {change: sum(row.change is change for row in self.cases) for change in Change}
