"""NVML is optional in every part; the host's counters are real."""
# ruff: noqa: N802 - the names are NVML's

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from bench_lib.device.telemetry import (
    ClockLog,
    Telemetry,
    clock_source,
    involuntary_switches,
    steal_seconds,
)
from bench_lib.model import Clocks
from bench_lib.timing.preemption import preemptions

UUID = "GPU-00000000-1111-2222-3333-444444444444"


class NvmlError(Exception):
    pass


class MadeUpNvml:
    """The functions of pynvml that we use; `lacks` names those that fail on this device."""

    NVMLError = NvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, lacks=(), reasons=0):
        self.lacks, self.reasons, self.shut = set(lacks), reasons, 0

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "lacks"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def nvmlInit(self):
        pass

    def nvmlShutdown(self):
        self.shut += 1

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != UUID and not uuid.startswith("MIG-"):
            raise NvmlError("not found")
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        return UUID

    def nvmlDeviceGetClockInfo(self, handle, kind):
        assert handle == UUID
        return {1: 1755, 2: 2619}[kind]

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetTemperature(self, handle, kind):
        return 41

    def nvmlDeviceGetPowerUsage(self, handle):
        return 123456

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetComputeMode(self, handle):
        return 3

    def nvmlDeviceGetPowerManagementLimit(self, handle):
        return 700000

    def nvmlDeviceGetPersistenceMode(self, handle):
        return 1

    def nvmlDeviceGetEccMode(self, handle):
        return [1, 0]

    def nvmlDeviceGetMigMode(self, handle):
        raise NvmlError("not supported")

    def nvmlDeviceGetVbiosVersion(self, handle):
        return "96.00.9F.00.01"

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)]


def test_a_reading_in_plain_units():
    reading = Telemetry.open(UUID, MadeUpNvml(reasons=0x4 | 0x40)).read()
    assert reading.sm_clock_mhz == 1755.0
    assert reading.memory_clock_mhz == 2619.0
    assert reading.temperature_c == 41.0
    assert reading.power_w == pytest.approx(123.456)
    assert reading.throttle_reasons == ("sw-power-cap", "hw-thermal")
    assert reading.throttled


@pytest.mark.parametrize(("bits", "throttled"), [(0x1, False), (0x2, False), (0x8, True), (0x80, True)])
def test_which_reasons_are_throttling(bits, throttled):
    assert Telemetry.open(UUID, MadeUpNvml(reasons=bits)).read().throttled is throttled


def test_the_old_name_of_the_reasons_is_asked_too():
    nvml = MadeUpNvml(lacks={"nvmlDeviceGetCurrentClocksEventReasons"}, reasons=0x20)
    assert Telemetry.open(UUID, nvml).read().throttle_reasons == ("sw-thermal",)


def test_what_a_device_does_not_tell_is_none():
    reading = Telemetry.open(UUID, MadeUpNvml(lacks={"nvmlDeviceGetPowerUsage"})).read()
    assert reading.power_w is None
    assert reading.sm_clock_mhz == 1755.0


def test_another_uuid_or_no_nvml_is_not_an_error():
    for telemetry in (Telemetry.open("GPU-other", MadeUpNvml()), Telemetry()):
        assert not telemetry.known
        assert telemetry.read().sm_clock_mhz is None
        assert telemetry.describe() == {}
        assert telemetry.other_processes() is None
        telemetry.close()


def test_this_machine_without_nvml_is_not_an_error():
    telemetry = Telemetry.open("GPU-ffffffff-ffff-ffff-ffff-ffffffffffff")
    assert not telemetry.known


def test_a_slice_is_asked_through_its_device():
    assert Telemetry.open("MIG-1", MadeUpNvml()).read().sm_clock_mhz == 1755.0


def test_description_leaves_out_what_is_unknown():
    telemetry = Telemetry.open(UUID, MadeUpNvml())
    described = telemetry.describe()
    assert described["gpu.power_limit_w"] == "700"
    assert described["gpu.persistence"] == "on"
    assert described["gpu.ecc"] == "on"
    assert described["gpu.compute_mode"] == "exclusive-process"
    assert described["gpu.max_sm_clock_mhz"] == "1980"
    assert "gpu.mig_mode" not in described
    assert telemetry.other_processes() == 1


def test_closing_lets_nvml_go_once():
    nvml = MadeUpNvml()
    telemetry = Telemetry.open(UUID, nvml)
    telemetry.close()
    telemetry.close()
    assert nvml.shut == 1


def test_the_clock_log_keeps_first_last_and_every_reason():
    nvml = MadeUpNvml()
    log = ClockLog(Telemetry.open(UUID, nvml))
    assert log.clocks() == Clocks()
    for reasons in (0, 0x4, 0):
        nvml.reasons = reasons
        log.read()
    clocks = log.clocks()
    assert clocks.throttle_reasons == "sw-power-cap"
    assert clocks.sm_clock_mhz_start == clocks.sm_clock_mhz_end == 1755.0
    assert clocks.power_w == pytest.approx(123.456)
    assert log.max_sm_clock_mhz == 1980.0


def test_a_thread_that_shares_its_core_is_switched_out():
    cores = os.sched_getaffinity(0)
    one = {min(cores)}
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as rival:
        try:
            os.sched_setaffinity(rival.pid, one)
            os.sched_setaffinity(0, one)
            before, end = involuntary_switches(), time.monotonic() + 10.0
            while involuntary_switches() == before and time.monotonic() < end:
                pass
            assert involuntary_switches() > before
            waited = preemptions().waited_seconds
            assert waited is None or waited > 0
        finally:
            os.sched_setaffinity(0, cores)
            rival.kill()


def test_steal_time_of_a_stat_line():
    line = "cpu  10 20 30 40 50 60 70 800 0 0\ncpu0 1 2 3\n"
    assert steal_seconds(lambda: line) == pytest.approx(800 / os.sysconf("SC_CLK_TCK"))
    assert steal_seconds(lambda: "cpu 1 2") == 0.0
    assert steal_seconds() >= 0.0


def test_clock_source_is_a_word_or_empty():
    assert " " not in clock_source()
