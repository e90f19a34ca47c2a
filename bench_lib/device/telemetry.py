"""What the machine says around a measurement: NVML's clocks and throttle reasons, the host's counters.

NVML is matched by UUID, because its order of devices is not CUDA's. Everything in it is optional:
without NVML, or where a MIG slice does not answer, a value is None and measuring goes on.
"""

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from bench_lib.model import Clocks

# nvml.h, nvmlClocksEventReasons. "gpu idle" (bit 0) is left out: it slows nothing that runs.
_REASONS = {
    0x002: "applications-clocks",
    0x004: "sw-power-cap",
    0x008: "hw-slowdown",
    0x010: "sync-boost",
    0x020: "sw-thermal",
    0x040: "hw-thermal",
    0x080: "hw-power-brake",
    0x100: "display-clocks",
}
THROTTLING = frozenset({"sw-power-cap", "hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake"})
CLOCKS_SET = "applications-clocks"  # somebody chose a lower clock: no fault of the machine
_COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")


@dataclass(frozen=True)
class Reading:
    """One look at the device; None where NVML said nothing."""

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()

    @property
    def throttled(self) -> bool:
        """Whether the device says that it holds its clock down for power or heat."""
        return not THROTTLING.isdisjoint(self.throttle_reasons)


class Reader(Protocol):
    """What gives readings: a Telemetry, or a ClockLog around one."""

    @property
    def max_sm_clock_mhz(self) -> float | None:
        """The highest SM clock of the device, None where unknown."""
        ...

    def read(self) -> Reading:
        """Look at the device now."""
        ...


