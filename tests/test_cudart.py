"""Runtimes by path on the pretended CUDA: registration, launches, graphs; where `here` finds its own."""

import ctypes
import shutil
import struct
import subprocess

import cuda_headers
import fake_cuda as fake
import pytest

from bench_lib.device import cudart
from bench_lib.device.kernels import Cubin

VERSIONS = ("11.8.89", "12.4.127", "13.0.96")


@pytest.fixture
def libraries(fake_cuda_built):
    """The pretended libcudarts by version."""
    return {version: str(fake.build_runtime(fake_cuda_built, version)) for version in VERSIONS}


def launch_through(paths):
    from ctypes import c_uint64
    from pathlib import Path

    from bench_lib.device import kernels
    from bench_lib.device.cudart import Runtime
    from bench_lib.device.driver import Driver

    context = Driver.load().open()
    stream, start, end = context.stream(), context.event(), context.event()
    cubin = kernels.cubin(context)
    seen = []
    for path in paths:
        runtime = Runtime.load(Path(path))
        keys = runtime.register(cubin, ["empty", "spin"])
        again = runtime.register(cubin, ["spin"])
        runtime.launch(keys["empty"], (1, 1, 1), (1, 1, 1), stream)
        context.record(start, stream)
        runtime.launch(keys["spin"], (1, 1, 1), (1, 1, 1), stream, [c_uint64(3_000_000)])
        context.record(end, stream)
        context.synchronize(stream)
        seen.append([runtime.version, context.elapsed(start, end), keys, again == {"spin": keys["spin"]}])
    return seen


def test_several_runtimes_launch_in_one_process(on_fake_gpu, libraries):
    seen = on_fake_gpu(launch_through, list(libraries.values()))
    assert [version for version, *_ in seen] == ["11.8", "12.4", "13.0"]
    assert all(0.003 <= seconds < 3 for _, seconds, _, _ in seen)
    assert all(kept for *_, kept in seen), "a kernel is registered once"
    keys = [key for _, _, keys, _ in seen for key in keys.values()]
    assert len(set(keys)) == 6, "each runtime has a registration of its own"


def load_with_copy(path, copy):
    from pathlib import Path

    from bench_lib.device import kernels
    from bench_lib.device.cudart import Runtime
    from bench_lib.device.driver import Driver

    context = Driver.load().open()
    cubin = kernels.cubin(context)
    runtimes = [Runtime.load(Path(path)), Runtime.load(Path(path), copy=Path(copy)), Runtime.load(Path(path))]
    for runtime in runtimes:
        runtime.initialise()
        runtime.launch(runtime.register(cubin, ["empty"])["empty"], (1, 1, 1), (1, 1, 1), 0)
    context.synchronize(0)
    addresses = [runtime.address("cudaLaunchKernel") for runtime in runtimes]
    return [addresses, [str(runtime.path) for runtime in runtimes], [runtime.sha256 for runtime in runtimes]]


def test_a_copy_is_another_library(on_fake_gpu, libraries, tmp_path):
    copy = tmp_path / "null" / "libcudart.so.12"
    path = libraries["12.4.127"]
    addresses, paths, hashes = on_fake_gpu(load_with_copy, path, str(copy))
    assert addresses[0] == addresses[2] != addresses[1]
    assert paths == [path, str(copy), path]
    assert len(set(hashes)) == 1


def run_graph(path, nodes):
    import ctypes
    from ctypes import c_int, c_void_p
    from pathlib import Path

    from bench_lib.device import kernels
    from bench_lib.device.cudart import Runtime
    from bench_lib.device.driver import Driver

    context = Driver.load().open()
    stream, start, end = context.stream(), context.event(), context.event()
    runtime = Runtime.load(Path(path))
    graph = runtime.graph(runtime.register(kernels.cubin(context), ["empty"])["empty"], nodes, stream)
    executable = runtime.instantiate(graph)
    context.record(start, stream)
    launch = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)(runtime.address("cudaGraphLaunch"))
    assert launch(executable, stream) == 0
    context.record(end, stream)
    context.synchronize(stream)
    runtime.destroy_exec(executable)
    return context.elapsed(start, end)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_graph_runs_all_its_nodes(on_fake_gpu, libraries, version):
    seconds = on_fake_gpu(run_graph, libraries[version], 50, FAKE_CUDA_LAUNCH_NS="100000")
    assert 0.005 <= seconds < 5


