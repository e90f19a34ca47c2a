"""Warm-up, sampling, flags and warnings, on a clock of our own."""

import gc
import math

import pytest
from scripted import Scripted

from bench_lib.device.telemetry import Reading
from bench_lib.errors import CaseTimeout, CudaGainsError
from bench_lib.model import Flag, Policy, Timing, Work
from bench_lib.timing.measure import Warn, checked, measure
from bench_lib.timing.preemption import Preemptions
from bench_lib.timing.timer import Fake, Host, Sample

POLICY = Policy("test", samples=12, budget_seconds=10.0, warmup_seconds=0.1, max_warmup_seconds=1.0)
NO_WARMUP = Policy("bare", samples=12, budget_seconds=10.0, warmup_seconds=0.0, max_warmup_seconds=0.0)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Stepping:
    """A timer whose k-th sample takes `seconds(k)` on the test's clock."""

    calls = 1

    def __init__(self, clock, seconds, timing=Timing.HOST):
        self.clock, self.seconds, self.timing = clock, seconds, timing
        self.taken = 0
        self.collecting = []

    def prepare(self, fn):
        return 1

    def sample(self, fn):
        fn()
        self.collecting.append(gc.isenabled())
        value = self.seconds(self.taken) if callable(self.seconds) else self.seconds
        self.taken += 1
        self.clock.now += value
        return Sample(value)


def run(timer, clock, policy=POLICY, telemetry=None, **more):
    return measure(lambda: None, timer, policy, telemetry, clock=clock, **more)


def test_a_series_holds_what_the_timer_gave():
    series = measure(lambda: None, Fake([float(k) for k in range(1, 13)]), NO_WARMUP, work=Work(flop=2.0))
    assert series.seconds == tuple(float(k) for k in range(1, 13))
    assert series.flags == ()
    assert series.timing is Timing.FAKE
    assert series.work == Work(flop=2.0)


def test_slow_first_calls_are_warmed_away_and_counted():
    clock = Clock()
    timer = Stepping(clock, lambda k: 0.05 if k < 4 else 0.01)
    series = run(timer, clock)
    assert set(series.seconds) == {0.01}
    assert series.warmup_calls == 1 + timer.taken - len(series.seconds)
    assert series.warmup_calls > 4
    assert Warn.NOT_WARM not in series.warnings


def test_the_warm_up_lasts_its_time_even_when_stable_at_once():
    clock = Clock()
    timer = Stepping(clock, 0.001)
    assert run(timer, clock).warmup_calls >= 100


def test_a_warm_up_that_never_settles_is_bounded_and_says_so():
    clock = Clock()
    timer = Stepping(clock, lambda k: 0.01 * 1.05**k if k < 60 else 0.2)
    series = run(timer, clock)
    assert Warn.NOT_WARM in series.warnings
    assert series.warmup_calls < 60


def test_the_budget_ends_sampling_but_not_below_the_least_number():
    clock = Clock()
    policy = Policy("p", samples=50, budget_seconds=1.0, max_warmup_seconds=0.0)
    assert len(run(Stepping(clock, 0.125), clock, policy).seconds) == 8
    series = run(Stepping(clock, 3.0), clock, policy)
    assert len(series.seconds) == policy.min_samples
    assert Warn.FEW in series.warnings


def test_a_case_over_its_own_budget_times_out():
    clock = Clock()
    with pytest.raises(CaseTimeout, match=r"budget of 4 s with 2 samples"):
        run(Stepping(clock, 2.5), clock, NO_WARMUP, budget_seconds=4.0)
    with pytest.raises(CaseTimeout, match=r"budget of 4 s with 1 samples"):
        run(Stepping(clock, 2.5), clock, NO_WARMUP, budget_seconds=4.0, spent_seconds=2.0)


def test_a_warm_up_over_the_budget_times_out_too():
    clock = Clock()
    with pytest.raises(CaseTimeout, match="with 0 samples"):
        run(Stepping(clock, 0.4), clock, budget_seconds=0.5)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_off_inside_and_as_before_afterwards(enabled):
    clock = Clock()
    timer = Stepping(clock, 0.01)
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        run(timer, clock)
        assert gc.isenabled() is enabled
        with pytest.raises(ValueError, match="boom"):
            measure(fail, timer, POLICY, clock=clock)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
    assert not any(timer.collecting)


