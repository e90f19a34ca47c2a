"""The live device: whether there is one, and the one that is measured on, with its stream and clock."""

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_uint32, c_uint64
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

from bench_lib.device import kernels
from bench_lib.device.driver import Context, Driver
from bench_lib.device.telemetry import Telemetry
from bench_lib.processes.ended import last_line

DETECT_SECONDS = 30.0
HOLD_LIMIT_NS = 1_000_000_000

_ONE = (1, 1, 1)

# Runs in a process of its own: it must not bring CUDA up in this one, nor take it down.
_DETECT = """
import json
from bench_lib.device.driver import Driver
from bench_lib.errors import CudaGainsError
try:
    driver = Driver.load()
    info = driver.describe()
    major, minor = info.compute_capability
    found = {"available": True, "uuid": info.uuid, "name": info.name,
             "compute_capability": f"{major}.{minor}",
             "driver_version": "%d.%d" % driver.version}
except CudaGainsError as error:
    found = {"available": False, "reason": str(error)}
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Detected:
    """What a look at the machine found; `reason` says in a sentence why there is no GPU."""

    available: bool
    reason: str = ""
    uuid: str = ""
    name: str = ""
    compute_capability: str = ""  # such as 9.0
    driver_version: str = ""  # the newest CUDA the driver knows, such as 13.0


def detect(timeout_seconds: float = DETECT_SECONDS) -> Detected:
    """Look for a GPU in a child process, so that CUDA stays untouched in this one. Never raises."""
    command = [sys.executable, "-c", _DETECT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Detected(False, f"the driver did not answer within {timeout_seconds:g} s")
    except ValueError:
        last = last_line(done.stderr)
        return Detected(False, f"the check for a GPU ended with {done.returncode}: {last}")
    return Detected(**found)


@dataclass
class Mark:
    """An event on the stream. It serves one start/stop pair and is used up by `Gpu.elapsed`."""

    event: int


class Hold:
    """A stream that was held."""

    def __init__(self, flag: "ctypes.Array[c_uint32]", turn: int) -> None:
        self._flag = flag
        self._turn = turn

    @property
    def timed_out(self) -> bool:
        """Whether the stream went on before it was released; known once it was synchronised."""
        return bool(self._flag[1] == self._turn)


class Gpu:
    """One device with the stream that everything is measured on."""

    def __init__(self, context: Context, telemetry: Telemetry) -> None:
        self.context = context
        self.telemetry = telemetry
        self.stream = context.stream()
        self._hold_kernel = context.function(context.load(kernels.cubin(context).data), "hold")
        host, self._flag_address = context.host_alloc(8)
        self._flag = (c_uint32 * 2).from_address(host)  # released turn, timed-out turn
        self._flag[:] = [0, 0]
        self._turn = 0
        self._flush_words = max(2 * context.l2_nbytes, 1 << 20) // 4
        self._flush_buffer = context.alloc(4 * self._flush_words)
        self._flushes = 0
        self._spare_events: list[int] = []
        self._warm_up()

    @classmethod
    def open(cls, wait: str = "spin", telemetry: bool = True, device: int = 0) -> Self:
        """Bring the device up; the context waits as `wait` says (see Driver.open).

        What is used while measuring has run once when this returns, so that nothing is loaded
        lazily under a hold. Raises Unavailable without a driver, CudaError when it fails.
        """
        context = Driver.load().open(device, wait)
        return cls(context, Telemetry.open(context.uuid) if telemetry else Telemetry())

    def _warm_up(self) -> None:
        self.flush()
        self._empty_pair()

    def close(self) -> None:
        """Give the context back."""
        self.context.close()

    def synchronize(self) -> None:
        """Wait until the stream is empty."""
        self.context.synchronize(self.stream)

    def record(self) -> Mark:
        """Put an event on the stream."""
        event = self._spare_events.pop() if self._spare_events else self.context.event()
        self.context.record(event, self.stream)
        return Mark(event)

    def elapsed(self, start: Mark, end: Mark) -> float:
        """Seconds between two marks that both have passed; uses both up."""
        seconds = self.context.elapsed(start.event, end.event)
        self._spare_events += [start.event, end.event]
        start.event = end.event = 0  # a second use is an error, never another pair's time
        return seconds

    def flush(self) -> None:
        """Queue a write of at least twice the L2, so that the next kernel finds nothing of its own."""
        self._flushes += 1
        self.context.set_async(self._flush_buffer, self._flushes, self._flush_words, self.stream)

    @contextmanager
    def hold(self) -> Iterator[Hold]:
        """Park the stream until the block is left, or for a second at most.

        What is queued inside then runs without waiting for the host. Nothing inside may wait for
        the device, and what is queued must have run before: loading code waits for it.
        """
        self._turn += 1
        arguments = [c_uint64(self._flag_address), c_uint32(self._turn), c_uint64(HOLD_LIMIT_NS)]
        self.context.launch(self._hold_kernel, _ONE, _ONE, arguments, self.stream)
        try:
            yield Hold(self._flag, self._turn)
        finally:
            self._flag[0] = self._turn

    def event_overhead(self) -> float:
        """Seconds that two events with nothing between them are apart: the median of 101 pairs."""
        return median(self._empty_pair() for _ in range(101))

    def _empty_pair(self) -> float:
        with self.hold():
            start, end = self.record(), self.record()
        self.synchronize()
        return self.elapsed(start, end)
