"""The driver through ctypes, on the pretended libcuda; its table of calls against cuda.h."""

import ctypes
import re

import cuda_headers
import pytest

from bench_lib.device.c_library import Library
from bench_lib.device.driver_calls import SIGNATURES
from bench_lib.errors import Unavailable


def describe():
    from bench_lib.device.driver import Driver

    found = Driver.load()
    info = found.describe()
    return [found.version, info.uuid, info.name, info.compute_capability, info.l2_nbytes, info.total_nbytes]


def test_describes_a_device(on_fake_gpu):
    version, uuid, name, capability, l2_nbytes, total_nbytes = on_fake_gpu(describe)
    assert version == [13, 0]
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
    assert (name, capability) == ("Fake GPU 0", [9, 0])
    assert (l2_nbytes, total_nbytes) == (1 << 20, 1 << 30)


def test_a_mig_slice_has_a_mig_uuid(on_fake_gpu):
    assert on_fake_gpu(describe, FAKE_CUDA_MIG="1")[1].startswith("MIG-11")


def error_of_describe():
    from bench_lib.device.driver import Driver
    from bench_lib.errors import CudaGainsError

    try:
        Driver.load().describe()
    except CudaGainsError as error:
        return [type(error).__name__, str(error)]


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"FAKE_CUDA_INIT_ERROR": "999"}, "cuInit failed with CUDA error 999 (CUDA_ERROR_UNKNOWN)"),
        ({"FAKE_CUDA_DEVICES": "0"}, "cuInit failed with CUDA error 100 (CUDA_ERROR_NO_DEVICE)"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "cuInit failed with CUDA error 100 (CUDA_ERROR_NO_DEVICE)"),
        ({"FAKE_CUDA_INIT_ERROR": "12345"}, "cuInit failed with CUDA error 12345"),
    ],
)
def test_names_the_call_and_the_error(on_fake_gpu, variables, text):
    assert on_fake_gpu(error_of_describe, **variables) == ["CudaError", text]


def test_no_driver_is_unavailable(on_fake_gpu, tmp_path):
    (tmp_path / "libcuda.so.1").write_text("no library")
    found = on_fake_gpu(error_of_describe, LD_LIBRARY_PATH=str(tmp_path))
    assert found == ["Unavailable", "libcuda.so.1 not found: no NVIDIA driver here"]


def test_a_function_the_library_lacks_is_unavailable():
    library = Library("libc.so.6", {})
    assert library.address("abs") == ctypes.cast(ctypes.CDLL("libc.so.6").abs, ctypes.c_void_p).value
    with pytest.raises(Unavailable, match=r"libc\.so\.6 has no cuNothing"):
        library.address("cuNothing")


def waits(asked):
    from bench_lib.device.driver import Driver

    return Driver.load().open(wait=asked).wait


@pytest.mark.parametrize("wait", ["spin", "yield", "block", "auto"])
def test_the_context_waits_as_asked(on_fake_gpu, wait):
    assert on_fake_gpu(waits, wait) == wait


def test_a_context_that_was_there_tells_how_it_really_waits(on_fake_gpu):
    assert on_fake_gpu(waits, "spin", FAKE_CUDA_ACTIVE_FLAGS="12") == "block"  # 12: block, map host


def unknown_wait():
    from bench_lib.device.driver import Driver
    from bench_lib.errors import UsageError

    try:
        Driver.load().open(wait="doze")
    except UsageError as error:
        return str(error)


def test_an_unknown_wait_is_refused(on_fake_gpu):
    assert on_fake_gpu(unknown_wait) == (
        "the context cannot wait by 'doze'; expected one of auto, spin, yield, block"
    )


def spun_seconds(cycles):
    from ctypes import c_uint64
    from time import perf_counter

    from bench_lib.device import kernels
    from bench_lib.device.driver import Driver

    context = Driver.load().open()
    spin = context.function(context.load(kernels.cubin(context).data), "spin")
    stream, start, end = context.stream(), context.event(), context.event()
    begin = perf_counter()
    context.record(start, stream)
    context.launch(spin, (1, 1, 1), (1, 1, 1), [c_uint64(cycles)], stream)
    context.record(end, stream)
    context.synchronize(stream)
    return [context.elapsed(start, end), perf_counter() - begin]


def test_events_take_device_time_and_waiting_waits(on_fake_gpu):
    device_seconds, host_seconds = on_fake_gpu(spun_seconds, 20_000_000)  # 20 ms at 1 GHz
    assert 0.020 <= device_seconds <= host_seconds


def memory_round_trip():
    import ctypes

    from bench_lib.device.driver import Driver

    context = Driver.load().open()
    stream, data = context.stream(), bytes(range(256)) * 16
    first, second = context.alloc(len(data)), context.alloc(len(data))
    host, mapped = context.host_alloc(len(data))
    context.upload(first, data)
    context.copy_async(second, first, len(data), stream)
    context.copy_async(host, second, len(data), stream)
    context.synchronize(stream)
    copied = context.download(second, len(data)) == ctypes.string_at(host, len(data)) == data
    context.set_async(mapped, 0xDEADBEEF, 2, stream)
    context.synchronize(stream)
    words = ctypes.string_at(host, 12)
    for pointer in (first, second):
        context.free(pointer)
    context.host_free(host)
    return [copied, words == b"\xef\xbe\xad\xde" * 2 + data[8:12]]


def test_memory_is_copied_and_set(on_fake_gpu):
    assert on_fake_gpu(memory_round_trip) == [True, True]


def codes_of_failures():
    from bench_lib.device.driver import Driver
    from bench_lib.errors import CudaError

    context = Driver.load().open()

    def code(action):
        try:
            action()
        except CudaError as error:
            return error.code

    cubin = context.link(".version 6.0\n.visible .entry empty() { ret; }")
    module = context.load(cubin)
    return [
        code(lambda: context.alloc(1 << 40)),
        code(lambda: context.link("no PTX")),
        code(lambda: context.load(b"no cubin")),
        code(lambda: context.function(module, "nothing")),
        code(lambda: context.launch(context.function(module, "empty"), (1, 1, 1), (2048, 1, 1), [], 0)),
        code(lambda: context.function(module, "empty")),
    ]


def test_failures_carry_their_codes(on_fake_gpu):
    assert on_fake_gpu(codes_of_failures) == [2, 218, 200, 500, 1, None]


def after_a_sticky_error():
    from bench_lib.device import kernels
    from bench_lib.device.driver import Driver
    from bench_lib.errors import CudaError

    context = Driver.load().open()
    empty = context.function(context.load(kernels.cubin(context).data), "empty")
    seen = []
    for action in (lambda: context.launch(empty, (1, 1, 1), (1, 1, 1), [], 0),) * 3 + (context.stream,):
        try:
            action()
            seen.append("ok")
        except CudaError as error:
            seen.append([error.call, error.code, error.sticky])
    return seen


def test_a_sticky_error_is_told_as_one(on_fake_gpu):
    seen = on_fake_gpu(after_a_sticky_error, FAKE_CUDA_FAIL_LAUNCH_AFTER="2", FAKE_CUDA_FAIL_CODE="700")
    assert seen == ["ok", "ok", ["cuLaunchKernel", 700, True], ["cuStreamCreate", 700, True]]


def test_the_calls_are_those_of_cuda_h():
    text = cuda_headers.header("cuda.h")
    for name, kinds in SIGNATURES.items():
        passed = [ctypes.c_void_p if kind is ctypes.c_char_p else kind for kind in kinds]
        assert passed == cuda_headers.parameters(text, name), name
