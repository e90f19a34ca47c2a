"""Times of several ranks: that of an iteration is the slowest rank's. The ranks stay in step.

`Sampled` is a timer for `bench_lib.timing.measure.measure`: how many samples are taken is decided here, once
for all ranks, so that no rank waits in a collective for one that has stopped.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bench_lib.model import Flag, Timing
from bench_lib.ranks.group import Ranks
from bench_lib.timing.timer import Fn, Sample


@dataclass(frozen=True)
class Prepare:
    """Asks each rank to run what it will time once, untimed; the answer is the number of calls."""


@dataclass(frozen=True)
class Take:
    """Asks each rank for one `Sample` of what it was last told to time."""


def slowest(samples: Iterable[Sample]) -> Sample:
    """One iteration over all ranks: the longest time, and the doubts of any rank."""
    taken = list(samples)
    flags = dict.fromkeys(flag for sample in taken for flag in sample.flags)
    return Sample(max(sample.seconds for sample in taken), tuple(flags))


class Sampled:
    """A timer whose sample is taken by all ranks at once; `seconds` is what one may take."""

    def __init__(self, ranks: Ranks, timing: Timing, calls: int, seconds: float) -> None:
        self.timing, self.calls = timing, calls
        self._ranks, self._seconds = ranks, seconds

    def prepare(self, fn: Fn) -> int:
        """Ask for `Prepare`."""
        return int(self._ranks.ask(Prepare(), self._seconds)[0])

    def sample(self, fn: Fn) -> Sample:
        """Ask for `Take`; the slowest rank's."""
        answers = self._ranks.ask(Take(), self._seconds)
        return slowest(Sample(seconds, tuple(map(Flag, flags))) for seconds, flags in answers)
