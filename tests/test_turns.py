"""Turns on a pretended asynchronous device: the known times come out, in any order, part by part."""

import math
import statistics
import time

import pytest
from scripted import Scripted

from bench_lib.device.telemetry import Reading
from bench_lib.model import HOST_BOUND, Policy, Timing
from bench_lib.timing.turns import HostClock, block, in_turns

POLICY = Policy("test", samples=12, budget_seconds=60.0, min_samples=5, max_warmup_seconds=0.0)


class Stream:
    """A stream whose work takes device time only; marks see it, the host does not wait."""

    def __init__(self):
        self.now = 0.0
        self.log = []
        self.used = set()

    def work(self, name, seconds):
        def run():
            self.log.append(name)
            self.now += seconds() if callable(seconds) else seconds

        return run

    def synchronize(self):
        self.log.append("synchronize")

    def record(self):
        return [self.now]

    def elapsed(self, start, end):
        for mark in (start, end):
            assert id(mark) not in self.used, "a mark serves one pair"
            self.used.add(id(mark))
        self.keep = getattr(self, "keep", [])
        self.keep += [start, end]  # so that an id is never given twice
        return end[0] - start[0]


def training(stream, forward=1.0, backward=2.0, optimizer=0.5):
    seconds = {"forward": forward, "backward": backward, "optimizer": optimizer}
    return {part: stream.work(part, time) for part, time in seconds.items()}


def test_a_block_gives_the_step_and_its_parts():
    stream = Stream()
    assert block(training(stream), stream, steps=4).seconds == {
        "step": 3.5,
        "forward": 1.0,
        "backward": 2.0,
        "optimizer": 0.5,
    }
    assert stream.log == ["synchronize", *["forward", "backward", "optimizer"] * 4, "synchronize"]


def test_a_step_of_one_part_is_the_step():
    stream = Stream()
    assert block({"forward": stream.work("forward", 0.25)}, stream).seconds == {"step": 0.25}


def test_arms_get_their_own_times_and_one_set_of_turns():
    stream = Stream()
    arms = {"eager": training(stream, forward=1.5), "compiled": training(stream, forward=0.5)}
    found = in_turns(arms, stream, POLICY, "set", seed=3)
    assert {m: s.seconds[0] for m, s in found["compiled"].items()} == {
        "step": 3.0,
        "forward": 0.5,
        "backward": 2.0,
        "optimizer": 0.5,
    }
    step = found["eager"]["step"]
    assert step.seconds == (4.0,) * 12
    assert (step.calls, step.turns, step.timing, step.warmup_calls) == (10, "set", Timing.BATCH, 10)
    assert not step.flags


def test_the_order_changes_from_turn_to_turn_with_the_seed():
    def order(seed):
        stream = Stream()
        in_turns({n: {"p": stream.work(n, 1.0)} for n in "ab"}, stream, POLICY, "", seed, steps=1)
        return [entry for entry in stream.log if entry != "synchronize"]

    assert order(1) == order(1) != order(2)
    turns = list(zip(order(1)[::2], order(1)[1::2], strict=True))
    assert all(set(turn) == {"a", "b"} for turn in turns)
    assert len(set(turns)) == 2


def test_a_machine_that_slows_down_does_so_to_both_arms_of_a_turn():
    """Two equal arms on a drifting machine: within turns the ratio is 1.00, over the whole it is not."""
    stream = Stream()

    def seconds():
        return 1.0 + 0.002 * len(stream.log)

    arms = {name: {"p": stream.work(name, seconds)} for name in ("eager", "eager#2")}
    a, b = (s["step"].seconds for s in in_turns(arms, stream, POLICY, "", seed=5, steps=1).values())
    logs = [math.log(y / x) for x, y in zip(a, b, strict=True)]
    half_width = 2.2 * statistics.stdev(logs) / math.sqrt(len(logs))
    assert abs(statistics.fmean(logs)) <= half_width < 0.005
    assert max(a) / min(a) > 1.05


def test_the_budget_ends_the_turns_but_not_before_the_fewest():
    stream = Stream()
    policy = Policy("test", samples=50, budget_seconds=0.0, min_samples=5, max_warmup_seconds=0.0)
    found = in_turns({"eager": training(stream)}, stream, policy, "")
    assert len(found["eager"]["step"].seconds) == 5


def test_a_throttled_turn_is_flagged_in_all_arms():
    stream = Stream()
    arms = {"a": training(stream), "b": training(stream)}
    readings = [Reading(sm_clock_mhz=1980.0)] * 4
    telemetry = Scripted(*readings, Reading(throttle_reasons=("sw-thermal",)), *readings)
    found = in_turns(arms, stream, POLICY, "", telemetry=telemetry)
    expected = ("", "", "", "throttled", "throttled", *[""] * 7)
    assert found["a"]["step"].flags == found["b"]["backward"].flags == expected
    assert telemetry.reads == 13


def test_a_low_clock_is_flagged_unless_somebody_chose_it():
    def flags(*reasons):
        telemetry = Scripted(Reading(sm_clock_mhz=900.0, throttle_reasons=reasons))
        stream = Stream()
        return in_turns({"a": training(stream)}, stream, POLICY, "", telemetry=telemetry)["a"]["step"].flags

    assert set(flags()) == {"clock-low"}
    assert flags("applications-clocks") == ()


def test_a_clock_that_stands_still_is_no_measurement():
    from bench_lib.errors import CudaGainsError

    stream = Stream()
    with pytest.raises(CudaGainsError, match="sample 1 of 12"):
        in_turns({"a": {"p": stream.work("p", 0.0)}}, stream, POLICY, "")


def test_the_host_clock_runs():
    found = block({"p": lambda: sum(range(20_000))}, HostClock(), steps=5)
    assert 1e-6 < found.seconds["step"] < 1.0
    assert found.host_share == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("device_seconds", "bound"), [(0.002, True), (0.2, False)])
def test_a_host_that_cannot_keep_ahead_of_the_device_is_told(device_seconds, bound):
    """A step that takes the host 2 ms to queue, and the device as long, or a hundred times as long."""
    stream = Stream()
    queue = stream.work("p", device_seconds)

    def step():
        time.sleep(0.002)
        queue()

    policy = Policy("test", samples=5, budget_seconds=60.0, min_samples=5, max_warmup_seconds=0.0)
    series = in_turns({"a": {"p": step}}, stream, policy, "", queued=True)["a"]
    assert series["step"].warnings == ((HOST_BOUND,) if bound else ())
    assert (series["step"].quantities["host_share"] > 0.95) is bound
    assert not in_turns({"a": {"p": step}}, stream, policy, "")["a"]["step"].quantities
