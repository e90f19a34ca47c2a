"""The live device on the pretended CUDA: looking for it, holding, flushing, timing; the lock."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from bench_lib.device.gpu_lock import lock
from bench_lib.errors import Refused


def look():
    import dataclasses
    from pathlib import Path

    from bench_lib.device.gpu import detect

    found = dataclasses.asdict(detect())
    return [found, "libcuda.so" in Path("/proc/self/maps").read_text()]


def test_detect_describes_the_device_and_leaves_cuda_alone(on_fake_gpu):
    found, loaded = on_fake_gpu(look)
    assert found == {
        "available": True,
        "reason": "",
        "uuid": "GPU-fa0a1a2a-3a4a-5a6a-7a8a-9aaabacada00",
        "name": "Fake GPU 0",
        "compute_capability": "9.0",
        "driver_version": "13.0",
    }
    assert not loaded


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"FAKE_CUDA_DEVICES": "0"}, "cuInit failed with CUDA error 100 (CUDA_ERROR_NO_DEVICE)"),
        ({"FAKE_CUDA_INIT_ERROR": "999"}, "cuInit failed with CUDA error 999 (CUDA_ERROR_UNKNOWN)"),
    ],
)
def test_detect_says_why_there_is_none(on_fake_gpu, variables, reason):
    found, _ = on_fake_gpu(look, **variables)
    assert (found["available"], found["reason"]) == (False, reason)


def test_detect_without_a_driver(on_fake_gpu, tmp_path):
    (tmp_path / "libcuda.so.1").touch()
    found, _ = on_fake_gpu(look, LD_LIBRARY_PATH=str(tmp_path))
    assert found["reason"] == "libcuda.so.1 not found: no NVIDIA driver here"


def test_detect_survives_a_driver_that_dies(on_fake_gpu):
    found, _ = on_fake_gpu(look, FAKE_CUDA_INIT_ERROR="abort")
    assert found["reason"] == f"the check for a GPU ended with {-signal.SIGABRT}: no output"


def look_at_a_dead_driver():
    from time import perf_counter

    from bench_lib.device.gpu import detect

    start = perf_counter()
    return [detect(timeout_seconds=0.5).reason, perf_counter() - start]


def test_detect_does_not_wait_for_ever(on_fake_gpu):
    reason, seconds = on_fake_gpu(look_at_a_dead_driver, FAKE_CUDA_INIT_ERROR="hang")
    assert reason == "the driver did not answer within 0.5 s"
    assert seconds < 60


def open_gpu(wait):
    from bench_lib.device.gpu import Gpu

    gpu = Gpu.open(wait=wait, telemetry=False)
    seen = [gpu.context.wait, gpu.context.name, gpu.event_overhead(), gpu.telemetry.read().sm_clock_mhz]
    gpu.close()
    return seen


def test_opens_with_its_waiting_and_knows_its_events(on_fake_gpu):
    wait, name, overhead, clock = on_fake_gpu(open_gpu, "block", FAKE_CUDA_EVENT_NS="700")
    assert (wait, name, clock) == ("block", "Fake GPU 0", None)
    assert overhead == pytest.approx(700e-9, rel=1e-3)


def held_and_free():
    """Seconds between two events around two launches that the host submits 5 ms apart."""
    import time

    from bench_lib.device import kernels
    from bench_lib.device.gpu import Gpu

    gpu = Gpu.open()
    context = gpu.context
    empty = context.function(context.load(kernels.cubin(context).data), "empty")

    def launches():
        start = gpu.record()
        for _ in range(2):
            context.launch(empty, (1, 1, 1), (1, 1, 1), [], gpu.stream)
            time.sleep(0.005)
        return start, gpu.record()

    with gpu.hold() as hold:
        start, end = launches()
    gpu.synchronize()
    held = gpu.elapsed(start, end)
    start, end = launches()
    gpu.synchronize()
    return [held, gpu.elapsed(start, end), hold.timed_out]


def test_a_hold_keeps_the_hosts_gaps_out_of_device_time(on_fake_gpu):
    held, free, timed_out = on_fake_gpu(held_and_free)
    assert held == pytest.approx(2 * 2e-6 + 0.5e-6, rel=1e-3)
    assert free > 0.010
    assert not timed_out


def forgotten_hold():
    import time

    from bench_lib.device.gpu import Gpu

    gpu = Gpu.open()
    start = time.perf_counter()
    with gpu.hold() as late:
        gpu.flush()
        gpu.synchronize()  # a mistake: it waits for the device, which waits for the host
    seconds = time.perf_counter() - start
    with gpu.hold() as good:
        gpu.flush()
    gpu.synchronize()
    try:
        with gpu.hold() as failed:
            raise ValueError
    except ValueError:
        gpu.synchronize()
    return [seconds, late.timed_out, good.timed_out, failed.timed_out]


def test_a_hold_is_bounded_and_tells(on_fake_gpu):
    seconds, *timed_out = on_fake_gpu(forgotten_hold)
    assert 1 <= seconds < 30
    assert timed_out == [True, False, False]


def flush_seconds():
    from bench_lib.device.gpu import Gpu

    gpu = Gpu.open()
    seen = []
    for _ in range(3):
        with gpu.hold():
            start = gpu.record()
            gpu.flush()
            end = gpu.record()
        gpu.synchronize()
        seen.append(gpu.elapsed(start, end))
    words = [gpu.context.download(gpu._flush_buffer, 4), gpu.context.download(gpu._flush_buffer, 4)]
    gpu.flush()
    gpu.synchronize()
    return [seen, gpu.context.l2_nbytes, words[0] != gpu.context.download(gpu._flush_buffer, 4)]


def test_a_flush_writes_twice_the_l2_and_never_the_same(on_fake_gpu):
    seconds, l2_nbytes, changed = on_fake_gpu(flush_seconds)
    for each in seconds:
        assert each == pytest.approx(2 * l2_nbytes / 10e9 + 1.5e-6, rel=0.01)  # 10 GB/s, latency, event
    assert changed


def marks_twice():
    from bench_lib.device.gpu import Gpu
    from bench_lib.errors import CudaError

    gpu = Gpu.open()
    start, end = gpu.record(), gpu.record()
    gpu.synchronize()
    first = gpu.elapsed(start, end)
    try:
        gpu.elapsed(start, end)
    except CudaError as error:
        return [first, error.code]


def test_a_mark_serves_one_pair(on_fake_gpu):
    first, code = on_fake_gpu(marks_twice)
    assert first > 0
    assert code == 400


def events_made():
    from bench_lib.device.gpu import Gpu

    gpu = Gpu.open()
    made = []
    new_event = gpu.context.event
    gpu.context.event = lambda: made.append(1) or new_event()
    for _ in range(50):
        start, end = gpu.record(), gpu.record()
        gpu.synchronize()
        gpu.elapsed(start, end)
    return len(made)


def test_events_are_used_again(on_fake_gpu):
    assert on_fake_gpu(events_made) == 0


def test_without_a_driver_opening_is_unavailable(on_fake_gpu, tmp_path):
    (tmp_path / "libcuda.so.1").touch()
    assert on_fake_gpu(opening, LD_LIBRARY_PATH=str(tmp_path)) == "Unavailable"


def opening():
    from bench_lib.device.gpu import Gpu
    from bench_lib.errors import CudaGainsError

    try:
        Gpu.open()
    except CudaGainsError as error:
        return type(error).__name__


# The lock.

UUID = "GPU-fa0a1a2a-3a4a-5a6a-7a8a-9aaabacada00"
HOLDER = """
import sys
from bench_lib.device.gpu_lock import lock
kept = lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locks(tmp_path, monkeypatch):
    folder = tmp_path / "locks"
    monkeypatch.setenv("CUDA_GAINS_LOCK_DIR", str(folder))
    return folder


