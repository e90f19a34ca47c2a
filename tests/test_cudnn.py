"""cuDNN by path against a pretended one: found, loaded whole or refused, asked and checked."""

import ctypes
import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import fake_cuda
import fake_cudnn
import numpy as np
import pytest

from bench_lib.convolution.cudnn import strides
from bench_lib.convolution.cudnn_libraries import CudnnLibraries, locate_cudnn
from bench_lib.errors import NotApplicable, Unavailable
from bench_lib.stacking.stacks import HERE, StackEntry

pytestmark = pytest.mark.skipif(fake_cuda.compiler() is None, reason="needs a C compiler")

# A process of its own for each: a process holds one cuDNN, and the wrong one ends it.
CHILD = """
import ctypes, json, sys
from pathlib import Path
import numpy as np
from bench_lib.convolution.cudnn import Cudnn
from bench_lib.convolution.cudnn_libraries import CudnnLibraries
from bench_lib.errors import CudaGainsError
from bench_lib.convolution.path_convolution import PathConvolution, numbers
from bench_lib.convolution.precision import Precision
from bench_lib.convolution.tuning import Tuning

class Memory:
    kept = {}
    def alloc(self, nbytes):
        buffer = ctypes.create_string_buffer(nbytes)
        self.kept[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)
    def free(self, pointer):
        del self.kept[pointer]
    def upload(self, pointer, data):
        ctypes.memmove(pointer, data, len(data))
    def download(self, pointer, nbytes):
        return ctypes.string_at(pointer, nbytes)

def load(path):
    site = Path(path).parents[3]
    return Cudnn.load(CudnnLibraries(Path(path), (site / "nvidia/cublas/lib",)), stream=7)

def convolve(cudnn, name, precision, layout, tuning="off", batch=2):
    arrays, asked = numbers(name, batch), Precision(precision)
    made = PathConvolution(cudnn, Memory(), name, arrays, asked, layout, synchronize=lambda: None)
    algorithm = made.descriptors.choose(Tuning(tuning))[0]
    made.place(algorithm)
    error, checksum = made.check()
    found = [str(algorithm), made.workspace_nbytes, error, checksum]
    made.close()
    assert not Memory.kept
    return found
"""


