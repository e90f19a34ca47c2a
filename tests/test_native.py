"""The timing loops: on libc, on callbacks with a known answer, and on the pretended CUDA."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import fake_cuda as fake
import numpy as np
import pytest

from bench_lib.device import native
from bench_lib.device.native import Call
from bench_lib.errors import CudaError, UsageError

PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_uint64] * native.PARAMETERS)


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)  # the clock of the loops


class Entered(NamedTuple):
    """One call of a Recorder: what it was given, and when it was in."""

    name: str
    words: tuple[int, ...]
    begin: float
    end: float


class Recorder:
    """A C function that notes its calls in `log`, takes half a millisecond, and answers a status."""

    def __init__(self, log, name="", statuses=()):
        self.log, self.name, self.statuses = log, name, iter(statuses)
        self.callback = PROTOTYPE(self._called)

    def _called(self, *words):
        begin = now()
        time.sleep(0.0005)
        self.log.append(Entered(self.name, words, begin, now()))
        return next(self.statuses, 0)

    def call(self, *arguments):
        return Call(ctypes.cast(self.callback, ctypes.c_void_p).value, arguments, self.name)


@pytest.fixture
def log():
    return []


@pytest.fixture
def call(log):
    return Recorder(log, "c")


@pytest.fixture
def sync(log):
    return Recorder(log, "s")


def names(log):
    return "".join(entered.name for entered in log)


def assert_times(seconds, timed, before, after):
    """`seconds` hold all that was timed and nothing of the calls before and after."""
    assert timed[-1].end - timed[0].begin <= seconds
    assert seconds <= (after.begin if after else now()) - before.end


def test_every_argument_arrives_whole(log, call):
    sent = tuple(0xF000_0000_0000_0000 + i for i in range(11))
    native.enqueue(call.call(*sent))
    native.enqueue(call.call(1, 2))
    assert [entered.words for entered in log] == [sent, (1, 2) + (0,) * 9]


def test_too_many_arguments_are_refused():
    with pytest.raises(UsageError, match="cuMany has 12 arguments; at most 11 fit"):
        native.enqueue(Call(1, tuple(range(12)), "cuMany"))


def test_submit_times_the_calls_alone(log, call, sync):
    seconds = native.submit(call.call(), 5, sync.call())
    assert names(log) == "scccccs"
    assert_times(5 * seconds, log[1:-1], before=log[0], after=log[-1])


def test_launch_sync_times_pairs(log, call, sync):
    seconds = native.launch_sync(call.call(), sync.call(), 3)
    assert names(log) == "scscscs"
    assert_times(3 * seconds, log[1:], before=log[0], after=None)


def test_total_times_the_calls_and_one_sync(log, call, sync):
    seconds = native.total(call.call(), 4, sync.call())
    assert names(log) == "sccccs"
    assert_times(4 * seconds, log[1:], before=log[0], after=None)


def test_in_turns_follows_the_order(log, sync):
    calls = [Recorder(log, "a"), Recorder(log, "b")]
    order = np.array([[0, 1], [1, 0], [1, 0]])
    seconds = native.in_turns([c.call() for c in calls], order, 2, sync.call())
    assert names(log) == "sasaasbsbb" + "sbsbbsasaa" * 2 + "s"  # one call ahead of each burst of two
    assert seconds.shape == (2, 3)
    for place, function in enumerate(order.ravel()):
        before, *timed, after = log[5 * place + 2 : 5 * place + 6]
        assert_times(2 * seconds[function, place // 2], timed, before, after)


def test_in_turns_refuses_an_order_that_leaves_one_out(log, call, sync):
    with pytest.raises(UsageError, match="each of the 2 functions once a turn"):
        native.in_turns([call.call()] * 2, np.array([[0, 0]]), 1, sync.call())
    assert not log


@pytest.mark.parametrize(
    ("run", "failing"),
    [
        (lambda c, s: native.submit(c, 5, s), "call"),
        (lambda c, s: native.submit(c, 5, s), "sync"),
        (lambda c, s: native.launch_sync(c, s, 5), "call"),
        (lambda c, s: native.launch_sync(c, s, 5), "sync"),
        (lambda c, s: native.total(c, 5, s), "call"),
        (lambda c, s: native.total(c, 5, s), "sync"),
        (lambda c, s: native.in_turns([c, c], np.array([[1, 0]]), 5, s), "call"),
        (lambda c, s: native.in_turns([c, c], np.array([[1, 0]]), 5, s), "sync"),
        (lambda c, s: native.enqueue(c), "call"),
    ],
)
def test_the_first_failure_ends_the_loop_and_is_named(log, run, failing):
    call = Recorder(log, "call", statuses=[719, 1] if failing == "call" else [])
    sync = Recorder(log, "sync", statuses=[700, 1] if failing == "sync" else [])
    with pytest.raises(CudaError) as caught:
        run(call.call(), sync.call())
    assert (caught.value.call, caught.value.code) == (failing, 719 if failing == "call" else 700)
    assert names(log).endswith(failing)
    assert len(log) <= 2


def test_nothing_compiles_for_another_function():
    nothing = {Call(native._libc_address(name), (0,)) for name in ("abs", "labs", "htonl")}
    assert len({call.address for call in nothing}) == 3
    for call in nothing:
        native.submit(call, 10, call)
        native.launch_sync(call, call, 10)
        native.in_turns([call], np.array([[0]]), 10, call)
    for loop in (native._burst, native._pairs, native._turn):
        assert len(loop.signatures) == 1


def test_compiled_loops_are_kept_on_disk(tmp_path):
    code = "from bench_lib.device import native as n; n.overhead(); print(n._burst.stats.cache_hits.total())"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    hits = [
        subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert hits == ["0", "1"]


def test_the_loop_costs_under_ten_nanoseconds():
    assert 0 < min(native.overhead() for _ in range(10)) < 10e-9


def test_the_clock_is_fine_enough_for_a_burst():
    assert 0 < native.clock_resolution() <= 1e-6


def test_the_cpu_loop_takes_time_in_proportion():
    """So it really runs, step after step; xorshift64 cannot be done in less than 3 cycles a step."""

    native.spin_cpu(10)
    short, long = (min(native.spin_cpu(n) for _ in range(30)) for n in (100_000, 400_000))
    assert long / short == pytest.approx(4, rel=0.25)
    assert short / 100_000 > 0.4e-9


def test_the_loops_let_other_threads_run():
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    native.spin_cpu(10)
    thread = threading.Thread(target=tick)
    thread.start()
    native.spin_cpu(100_000_000)
    stop.set()
    thread.join()
    assert len(ticks) > 20


def without_numba():
    import sys

    sys.modules["numba"] = None
    from bench_lib.errors import Unavailable

    try:
        import bench_lib.device.native  # noqa: F401
    except Unavailable as error:
        return str(error)


def test_numba_is_optional(on_fake_gpu):
    assert on_fake_gpu(without_numba) == (
        "numba is not installed and the native timing loops need it; "
        "`pip install -e '.[measure]'` in the suite's folder"
    )


def launch_costs(paths):
    """Seconds a launch in turns: each runtime, the driver alone, and launch with its wait."""
    import ctypes
    from pathlib import Path

    import numpy as np

    from bench_lib.device import kernels, native
    from bench_lib.device.cudart import Runtime
    from bench_lib.device.driver import Driver
    from bench_lib.device.native import Call

    context = Driver.load().open()
    stream, cubin, one = context.stream(), kernels.cubin(context), 1 | 1 << 32
    block = (ctypes.c_ubyte * 4096)()
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    rest = (one, 1, one, 1, ctypes.addressof(pointers), 0, stream)
    calls = []
    for path in paths:
        runtime = Runtime.load(Path(path))
        key = runtime.register(cubin, ["args_4096"])["args_4096"]
        calls.append(Call(runtime.address("cudaLaunchKernel"), (key, *rest), "cudaLaunchKernel"))
    function = context.function(context.load(cubin.data), "args_4096")
    arguments = (function, 1, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(pointers), 0)
    calls.append(Call(context.driver.address("cuLaunchKernel"), arguments, "cuLaunchKernel"))
    sync = Call(context.driver.address("cuStreamSynchronize"), (stream,), "cuStreamSynchronize")
    order = np.random.default_rng(0).permuted(np.tile(np.arange(len(calls)), (200, 1)), axis=1)
    in_turns = native.in_turns(calls, order, 20, sync).min(axis=1)  # of a busy machine, the quietest burst
    pair = min(native.launch_sync(calls[-1], sync, 20) for _ in range(20))
    return [in_turns.tolist(), pair]


def test_a_slow_runtime_is_seen_and_a_launch_waits_for_its_kernel(on_fake_gpu, fake_cuda_built):
    paths = [str(fake.build_runtime(fake_cuda_built, version)) for version in ("11.8.89", "12.4.127")]
    planted = {"FAKE_CUDART_12_4_SUBMIT_NS": "3000", "FAKE_CUDA_LAUNCH_NS": "50000"}
    (first, slow, driver), pair = on_fake_gpu(launch_costs, paths, **planted)
    assert 2.9e-6 < slow - first < 6e-6
    assert max(driver, first) < slow / 2  # of the fakes both are next to nothing
    assert 50e-6 < pair < 100e-6


def failing_launch():
    from bench_lib.device import kernels, native
    from bench_lib.device.driver import Driver
    from bench_lib.device.native import Call
    from bench_lib.errors import CudaError

    context = Driver.load().open()
    empty = context.function(context.load(kernels.cubin(context).data), "empty")
    launch = Call(context.driver.address("cuLaunchKernel"), (empty, 1, 1, 1, 1, 1, 1), "cuLaunchKernel")
    sync = Call(context.driver.address("cuCtxSynchronize"), (), "cuCtxSynchronize")
    try:
        native.submit(launch, 100, sync)
    except CudaError as error:
        return [error.call, error.code, error.sticky]


def test_a_launch_that_fails_in_the_loop_is_an_error(on_fake_gpu):
    seen = on_fake_gpu(failing_launch, FAKE_CUDA_FAIL_LAUNCH_AFTER="50")
    assert seen == ["cuLaunchKernel", 719, True]