@pytest.fixture
def holder(locks):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, UUID], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_run_on_a_gpu_is_refused(holder):
    with pytest.raises(Refused, match=rf"process {holder.pid} is measuring on GPU {UUID}"):
        lock(UUID)


def test_another_gpu_is_free(holder):
    lock(UUID.replace("fa0a", "fa0b")).release()


def test_the_lock_goes_with_its_holder_even_by_kill(holder):
    holder.kill()
    holder.wait()
    with lock(UUID) as held:
        assert held.path.read_text() == f"{os.getpid()}\n"


def test_the_lock_is_free_after_its_block(locks):
    for _ in range(2):
        with lock(UUID), pytest.raises(Refused, match=f"process {os.getpid()} is measuring"):
            lock(UUID)


def test_every_user_can_open_the_lock(locks):
    before = os.umask(0o077)
    try:
        with lock(UUID) as held:
            assert stat.S_IMODE(held.path.stat().st_mode) == 0o666
    finally:
        os.umask(before)


def test_a_lock_that_cannot_be_opened_is_refused(locks):
    locks.write_text("a file where the folder should be")
    with pytest.raises(Refused, match=r"cannot be opened \(File exists\).*set CUDA_GAINS_LOCK_DIR"):
        lock(UUID)


def test_a_lock_that_is_a_link_is_not_followed(locks, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    locks.mkdir()
    (locks / f"cuda-gains-{UUID}.lock").symlink_to(victim)
    with pytest.raises(Refused, match="cannot be opened"):
        lock(UUID)
    assert victim.read_text() == "precious"
