"""The case that is being measured: what is known of it, and how it has ended so far."""

import dataclasses
import time
from dataclasses import dataclass, field

from bench_lib.device.telemetry import involuntary_switches, steal_seconds
from bench_lib.model import Measurement, Status
from bench_lib.running.bench import Bench


@dataclass
class InFlight:
    """The case that is being measured, and how it has ended so far."""

    measurement: Measurement  # what is known of it from the start
    budget_seconds: float
    bench: Bench | None = None
    status: Status = Status.OK
    reason: str = ""
    begin: float = field(default_factory=time.perf_counter)
    steal: float = field(default_factory=steal_seconds)
    switches: int = field(default_factory=involuntary_switches)

    def end(self, status: Status, reason: str) -> None:
        """Note how it ended; the first bad end counts."""
        if self.status is Status.OK:
            self.status, self.reason = status, reason

    def finished(self) -> Measurement:
        """The measurement as it ended."""
        wall_seconds = time.perf_counter() - self.begin
        if self.bench is None:
            known = self.measurement
        else:
            series = self.bench.finished() if self.bench.series is not None else None
            if series is not None:
                series = dataclasses.replace(series, facts={**series.facts, **self._host_facts()})
            known = dataclasses.replace(
                self.measurement,
                case=self.bench.case,
                series=series,
                clocks=self.bench.clocks,
                world_size=self.bench.world_size,
            )
        return dataclasses.replace(known, status=self.status, reason=self.reason, wall_seconds=wall_seconds)

    def _host_facts(self) -> dict[str, str]:
        """What the host lost during the case; nothing is said where nothing was lost."""
        lost = {
            "steal_seconds": round(steal_seconds() - self.steal, 3),
            "involuntary_switches": involuntary_switches() - self.switches,
        }
        return {name: f"{value:g}" for name, value in lost.items() if value}