def error_of_load(path):
    from pathlib import Path

    from bench_lib.device.cudart import Runtime
    from bench_lib.errors import CudaGainsError

    try:
        Runtime.load(Path(path))
    except CudaGainsError as error:
        return [type(error).__name__, str(error)]


def test_an_unknown_major_is_refused(on_fake_gpu, fake_cuda_built):
    path = fake.build_runtime(fake_cuda_built, "14.0.1")
    kind, text = on_fake_gpu(error_of_load, str(path))
    assert kind == "UsageError"
    assert "is CUDA runtime 14.0; this suite knows the calls of CUDA 11, 12, 13" in text


def test_a_file_that_is_no_library_is_unavailable(on_fake_gpu, tmp_path):
    broken = tmp_path / "libcudart.so.12"
    broken.write_text("no library")
    kind, text = on_fake_gpu(error_of_load, str(broken))
    assert kind == "Unavailable"
    assert text.startswith(f"the CUDA runtime {broken} cannot be loaded: ")


def test_a_failing_call_is_named(on_fake_gpu, libraries):
    """CUDA 11 asks the driver before it tells its version."""
    kind, text = on_fake_gpu(error_of_load, libraries["11.8.89"], FAKE_CUDA_INIT_ERROR="999")
    assert (kind, text) == (
        "CudaError",
        "cudaRuntimeGetVersion failed with CUDA error 999 (CUDA_ERROR_UNKNOWN)",
    )


def locate(version, wheels):
    from pathlib import Path

    from bench_lib.device import cudart

    return str(cudart.locate(version, Path(wheels)))


def test_a_version_is_found_in_a_wheel(on_fake_gpu, fake_wheels, tmp_path):
    found = on_fake_gpu(locate, "12.4", str(fake_wheels))
    assert found == str(tmp_path / "cache" / "cuda-gains" / "stacks" / "cudart-12.4" / "libcudart.so.12")


def default_runtime(preload=None, without=()):
    import ctypes
    import sys

    from bench_lib.device import cudart
    from bench_lib.errors import Unavailable

    sys.path = [entry for entry in sys.path if entry not in without]
    if preload:
        ctypes.CDLL(preload)
    try:
        return str(cudart.loaded_or_default())
    except Unavailable as error:
        return str(error)


def test_here_takes_the_runtime_that_pip_installed(on_fake_gpu, libraries):
    assert on_fake_gpu(default_runtime) == libraries["13.0.96"], "which PYTHONPATH puts before all"


def test_here_takes_the_runtime_that_is_loaded(on_fake_gpu, libraries, tmp_path):
    path = libraries["12.4.127"]
    assert on_fake_gpu(default_runtime, path, TMPDIR=str(tmp_path)) == path


def test_here_is_not_what_a_ladder_loaded(on_fake_gpu, libraries, tmp_path):
    cached = tmp_path / "cache" / "cuda-gains" / "stacks" / "cudart-12.4" / "libcudart.so.12"
    cached.parent.mkdir(parents=True)
    shutil.copyfile(libraries["12.4.127"], cached)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert on_fake_gpu(default_runtime, str(cached), TMPDIR=str(scratch)) == libraries["13.0.96"]


def test_here_matches_the_cuda_of_torch(on_fake_gpu, libraries, tmp_path, fake_cuda):
    """Torch's files tell its CUDA; it is not imported."""
    site = tmp_path / "site"
    for version in ("12.4.127", "13.0.96"):
        target = site / fake.runtime_name(version)
        target.parent.mkdir(parents=True)
        shutil.copyfile(libraries[version], target)
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("raise ImportError('not to be imported')")
    (site / "torch" / "version.py").write_text("cuda: Optional[str] = '12.4'\n")
    found = on_fake_gpu(default_runtime, PYTHONPATH=str(site))
    assert found == str(site / fake.runtime_name("12.4.127"))


