"""Convolutions on a real GPU: settings agree, layouts are real, kernel names repeat, by path as by torch."""

from dataclasses import replace

import numpy as np
import pytest

from bench_lib.convolution.conv_worker import Key
from bench_lib.convolution.convolutions import Convolution
from bench_lib.convolution.cudnn import Cudnn
from bench_lib.convolution.cudnn_libraries import locate_cudnn
from bench_lib.convolution.path_convolution import PathConvolution, numbers
from bench_lib.convolution.precision import Precision, autocast, check_supported, in_precision
from bench_lib.convolution.shapes import CONV3D, shape, tolerance
from bench_lib.convolution.tuned_workers import TunedWorkers
from bench_lib.convolution.tuning import Tuning
from bench_lib.device.gpu import Gpu
from bench_lib.model import QUICK_POLICY
from bench_lib.stacking.stacks import HERE

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

SECONDS = 120.0
BATCH = 16
KEY = Key("3x3-64-64-56", BATCH, Precision.TF32, "nchw", "forward", "cuda")
NAMES = ["3x3-64-64-56", "1x1-64-256-56", "3x3-256-256-28-depthwise", CONV3D]


@pytest.fixture(scope="module")
def gpu():
    opened = Gpu.open()
    with torch.cuda.stream(torch.cuda.ExternalStream(opened.stream)):
        yield opened


@pytest.fixture(scope="module")
def workers():
    made = TunedWorkers("cuda", QUICK_POLICY)
    yield made
    made.close()


@pytest.fixture(scope="module")
def cudnn(gpu):
    opened = Cudnn.load(locate_cudnn(HERE), gpu.stream)
    yield opened
    opened.close()


def supported(gpu, precision):
    check_supported(precision, "cuda", gpu.context.compute_capability)


@pytest.mark.parametrize("direction", ["forward", "training"])
@pytest.mark.parametrize("name", NAMES)
def test_off_and_on_agree_numerically(workers, name, direction):
    key = replace(KEY, shape=name, direction=direction)
    for tuning in (Tuning.OFF, Tuning.ON, Tuning.DETERMINISTIC):
        chosen, series = workers.steady(tuning, key, SECONDS)  # checked against one fp64 reference
        assert series.facts["cudnn.benchmark"] == ("true" if tuning is Tuning.ON else "false")
        assert series.quantities["relative_error"] <= tolerance(Precision.TF32, 1)
        assert chosen.quantities["workspace_nbytes"] >= 0


@pytest.mark.parametrize("tuning", [Tuning.OFF, Tuning.DETERMINISTIC])
@pytest.mark.parametrize("name", NAMES)
def test_a_second_process_gives_the_same_kernel_names(workers, name, tuning):
    facts = workers.kernels(tuning, replace(KEY, shape=name), 2, SECONDS)
    assert not facts["kernels"].startswith("unknown")
    assert "aten::" in facts["operators"]
    assert facts["kernels.repeat"] == "same"


@pytest.mark.parametrize("name", ["3x3-64-64-56", CONV3D])
@pytest.mark.parametrize("precision", Precision)
def test_channels_last_really_is(gpu, name, precision):
    supported(gpu, precision)
    last = torch.channels_last if len(shape(name).kernel) == 2 else torch.channels_last_3d
    with in_precision(torch, precision, "cuda"):
        made = Convolution(torch, name, BATCH, precision, "channels_last", "training", "cuda")
        made.check()
        for tensor in (made.input, made.weight, made.run()[0]):
            assert tensor.is_contiguous(memory_format=last)
            assert not tensor.is_contiguous()
        assert made.run()[0].dtype is getattr(torch, precision.half or "float32")


@pytest.mark.parametrize("name", ["3x3-64-64-56", "1x1-64-256-56"])
def test_fp32_is_ieee_and_tf32_is_not(gpu, name):
    """Not what the flags say: what the numbers show."""
    supported(gpu, Precision.TF32)
    errors = {}
    for precision in (Precision.FP32, Precision.TF32):
        with in_precision(torch, precision, "cuda"):
            made = Convolution(torch, name, BATCH, precision, "nchw", "forward", "cuda")
            errors[precision], _ = made.check()
    assert errors[Precision.FP32] < 1e-4 < errors[Precision.TF32]


@pytest.mark.parametrize("tuning", [Tuning.OFF, Tuning.ON])
@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("name", ["7x7-3-64-224-s2", "3x3-256-256-14", "3x3-67-131-28"])
def test_cudnn_by_path_and_torch_agree(gpu, cudnn, name, precision, layout, tuning):
    asked = Precision(precision)
    supported(gpu, asked)

    def synchronize():
        gpu.context.synchronize(0)
        gpu.synchronize()

    arrays = numbers(name, BATCH)
    made = PathConvolution(cudnn, gpu.context, name, arrays, asked, layout, synchronize)
    try:
        made.place(made.descriptors.choose(tuning)[0])
        made.check()
        by_path = made.output(range(BATCH)).astype(np.float64)
    finally:
        made.close()
    s = shape(name)
    x, w = (torch.from_numpy(array).to("cuda", asked.dtype(torch)) for array in arrays)
    with in_precision(torch, asked, "cuda"), autocast(torch, asked, "cuda"), torch.no_grad():
        by_torch = torch.nn.functional.conv2d(x, w, stride=s.stride, padding=s.padding).double().cpu().numpy()
    error = np.abs(by_path - by_torch).max() / np.sqrt(np.mean(by_torch**2))
    assert error <= 2 * tolerance(asked, s.summed(BATCH)["output"])


def test_cudnn_knows_the_version_torch_knows(gpu, cudnn):
    number = torch.backends.cudnn.version()
    assert cudnn.version == f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    assert cudnn.cudart.split(".")[0] == torch.version.cuda.split(".")[0]