class Telemetry:
    """NVML's view of one device. Never raises; an absent NVML makes every answer None."""

    def __init__(self, nvml: Any = None, handle: Any = None) -> None:
        self._nvml = nvml
        self._handle = handle
        self.max_sm_clock_mhz: float | None = self._number("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM")

    @classmethod
    def open(cls, uuid: str, nvml: Any = None) -> "Telemetry":
        """The device with that UUID ("GPU-..." or "MIG-..."), or a Telemetry that knows nothing."""
        found = nvml if nvml is not None else load_nvml()
        if found is None:
            return cls()
        try:
            found.nvmlInit()
            handle = found.nvmlDeviceGetHandleByUUID(uuid)
            if uuid.startswith("MIG-"):  # a slice has no clocks of its own: ask the whole device
                handle = found.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        except (found.NVMLError, AttributeError, OSError):
            return cls()
        return cls(found, handle)

    @property
    def known(self) -> bool:
        """Whether NVML found the device."""
        return self._handle is not None

    def read(self) -> Reading:
        """Look at the device now: some tens of microseconds, so never inside a sample."""
        if not self.known:
            return Reading()
        power_mw = self._number("nvmlDeviceGetPowerUsage")
        return Reading(
            sm_clock_mhz=self._number("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
            temperature_c=self._number("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
            power_w=None if power_mw is None else power_mw / 1000,
            throttle_reasons=self._reasons(),
        )

    def describe(self) -> dict[str, str]:
        """What is set on the device, for the identity of the run; unknown keys are left out."""
        compute_mode = self._ask("nvmlDeviceGetComputeMode")
        limit_mw = self._ask("nvmlDeviceGetPowerManagementLimit")
        found = {
            "gpu.power_limit_w": None if limit_mw is None else f"{limit_mw / 1000:g}",
            "gpu.persistence": _on_off(self._ask("nvmlDeviceGetPersistenceMode")),
            "gpu.ecc": _on_off(_current(self._ask("nvmlDeviceGetEccMode"))),
            "gpu.mig_mode": _on_off(_current(self._ask("nvmlDeviceGetMigMode"))),
            "gpu.compute_mode": None if compute_mode is None else _compute_mode(compute_mode),
            "gpu.max_sm_clock_mhz": _text(self.max_sm_clock_mhz),
            "gpu.max_memory_clock_mhz": _text(self._number("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_MEM")),
            "gpu.vbios": _text(self._ask("nvmlDeviceGetVbiosVersion")),
        }
        return {key: value for key, value in found.items() if value is not None}

    def free_nbytes(self) -> int | None:
        """Bytes of the device's memory that nobody has taken, None where unknown. Needs no context."""
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.free)

    def other_processes(self) -> int | None:
        """How many other processes compute on the device now, None where unknown."""
        running = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return None if running is None else sum(process.pid != os.getpid() for process in running)

    def close(self) -> None:
        """Let NVML go."""
        if self.known:
            self._handle = None
            self._nvml.nvmlShutdown()

    def _reasons(self) -> tuple[str, ...]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # the name before driver 535
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return tuple(name for bit, name in _REASONS.items() if int(bits or 0) & bit)

    def _number(self, function: str, constant: str = "") -> float | None:
        value = self._ask(function, constant)
        return None if value is None else float(value)

    def _ask(self, function: str, constant: str = "") -> Any:
        """What one NVML getter says of the device; None when it cannot say."""
        if not self.known:
            return None
        try:
            arguments = (getattr(self._nvml, constant),) if constant else ()
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None


def load_nvml() -> ModuleType | None:
    """NVML's bindings; None without them, or where an older package of that name stands in their place."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml if hasattr(pynvml, "NVMLError") else None


def _current(pair: Any) -> Any:
    return pair[0] if isinstance(pair, list | tuple) else pair  # [current, after a reboot]


def _on_off(value: Any) -> str | None:
    return None if value is None else ("on" if value else "off")


def _compute_mode(value: int) -> str:
    return _COMPUTE_MODES[value] if value < len(_COMPUTE_MODES) else str(value)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)


class ClockLog:
    """Readings of one case, kept: what stands in its row about clocks, heat and power."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._readings: list[Reading] = []

    @property
    def max_sm_clock_mhz(self) -> float | None:
        """The highest SM clock of the device, None where unknown."""
        return self._telemetry.max_sm_clock_mhz

    def read(self) -> Reading:
        """Look at the device now, and keep what it said."""
        self._readings.append(self._telemetry.read())
        return self._readings[-1]

    def clocks(self) -> Clocks:
        """The first and the last reading, and every reason seen in between."""
        if not self._readings:
            return Clocks()
        first, last = self._readings[0], self._readings[-1]
        seen = {reason for reading in self._readings for reason in reading.throttle_reasons}
        return Clocks(
            sm_clock_mhz_start=first.sm_clock_mhz,
            sm_clock_mhz_end=last.sm_clock_mhz,
            memory_clock_mhz=last.memory_clock_mhz,
            temperature_c_start=first.temperature_c,
            temperature_c_end=last.temperature_c,
            power_w=max((r.power_w for r in self._readings if r.power_w is not None), default=None),
            throttle_reasons="+".join(sorted(seen)),
        )


def involuntary_switches() -> int:
    """How often this thread has lost its core to another one so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def steal_seconds(read: Callable[[], str] = Path("/proc/stat").read_text) -> float:
    """CPU seconds that the hypervisor gave to others so far, over all CPUs; 0.0 where unknown."""
    try:
        fields = read().split("\n", 1)[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")  # proc(5): cpu user ... softirq steal
    except (OSError, IndexError, ValueError):
        return 0.0


def clock_source() -> str:
    """The kernel's clock source (tsc, kvm-clock, ...), "" where unknown."""
    try:
        folder = Path("/sys/devices/system/clocksource/clocksource0")
        return (folder / "current_clocksource").read_text().strip()
    except OSError:
        return ""


def host_clock_resolution() -> float:
    """The smallest step that Python's clock was seen to make, in seconds."""
    stamps = [time.perf_counter_ns() for _ in range(1000)]
    return min(b - a for a, b in pairwise(stamps) if b > a) / 1e9