def child(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    script = CHILD + "try:\n" + textwrap.indent(textwrap.dedent(code), "    ")
    script += "\nexcept CudaGainsError as error:\n    sys.exit(f'{type(error).__name__}: {error}')"
    command = [sys.executable, "-W", "error", "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def answer(code: str, *arguments: object, **environment: str):
    done = child(code, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return fake_cudnn.build(tmp_path_factory.mktemp("cudnn"))


@pytest.fixture
def broken(library, tmp_path):
    """A copy that tests may take libraries away from."""
    shutil.copytree(library.parents[2], tmp_path / "nvidia")
    return tmp_path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"


def test_versions(library):
    code = "cudnn = load(sys.argv[1]); print(json.dumps([cudnn.version, cudnn.cudart])); cudnn.close()"
    assert answer(code, library) == ["9.1.0", "12.0"]


@pytest.mark.parametrize(
    ("name", "precision", "layout"),
    [
        ("3x3-67-131-28", "fp32", "nchw"),
        ("5x5-3-13-112", "tf32", "channels_last"),
        ("3x3-256-256-28-depthwise", "fp16", "channels_last"),
        ("3x3-128-128-56-groups32", "fp16", "nchw"),
        ("7x7-3-64-224-s2", "fp32", "channels_last"),
    ],
)
def test_numbers_agree_with_the_reference(library, name, precision, layout):
    code = "print(json.dumps(convolve(load(sys.argv[1]), *sys.argv[2:])))"
    algorithm, workspace, error, _ = answer(code, library, name, precision, layout)
    math = "fma" if precision == "fp32" else "tensor-op"
    assert algorithm == f"implicit-precomp-gemm/{math}"
    assert workspace == 1024
    assert 0 < error < (3e-3 if precision == "fp16" else 1e-6)


def test_a_convolution_of_three_dimensions(library):
    code = """
        name = "3x3x3-32-64-8x28x28"
        print(json.dumps(convolve(load(sys.argv[1]), name, "fp32", "channels_last", batch=1)))
    """
    assert answer(code, library)[2] < 1e-6


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_a_batch_lies_on_the_device_as_it_was_drawn(library, layout):
    """Nine images of which seven differ, and a weight that does not repeat."""
    code = """
        import numpy as np
        name, layout, batch = "5x5-3-13-112", sys.argv[2], 9
        arrays = numbers(name, batch)
        made = PathConvolution(
            load(sys.argv[1]), Memory(), name, arrays, Precision.FP16, layout, synchronize=lambda: None
        )
        made.place(made.descriptors.choose(Tuning.OFF)[0])
        found = []
        for pointer, array in zip(Memory.kept, arrays):
            wanted = array if layout == "nchw" else np.moveaxis(array, 1, -1)
            data = ctypes.string_at(pointer, len(Memory.kept[pointer]))
            found.append(data == wanted.astype(np.float16).tobytes())
        print(json.dumps([*found, arrays[0].shape[0], made.check()[0]]))
    """
    x, w, batch, error = answer(code, library, layout)
    assert (x, w, batch) == (True, True, 9)
    assert error < 3e-3


def test_both_layouts_give_the_same_checksum(library):
    code = """
        cudnn = load(sys.argv[1])
        found = [convolve(cudnn, "5x5-3-13-112", "fp16", layout)[3] for layout in ("nchw", "channels_last")]
        print(json.dumps(found))
    """
    first, second = answer(code, library)
    assert first == second


def test_find_offers_what_was_timed_best_first_skipping_what_failed(library):
    code = """
        from bench_lib.convolution.shapes import shape
        made = load(sys.argv[1]).convolution(shape("3x3-67-131-28"), 2, Precision.TF32, "nchw")
        on, off = made.choose(Tuning.ON), made.choose(Tuning.OFF)
        found = [[str(a), a.seconds, a.deterministic] for a in on] + [[str(a), a.seconds] for a in off]
        print(json.dumps(found))
    """
    assert answer(code, library) == [
        ["implicit-gemm/tensor-op", pytest.approx(0.25e-3), True],
        ["gemm/tensor-op", pytest.approx(0.75e-3), False],
        ["implicit-precomp-gemm/tensor-op", None],
        ["gemm/tensor-op", None],
    ]


def test_fp32_never_takes_an_algorithm_with_tensor_cores(library):
    code = """
        cudnn = load(sys.argv[1])
        print(json.dumps([convolve(cudnn, "5x5-3-13-112", "fp32", "nchw", t) for t in ("off", "on")]))
    """
    off, on = answer(code, library, FAKE_CUDNN_LEAK="1")
    assert (off[0], on[0]) == ("implicit-precomp-gemm/fma", "implicit-gemm/fma")


@pytest.mark.parametrize("fault", ["FAKE_CUDNN_WRONG", "FAKE_CUDNN_STALE"])
def test_a_wrong_result_is_found(library, fault):
    done = child("convolve(load(sys.argv[1]), '5x5-3-13-112', 'fp32', 'nchw')", library, **{fault: "1"})
    assert done.stderr.startswith("WrongResult: the output is off by")


@pytest.mark.parametrize(
    ("status", "error"), [("3002", "NotApplicable"), ("4004", "CudaError"), ("2000", "CudaGainsError")]
)
def test_errors_are_named(library, status, error):
    code = "convolve(load(sys.argv[1]), '5x5-3-13-112', 'fp32', 'nchw')"
    done = child(code, library, FAKE_CUDNN_STATUS=status)
    assert done.stderr.startswith(f"{error}: cudnnGetConvolutionForwardAlgorithm_v7")


def test_bf16_is_not_a_case_of_cudnn_by_path(library):
    done = child("convolve(load(sys.argv[1]), '5x5-3-13-112', 'bf16', 'nchw')", library)
    assert done.stderr.startswith("NotApplicable: cuDNN by path is measured in fp32, tf32, fp16")


@pytest.mark.parametrize("part", fake_cudnn.PARTS)
def test_a_missing_part_is_refused_with_its_name(broken, part):
    (broken.parent / f"libcudnn_{part}.so.9").unlink()
    done = child("load(sys.argv[1])", broken)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Unavailable: {broken.parent}/libcudnn_{part}.so.9 is missing")


def test_without_cublaslt_of_its_major_it_is_refused_rather_than_aborted(broken):
    lt = broken.parents[2] / "cublas" / "lib" / "libcublasLt.so.12"
    lt.rename(lt.with_name("libcublasLt.so.11"))
    done = child("load(sys.argv[1])", broken)
    assert done.returncode == 1
    assert "is built for CUDA 12 and would end the process without libcublasLt.so.12" in done.stderr


def test_the_pretended_cudnn_does_abort_without_cublaslt(broken):
    """Else the test above would prove nothing."""
    (broken.parents[2] / "cublas" / "lib" / "libcublasLt.so.12").unlink()
    code = """
        for part in ("graph", "cnn"):
            ctypes.CDLL(f"{Path(sys.argv[1]).parent}/libcudnn_{part}.so.9", mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(sys.argv[1]).cudnnCreate(ctypes.byref(ctypes.c_void_p()))
    """
    assert child(code, broken).returncode == -6


def test_a_second_cudnn_in_one_process_is_refused(library, broken):
    done = child("load(sys.argv[1]); load(sys.argv[2])", library, broken)
    assert done.stderr.startswith(f"Unavailable: this process has loaded {library.resolve()} already")


def test_a_damaged_library_is_refused(broken):
    (broken.parent / "libcudnn_graph.so.9").write_bytes(b"not a library")
    done = child("load(sys.argv[1])", broken)
    assert done.stderr.startswith(f"Unavailable: {broken.parent}/libcudnn_graph.so.9 cannot be loaded")


def test_located_beside_torch(library, monkeypatch):
    site = library.parents[3]
    monkeypatch.setattr(sys, "path", [str(site)])
    assert locate_cudnn(HERE) == CudnnLibraries(library, (site / "nvidia" / "cublas" / "lib",))


def test_a_cuda_13_layout_is_found(library, tmp_path, monkeypatch):
    shutil.copytree(library.parents[1], tmp_path / "nvidia" / "cudnn")
    (tmp_path / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert locate_cudnn(HERE).folders == (tmp_path / "nvidia" / "cu13" / "lib",)


def test_no_cudnn_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"^no libcudnn here: .* install torch's CUDA build"):
        locate_cudnn(HERE)


def test_a_cudart_stack_holds_no_cudnn():
    with pytest.raises(NotApplicable, match=r"stack cudart-12\.4 holds no cuDNN"):
        locate_cudnn(StackEntry("cudart-12.4", "cudart"))


def test_strides_of_both_layouts():
    array = np.zeros((2, 3, 5, 7), np.int8)
    assert strides(array.shape, channels_last=False) == array.strides
    moved = np.zeros((2, 5, 7, 3), np.int8)
    assert strides(array.shape, channels_last=True) == np.moveaxis(moved, -1, 1).strides


def test_the_real_cudnn_takes_the_descriptors():
    """Where pip has put one, GPU or not: it loads whole, tells its version and knows the calls."""
    try:
        found = locate_cudnn(HERE)
    except Unavailable as error:
        pytest.skip(str(error))
    code = """
        import bench_lib.convolution.cudnn as module
        from bench_lib.convolution import cudnn_libraries
        from bench_lib.stacking import stacks
        from bench_lib.convolution.shapes import SHAPES
        cdll = cudnn_libraries.load(cudnn_libraries.locate_cudnn(stacks.HERE))
        class WithoutGpu(Cudnn):
            def call(self, name, *arguments):
                if name not in ("cudnnCreate", "cudnnSetStream"):
                    super().call(name, *arguments)
        cudnn = WithoutGpu(cdll, 0)
        for shape in SHAPES.values():
            for layout in ("nchw", "channels_last"):
                cudnn.convolution(shape, 64, Precision.FP16, layout).close()
        print(json.dumps([cudnn.version, cudnn.cudart]))
    """
    version, cudart = answer(code)
    assert version.startswith(f"{found.major}.")
    assert int(cudart.split(".")[0]) in (11, 12, 13)


def test_the_struct_is_as_cudnn_declares_it():
    from bench_lib.convolution import cudnn

    assert ctypes.sizeof(cudnn._Perf) == 48  # cudnn_cnn.h on a 64-bit system
