"""Each timer against a made-up asynchronous device with a virtual clock and a known answer."""

from contextlib import contextmanager

import pytest

from bench_lib.errors import UsageError
from bench_lib.model import Flag, Timing
from bench_lib.timing.preemption import Preemptions
from bench_lib.timing.timer import Batch, Cold, Fake, Graph, Host, Native, Prepared

SUBMIT, KERNEL, FLUSH, GAP = 3e-6, 10e-6, 50e-6, 2e-6
HOLD_LIMIT = 1.0
WAIT_COST = 1e-6  # host seconds that a synchronise takes beyond the waiting


class VirtualDevice:
    """One stream: the host submits in SUBMIT seconds, the device works KERNEL seconds a kernel.

    `busy_until` is when the device is done with what it could start. While held, work piles up and
    begins at the release.
    """

    class Hold:
        timed_out = False

    def __init__(self):
        self.now = 100.0  # host clock
        self.busy_until = 0.0
        self.held_since = None
        self.pending = []
        self.log = []
        self.waits = False  # whether a kernel's call waits for the stream, as a lazy module load does

    def host_ns(self):
        return round(self.now * 1e9)

    def _queue(self, seconds, mark=None):
        if self.held_since is not None:
            self.pending.append((seconds, mark))
            return
        self.busy_until = max(self.now, self.busy_until) + seconds
        if mark is not None:
            mark["at"] = self.busy_until

    def kernel(self, seconds=KERNEL):
        self.log.append("kernel")
        if self.waits:
            self.synchronize()
        self.now += SUBMIT
        self._queue(seconds)

    def flush(self):
        self.log.append("flush")
        self.now += SUBMIT
        self._queue(FLUSH)

    def record(self):
        self.log.append("record")
        mark = {}
        self._queue(0.0, mark)
        return mark

    def elapsed(self, start, end):
        assert "used" not in start, "an event is used in one pair only"
        assert "used" not in end, "an event is used in one pair only"
        start["used"] = end["used"] = True
        return end["at"] - start["at"]

    def synchronize(self):
        self.log.append("synchronize")
        if self.held_since is not None:  # nothing will come: the hold gives up at its limit
            self.now = max(self.now, self.held_since + HOLD_LIMIT)
            self._release(timed_out=True)
        self.now = max(self.now, self.busy_until) + WAIT_COST

    @contextmanager
    def hold(self):
        self.log.append("hold")
        self.current = self.Hold()
        self.held_since = max(self.now, self.busy_until)
        try:
            yield self.current
        finally:
            self.log.append("release")
            if self.held_since is not None:
                self._release(timed_out=False)

    def _release(self, timed_out):
        self.current.timed_out = timed_out
        self.busy_until = max(self.now, self.held_since)
        self.held_since = None
        pending, self.pending = self.pending, []
        for seconds, mark in pending:
            self._queue(seconds, mark)


class EagerDevice(VirtualDevice):
    """The same device whose hold does not hold: what events would show without one."""

    @contextmanager
    def hold(self):
        yield self.Hold()


@pytest.fixture
def device():
    return VirtualDevice()


def quiet():
    return Preemptions(0)


def test_cold_gives_the_kernel_alone_without_flush_and_submit(device):
    sample = Cold(device).sample(device.kernel)
    assert sample.seconds == pytest.approx(KERNEL, rel=1e-6)
    assert sample.flags == ()
    assert device.log == ["flush", "hold", "record", "kernel", "record", "release", "synchronize"]


def test_the_hold_is_what_keeps_the_submit_gap_out():
    def short(device):
        return lambda: device.kernel(1e-6)  # shorter than its own submission

    held, eager = VirtualDevice(), EagerDevice()
    assert Batch(held, 10).sample(short(held)).seconds == pytest.approx(1e-6, rel=1e-6)
    assert Batch(eager, 10).sample(short(eager)).seconds == pytest.approx(SUBMIT, rel=0.2)


def test_batch_is_per_call(device):
    timer = Batch(device, 20)
    assert timer.sample(device.kernel).seconds == pytest.approx(KERNEL, rel=1e-6)
    assert device.log.count("kernel") == 20
    assert device.log.count("record") == 2
    assert "flush" not in device.log


def test_work_queued_before_does_not_leak_into_a_cold_sample(device):
    for _ in range(100):
        device.kernel()
    assert Cold(device).sample(device.kernel).seconds == pytest.approx(KERNEL, rel=1e-6)


def test_a_call_that_waits_for_a_held_stream_is_flagged_and_does_not_hang(device):
    timer = Cold(device)
    device.waits = True
    assert timer.sample(device.kernel).flags == (Flag.HOLD_TIMED_OUT,)
    device.waits = False
    assert timer.sample(device.kernel).flags == ()


def test_the_first_call_is_made_without_a_hold(device):
    device.waits = True  # the module of the kernel is loaded by its first launch
    assert Cold(device).prepare(device.kernel) == 1
    assert "hold" not in device.log
    assert device.log[-1] == "synchronize"


def test_a_call_that_fails_leaves_the_stream_released(device):
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Cold(device).sample(fail)
    assert device.held_since is None


