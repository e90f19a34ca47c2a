"""What a fresh process does for the first time: a context, a library's first call, torch's first calls.

Each function does one thing in a process that has done nothing of it, gives its steps to a Watch,
checks what came out, and returns facts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench_lib.convolution.cudnn import Cudnn
from bench_lib.convolution.cudnn_libraries import CudnnLibraries
from bench_lib.convolution.path_convolution import PathConvolution, numbers
from bench_lib.convolution.precision import Precision
from bench_lib.convolution.tuning import Tuning
from bench_lib.cublas.library import Cublas, CublasLibraries
from bench_lib.cublas.product import Product
from bench_lib.device.cudart import Runtime
from bench_lib.device.driver import Context, Driver
from bench_lib.errors import CudaGainsError, WrongResult
from bench_lib.module_loading.watch import Watch

Asked = Mapping[str, Any]
Facts = dict[str, str]
INIT, FIRST = "init", "first"
ROWS = 1024  # of the matrices
SHAPE, BATCH = "3x3-64-64-56", 16  # of the convolutions
_TF32 = 5e-3  # of what torch computes, which may be in TF32; as a share of the root mean square


def context(asked: Asked, watch: Watch) -> Facts:
    """A context from nothing: the library loaded, CUDA started, the device's primary context made."""
    if not asked["library"]:
        with watch.part(FIRST):
            made = Driver.load().open()
        return _in_effect(made, asked)
    with watch.part(FIRST):
        runtime = Runtime.load(Path(asked["library"]))
        runtime.initialise()
    return {"cudart.version": runtime.version, **_in_effect(Driver.load().open(), asked)}


def cublas(asked: Asked, watch: Watch) -> Facts:
    """cuBLAS: loading it and making a handle, then its first product."""
    opened, stream = _opened()
    found = CublasLibraries(Path(asked["cublas"]), Path(asked["cublaslt"]))
    with watch.part(INIT):
        library = Cublas.load(found, stream)
    product = Product(library, opened, asked.get("rows", ROWS))
    with watch.part(FIRST):
        product.run()
        opened.synchronize(stream)
    product.check()
    return {"cublas.version": library.version, **_in_effect(opened, asked)}


def cudnn(asked: Asked, watch: Watch) -> Facts:
    """cuDNN: loading its parts and making a handle, then choosing and running its first convolution."""
    opened, stream = _opened()

    def synchronize() -> None:
        opened.synchronize(0)
        opened.synchronize(stream)

    found = CudnnLibraries(Path(asked["cudnn"]), tuple(map(Path, asked["folders"])))
    with watch.part(INIT):
        library = Cudnn.load(found, stream)
    shape = asked.get("shape", SHAPE)
    arrays = numbers(shape, asked.get("batch", BATCH))
    made = PathConvolution(library, opened, shape, arrays, Precision.FP32, "nchw", synchronize)
    with watch.part(FIRST):
        algorithm = made.descriptors.choose(Tuning.OFF)[0]
    made.place(algorithm)
    synchronize()
    with watch.part(FIRST):
        made.run()
        synchronize()
    made.check()
    return {"cudnn.version": library.version, "algorithm": str(algorithm), **_in_effect(opened, asked)}


def torch(asked: Asked, watch: Watch) -> Facts:
    """Torch: its import, CUDA's start, its first product, then its first convolution."""
    with watch.part("import"):
        module: Any = importlib.import_module("torch")
    device = asked["device"]
    synchronize: Callable[[], Any] = module.cuda.synchronize if device == "cuda" else _nothing
    with watch.part("cuda_init"):
        if device == "cuda":
            module.cuda.init()
        module.empty(1, device=device)
        synchronize()
    product, convolution = _calls(module, device, asked)
    for name, call in (("matmul", product), ("convolution", convolution)):
        synchronize()
        with watch.part(name):
            result = call()
            synchronize()
        _check(name, result, call)
    facts = {"torch.version": str(module.__version__), "torch.cuda": str(module.version.cuda)}
    return {**facts, **(_in_effect(Driver.load().open(), asked) if device == "cuda" else {})}


def _calls(module: Any, device: str, asked: Asked) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The product and the convolution, of numbers that lie on the device; `double` is the same in fp64."""
    module.manual_seed(0)
    rows = asked.get("rows", ROWS)
    a, b = (module.randn(rows, rows).to(device) for _ in range(2))
    x, w = (
        module.from_numpy(one).to(device)
        for one in numbers(asked.get("shape", SHAPE), asked.get("batch", BATCH))
    )
    conv2d = module.nn.functional.conv2d

    def product(of: Callable[[Any], Any] = _same) -> Any:
        return module.matmul(of(a), of(b))

    def convolution(of: Callable[[Any], Any] = _same) -> Any:
        return conv2d(of(x), of(w), padding=1)

    return product, convolution


def _check(name: str, result: Any, call: Callable[..., Any]) -> None:
    """Raise WrongResult for a result that is off from the CPU's in fp64."""
    want = call(lambda tensor: tensor.cpu().double())
    error = float((result.cpu().double() - want).abs().max() / want.square().mean().sqrt())
    if not error <= _TF32:
        raise WrongResult(
            f"torch's first {name} is off by {error:.2g} of its root mean square, {_TF32:.2g} is allowed"
        )


def _same(tensor: Any) -> Any:
    return tensor


def _nothing() -> None:
    """On the CPU there is nothing to wait for."""


def _opened() -> tuple[Context, int]:
    opened = Driver.load().open()
    return opened, opened.stream()


def _in_effect(opened: Context, asked: Asked) -> Facts:
    """How code was loaded, as the driver says; CudaGainsError where that is not what was asked for."""
    opened.memory_info()  # the context works
    found, wanted = opened.driver.module_loading(), asked["loading"]
    if found not in (wanted, "unknown"):
        raise CudaGainsError(
            f"CUDA_MODULE_LOADING was set to {wanted} and the driver loads code in the way it calls {found}"
        )
    return {"module_loading": found}