def fail():
    raise ValueError("boom")


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_sample_that_is_no_time_fails_by_number(bad):
    with pytest.raises(CudaGainsError, match="sample 2 of 3 is"):
        checked((1.0, bad, 1.0))


def test_an_empty_series_fails():
    with pytest.raises(CudaGainsError, match="no sample"):
        checked(())


def test_readings_come_between_samples_and_seldom():
    clock = Clock()
    telemetry = Scripted(Reading(sm_clock_mhz=1900.0))
    run(Stepping(clock, 0.0625, Timing.BATCH), clock, NO_WARMUP, telemetry)
    assert telemetry.reads == 2 + 3  # before, after, and each 0.25 s of 0.75 s


THROTTLED = Reading(sm_clock_mhz=1900.0, throttle_reasons=("sw-thermal",))
CLEAN = Reading(sm_clock_mhz=1900.0)


def test_a_throttle_reason_flags_the_samples_around_its_reading():
    clock = Clock()
    telemetry = Scripted(CLEAN, CLEAN, THROTTLED, CLEAN)
    series = run(Stepping(clock, 0.25, Timing.BATCH), clock, NO_WARMUP, telemetry)
    flagged = [i for i, flag in enumerate(series.flags) if flag == Flag.THROTTLED]
    assert flagged == [1, 2]
    assert len(series.seconds) == 12


def test_reasons_that_slow_nothing_flag_nothing():
    clock = Clock()
    telemetry = Scripted(Reading(throttle_reasons=("applications-clocks", "sync-boost")))
    assert run(Stepping(clock, 0.25, Timing.BATCH), clock, NO_WARMUP, telemetry).flags == ()


def low_clock_flags(timing, seconds, *readings):
    clock = Clock()
    series = run(Stepping(clock, seconds, timing), clock, NO_WARMUP, Scripted(*readings))
    return [i for i, flag in enumerate(series.flags) if flag == Flag.CLOCK_LOW]


def mhz(value, *reasons):
    return Reading(sm_clock_mhz=value, throttle_reasons=reasons)


def test_a_low_clock_under_load_is_flagged_against_the_maximum():
    assert low_clock_flags(Timing.BATCH, 0.25, mhz(1400.0)) == list(range(12))
    assert low_clock_flags(Timing.BATCH, 0.25, mhz(1600.0)) == []


def test_an_idle_clock_says_nothing():
    assert low_clock_flags(Timing.HOST, 0.25, mhz(345.0)) == []
    assert low_clock_flags(Timing.COLD, 0.0005, mhz(345.0)) == []


def test_a_clock_that_somebody_set_is_no_low_clock():
    assert low_clock_flags(Timing.BATCH, 0.25, mhz(1200.0, "applications-clocks")) == []


def test_a_dip_against_the_rest_of_the_case_is_flagged_before_its_reading():
    flagged = low_clock_flags(Timing.HOST, 0.25, mhz(1900.0), mhz(1900.0), mhz(1000.0), mhz(1900.0))
    assert flagged == [1]


def test_a_device_without_telemetry_flags_nothing():
    clock = Clock()
    assert run(Stepping(clock, 0.25, Timing.BATCH), clock, NO_WARMUP, Scripted(Reading())).flags == ()


def test_the_timers_own_flags_are_kept():
    ticks = iter(range(0, 10**9, 1000))
    switches = iter([0, 0] * 1 + [0, 1] + [1, 1] * 100)
    policy = Policy("p", samples=3, budget_seconds=1.0, max_warmup_seconds=0.0)
    timer = Host(1, clock_ns=lambda: next(ticks), counted=lambda: Preemptions(next(switches)))
    assert measure(lambda: None, timer, policy).flags == ("", "preempted", "")


def test_a_drift_and_a_scatter_are_warned_of():
    clock = Clock()
    policy = Policy("p", samples=30, budget_seconds=1e9, max_warmup_seconds=0.0)
    assert Warn.DRIFTING in run(Stepping(clock, lambda k: 1 + 0.01 * k), clock, policy).warnings
    scattered = run(Stepping(clock, lambda k: 100.0 if k % 3 == 1 else 1.0), clock, policy)
    assert Warn.SCATTERED in scattered.warnings
    steady = run(Stepping(clock, 1.0), clock, policy)
    assert steady.warnings == (Warn.NOT_WARM,)