def test_graph_is_captured_once_and_timed_per_call(device):
    captured = []

    def capture(fn, calls):
        captured.append(calls)
        return lambda: device.kernel(calls * KERNEL + GAP)

    timer = Graph(device, capture, 50)
    assert timer.prepare(device.kernel) == 3
    seconds = [timer.sample(device.kernel).seconds for _ in range(3)]
    assert captured == [50]
    assert seconds == [pytest.approx(KERNEL + GAP / 50, rel=1e-6)] * 3


def test_host_without_drain_is_the_submission_alone(device):
    timer = Host(100, device.synchronize, drain=False, clock_ns=device.host_ns, counted=quiet)
    assert timer.sample(device.kernel).seconds == pytest.approx(SUBMIT, rel=1e-3)
    assert device.busy_until <= device.now  # and yet the next sample finds an empty stream


def test_host_with_drain_includes_the_queued_work(device):
    timer = Host(100, device.synchronize, drain=True, clock_ns=device.host_ns, counted=quiet)
    expected = (SUBMIT + 100 * KERNEL + WAIT_COST) / 100
    assert timer.sample(device.kernel).seconds == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("drain", [False, True])
def test_pending_work_does_not_leak_into_a_host_sample(device, drain):
    timer = Host(10, device.synchronize, drain, clock_ns=device.host_ns, counted=quiet)
    alone = timer.sample(device.kernel).seconds
    for _ in range(1000):
        device.kernel()
    assert timer.sample(device.kernel).seconds == pytest.approx(alone, rel=1e-3)


def test_without_a_synchronise_pending_work_does_leak_in(device):
    """The negative: it is the wait before the start that keeps the sample clean."""
    for _ in range(1000):
        device.kernel()

    def call():
        device.kernel()
        device.synchronize()

    sample = Host(1, None, clock_ns=device.host_ns, counted=quiet).sample(call)
    assert sample.seconds > 100 * KERNEL


def test_native_takes_the_loop_at_its_word(device):
    timer = Native(lambda: 2.5e-6, 100, counted=quiet)
    assert timer.prepare(device.kernel) == 100
    assert timer.sample(device.kernel) == (2.5e-6, ())
    assert device.log == []


@pytest.mark.parametrize(
    ("wall_seconds", "switches", "waited_seconds", "flagged"),
    [
        (300e-6, 0, None, False),
        (300e-6, 1, None, True),
        (0.1, 1, None, True),
        (1.0, 1, None, False),
        (1.0, 3, None, True),
        (30.0, 50, None, False),
        (0.04, 1, 20e-6, False),  # lost for the time of a kernel thread: nothing that can be seen
        (0.04, 1, 1e-3, True),
        (0.04, 0, 1e-3, False),  # it waited because it had gone to sleep itself
    ],
)
def test_a_lost_core_is_a_doubt_only_where_it_can_be_seen(wall_seconds, switches, waited_seconds, flagged):
    ticks = iter([0, round(wall_seconds * 1e9)] * 2)
    known = waited_seconds is not None
    counts = iter(
        [
            Preemptions(5, 7.0 if known else None),
            Preemptions(5 + switches, 7.0 + waited_seconds if known else None),
        ]
        * 2
    )
    expected = (Flag.PREEMPTED,) if flagged else ()
    host = Host(1, clock_ns=lambda: next(ticks), counted=lambda: next(counts))
    assert host.sample(lambda: None).flags == expected
    native = Native(lambda: 1e-6, 100, clock_ns=lambda: next(ticks), counted=lambda: next(counts))
    assert native.sample(lambda: None).flags == expected


def test_an_act_before_each_sample_is_not_timed(device):
    log = []

    def before():
        log.append("before")
        device.now += 1.0

    def work():
        log.append("work")
        device.now += 3e-3

    timer = Prepared(Host(1, clock_ns=device.host_ns), before)
    assert timer.prepare(work) == 1
    assert [round(timer.sample(work).seconds, 6) for _ in range(2)] == [3e-3, 3e-3]
    assert log == ["before", "work"] * 3
    assert (timer.timing, timer.calls) == (Timing.HOST, 1)


def test_an_act_before_a_sample_of_several_calls_is_refused(device):
    with pytest.raises(UsageError, match="calls must be 1"):
        Prepared(Host(2), lambda: None)


def test_fake_plays_its_numbers():
    timer = Fake([1.0, 2.0])
    assert [timer.sample(lambda: None).seconds for _ in range(2)] == [1.0, 2.0]
    assert timer.timing is Timing.FAKE


@pytest.mark.parametrize("calls", [0, -1])
def test_calls_below_one_are_refused(device, calls):
    with pytest.raises(UsageError, match="1 call or more"):
        Host(calls)


def test_a_batch_that_would_fill_the_queue_is_refused(device):
    with pytest.raises(UsageError, match="1 call or more to 512"):
        Batch(device, 513)


def test_the_real_host_clock_is_in_seconds():
    import time

    sample = Host(1).sample(lambda: time.sleep(0.02))
    assert 0.02 <= sample.seconds < 2
