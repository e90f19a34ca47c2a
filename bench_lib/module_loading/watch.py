"""What one step took of time and of the device's memory, seen from outside CUDA."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench_lib.device.telemetry import Telemetry


@dataclass
class Step:
    """Seconds of a step, and the bytes of device memory that it took; None where NVML does not say."""

    seconds: float = 0.0
    nbytes: int | None = 0


@dataclass
class Watch:
    """Steps by name. A step may have several parts, with things between them that do not count."""

    telemetry: Telemetry
    steps: dict[str, Step] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part of the step of that name; NVML is asked outside of what is timed."""
        step = self.steps.setdefault(name, Step())
        before = self.telemetry.free_nbytes()
        begin = time.perf_counter()
        yield
        step.seconds += time.perf_counter() - begin
        after = self.telemetry.free_nbytes()
        if step.nbytes is not None:
            known = before is not None and after is not None
            step.nbytes = step.nbytes + before - after if known else None  # type: ignore[operator]