def alone(*path):
    """What `here` is in a process that sees only this repository: the one of the tests may hold torch."""
    import sys

    from bench_lib.device import cudart
    from bench_lib.errors import Unavailable

    sys.path = list(path)
    try:
        return str(cudart.loaded_or_default())
    except Unavailable as error:
        return str(error)


def test_here_is_a_loaded_runtime_in_the_folder_for_temporary_files_too(on_fake_gpu, libraries, tmp_path):
    path = tmp_path / "venv" / "libcudart.so.12"
    path.parent.mkdir()
    shutil.copyfile(libraries["12.4.127"], path)
    assert on_fake_gpu(default_runtime, str(path), TMPDIR=str(tmp_path)) == str(path)


def test_here_falls_back_to_cuda_home(on_fake_gpu, tmp_path):
    library = tmp_path / "lib64" / "libcudart.so.12"
    library.parent.mkdir()
    library.touch()
    assert on_fake_gpu(alone, CUDA_HOME=str(tmp_path)) == str(library)


def test_here_asks_ldconfig_last_and_says_when_there_is_none(on_fake_gpu, tmp_path):
    ldconfig = tmp_path / "ldconfig"
    path = f"{tmp_path}:/usr/bin:/bin"
    ldconfig.write_text("#!/bin/sh\necho '\tlibcuda.so.1 (libc6,x86-64) => /lib/libcuda.so.1'\n")
    ldconfig.chmod(0o755)
    assert "no libcudart here" in on_fake_gpu(alone, PATH=path, CUDA_HOME="")
    with ldconfig.open("a") as script:
        script.write("echo '\tlibcudart.so.12 (libc6,x86-64) => /opt/cuda/lib64/libcudart.so.12'\n")
    assert on_fake_gpu(alone, PATH=path, CUDA_HOME="") == "/opt/cuda/lib64/libcudart.so.12"


def test_the_fatbin_is_laid_out_as_documented():
    code = b"\x7fELF\x02\x01\x01\x33\x07" + b"x" * 92  # 101 bytes; ABI version 7
    image = cudart.fatbin(Cubin(code, "", "sm_90"))
    assert struct.unpack_from("<IHHQ", image) == (0xBA55ED50, 1, 16, 64 + 104)
    assert struct.unpack_from("<HHIQ", image, 16) == (2, 0x0101, 64, 104)
    assert struct.unpack_from("<HHI", image, 16 + 24) == (7, 1, 90)
    assert image[80:] == code + bytes(3)


def test_the_fatbin_is_what_nvcc_makes(tmp_path):
    nvcc = shutil.which("nvcc") or pytest.skip("no nvcc on this machine")
    source = tmp_path / "empty.cu"
    source.write_text('extern "C" __global__ void empty() {}\n')
    real = ["-gencode", "arch=compute_90,code=sm_90", source]
    for form, options in [("cubin", []), ("fatbin", ["-Xfatbin", "-compress=false"])]:
        subprocess.run([nvcc, f"-{form}", *real, *options, "-o", tmp_path / form], check=True)
    cubin = Cubin((tmp_path / "cubin").read_bytes(), "", "sm_90")
    assert cudart.fatbin(cubin) == (tmp_path / "fatbin").read_bytes()


def test_what_is_registered_is_aligned_and_stays():
    first, second = cudart._keep(b"abc"), cudart._keep(bytes(200))
    assert first % 64 == second % 64 == 0
    assert ctypes.string_at(first, 3) == b"abc"


def test_the_calls_are_those_of_the_cuda_headers():
    text = cuda_headers.header("cuda_runtime_api.h")
    for name, kinds in cudart._SIGNATURES.items():
        if not name.startswith("__"):
            passed = ["dim3" if kind is cudart._Dim3 else kind for kind in kinds]
            assert passed == cuda_headers.parameters(text, name), name


def test_the_registration_is_that_of_the_cuda_headers():
    text = cuda_headers.header("crt/host_runtime.h")
    for name, kinds in cudart._SIGNATURES.items():
        if name.startswith("__"):
            assert list(kinds) == cuda_headers.parameters(text, name), name
