"""cuDNN's convolution calls through ctypes, without torch: the same library, asked directly.

The legacy API (cudnn_cnn.h), because it is the one that cuDNN 8 and 9 share: descriptors, the two
ways to choose an algorithm, the workspace it wants, and the forward convolution. Handles,
descriptors and device pointers are plain integers.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from bench_lib.convolution import cudnn_libraries
from bench_lib.convolution.cudnn_libraries import CudnnLibraries
from bench_lib.convolution.precision import Precision
from bench_lib.convolution.shapes import Shape
from bench_lib.convolution.tuning import Tuning
from bench_lib.errors import CudaError, CudaGainsError, NotApplicable, Unavailable
from bench_lib.identity import libraries
from bench_lib.units import cudnn_version_text

# cudnn_ops.h, cudnn_cnn.h: enumerations.
_FLOAT, _HALF = 0, 2
_NCHW, _NHWC = 0, 1
_CROSS_CORRELATION = 1  # what every framework calls a convolution
MATH = ("default", "tensor-op", "tensor-op-conversion", "fma")
_DEFAULT, _TENSOR_OP, _, _FMA = range(4)
ALGORITHMS = (
    "implicit-gemm", "implicit-precomp-gemm", "gemm", "direct",
    "fft", "fft-tiling", "winograd", "winograd-nonfused",
)  # fmt: skip

# The math that keeps each promise: FMA allows no tensor cores at all; the default allows TF32 for
# fp32 data from the A100 on; tensor-op allows tensor cores for fp16 data.
_MATH_OF = MappingProxyType({Precision.FP32: _FMA, Precision.TF32: _DEFAULT, Precision.FP16: _TENSOR_OP})

# Status codes of cuDNN 8 (under 1000) and 9.
_NOT_SUPPORTED = {9, *range(3000, 4000)}
_ALLOCATION_FAILED = {2, 4003, 4004}

_HANDLE = _DESCRIPTOR = _POINTER = c_void_p
# fmt: off
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (_POINTER,), "cudnnDestroy": (_HANDLE,), "cudnnSetStream": (_HANDLE, c_void_p),
    **{f"cudnn{verb}{kind}Descriptor": (_POINTER if verb == "Create" else _DESCRIPTOR,)
       for verb in ("Create", "Destroy") for kind in ("Tensor", "Filter", "Convolution")},
    "cudnnSetTensorNdDescriptor": (_DESCRIPTOR, c_int, c_int, _POINTER, _POINTER),
    "cudnnSetFilterNdDescriptor": (_DESCRIPTOR, c_int, c_int, c_int, _POINTER),
    "cudnnSetConvolutionNdDescriptor": (_DESCRIPTOR, c_int, _POINTER, _POINTER, _POINTER, c_int, c_int),
    "cudnnSetConvolutionMathType": (_DESCRIPTOR, c_int),
    "cudnnSetConvolutionGroupCount": (_DESCRIPTOR, c_int),
    "cudnnGetConvolutionForwardAlgorithm_v7": (_HANDLE, *(_DESCRIPTOR,) * 4, c_int, _POINTER, _POINTER),
    "cudnnFindConvolutionForwardAlgorithm": (_HANDLE, *(_DESCRIPTOR,) * 4, c_int, _POINTER, _POINTER),
    "cudnnGetConvolutionForwardWorkspaceSize": (_HANDLE, *(_DESCRIPTOR,) * 4, c_int, _POINTER),
    "cudnnConvolutionForward": (
        _HANDLE, _POINTER, _DESCRIPTOR, c_void_p, _DESCRIPTOR, c_void_p, _DESCRIPTOR, c_int,
        c_void_p, c_size_t, _POINTER, _DESCRIPTOR, c_void_p,
    ),
}
# fmt: on


class _Perf(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t."""

    _fields_ = [
        ("algo", c_int), ("status", c_int), ("time_ms", c_float), ("memory", c_size_t),
        ("determinism", c_int), ("math", c_int), ("reserved", c_int * 3),
    ]  # fmt: skip


@dataclass(frozen=True)
class Algorithm:
    """One way cuDNN offers for a convolution; `seconds` is None unless cuDNN tried it."""

    number: int
    math: int
    seconds: float | None
    workspace_nbytes: int
    deterministic: bool

    def __str__(self) -> str:
        name = ALGORITHMS[self.number] if self.number < len(ALGORITHMS) else f"algorithm {self.number}"
        return f"{name}/{MATH[self.math]}"


class Cudnn:
    """A loaded cuDNN with a handle on one stream of the current context."""

    def __init__(self, cdll: ctypes.CDLL, stream: int) -> None:
        self._cdll = cdll
        self._functions: dict[str, Any] = {}
        self._handle = c_void_p()
        self.call("cudnnCreate", ctypes.byref(self._handle))
        self.call("cudnnSetStream", self._handle, stream)

    @classmethod
    def load(cls, libraries: CudnnLibraries, stream: int) -> Self:
        """Load by path and make a handle; the CUDA context of `stream` must be current.

        Raises Unavailable when a library is missing, CudaGainsError when cuDNN refuses.
        """
        return cls(cudnn_libraries.load(libraries), stream)

    @property
    def version(self) -> str:
        """Such as 9.1.0."""
        ask = self._cdll["cudnnGetVersion"]
        ask.restype = c_size_t
        return cudnn_version_text(int(ask()))

    @property
    def cudart(self) -> str:
        """The CUDA runtime it was built with, such as 12.4."""
        return libraries.cudnn_cuda(self._cdll)

    def close(self) -> None:
        """Give the handle back."""
        self.call("cudnnDestroy", self._handle)

    def convolution(self, shape: Shape, batch: int, precision: Precision, layout: str) -> "CudnnConvolution":
        """The descriptors of one forward convolution; `layout` is nchw or channels_last."""
        return CudnnConvolution(self, self._handle, shape, batch, precision, layout)

    def make(self, kind: str) -> c_void_p:
        """A new descriptor: Tensor, Filter or Convolution."""
        descriptor = c_void_p()
        self.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(descriptor))
        return descriptor

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; what cuDNN does not support is NotApplicable, no memory is CudaError 2."""
        status = self._function(name)(*arguments)
        if status == 0:
            return
        if status in _ALLOCATION_FAILED:
            raise CudaError(name, CudaError.OUT_OF_MEMORY, self._text(status))
        error = NotApplicable if status in _NOT_SUPPORTED else CudaGainsError
        raise error(f"{name} of cuDNN {self.version} returned {status} ({self._text(status)})")

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            try:
                function = self._cdll[name]
            except AttributeError:
                raise Unavailable(f"this cuDNN ({self.version}) has no {name}; use cuDNN 8 or 9") from None
            function.argtypes = _SIGNATURES[name]
            self._functions[name] = function
        return self._functions[name]

    def _text(self, status: int) -> str:
        ask = self._cdll["cudnnGetErrorString"]
        ask.restype = c_char_p
        return (ask(status) or b"").decode()


class CudnnConvolution:
    """One forward convolution of a `Cudnn`: choose an algorithm, then run it on device pointers."""

    def __init__(
        self, cudnn: Cudnn, handle: c_void_p, shape: Shape, batch: int, precision: Precision, layout: str
    ) -> None:
        if precision not in _MATH_OF:
            raise NotApplicable(f"cuDNN by path is measured in {', '.join(_MATH_OF)}, not in {precision}")
        self._cudnn, self._handle, self._precision = cudnn, handle, precision
        self._one, self._zero = c_float(1.0), c_float(0.0)
        element = _HALF if precision is Precision.FP16 else _FLOAT
        channels_last = layout == "channels_last"
        self._x, self._y = cudnn.make("Tensor"), cudnn.make("Tensor")
        self._w, self._convolution = cudnn.make("Filter"), cudnn.make("Convolution")
        for descriptor, sizes in [
            (self._x, (batch, shape.c_in, *shape.image)),
            (self._y, (batch, shape.c_out, *shape.output)),
        ]:
            steps = _ints(strides(sizes, channels_last))
            cudnn.call("cudnnSetTensorNdDescriptor", descriptor, element, len(sizes), _ints(sizes), steps)
        form = _NHWC if channels_last else _NCHW
        weight = _ints(shape.weight)
        cudnn.call("cudnnSetFilterNdDescriptor", self._w, element, form, len(weight), weight)
        n = len(shape.kernel)
        spread = (_ints((value,) * n) for value in (shape.padding, shape.stride, shape.dilation))
        cudnn.call(
            "cudnnSetConvolutionNdDescriptor", self._convolution, n, *spread, _CROSS_CORRELATION, _FLOAT
        )
        cudnn.call("cudnnSetConvolutionGroupCount", self._convolution, shape.groups)

    def choose(self, tuning: Tuning) -> list[Algorithm]:
        """What cuDNN offers, best first: by its heuristic (off), or timed by itself (on).

        Raises NotApplicable when nothing on offer keeps the precision.
        """
        self._set_math(_MATH_OF[self._precision])
        how = "Find" if tuning is Tuning.ON else "Get"
        name = f"cudnn{how}ConvolutionForwardAlgorithm{'' if tuning is Tuning.ON else '_v7'}"
        results, count = (_Perf * len(ALGORITHMS))(), c_int()
        self._cudnn.call(name, self._handle, *self._descriptors(), len(results), ctypes.byref(count), results)
        offered = [self._algorithm(perf) for perf in results[: count.value] if perf.status == 0]
        kept = [a for a in offered if self._precision is not Precision.FP32 or a.math == _FMA]
        if not kept:
            raise NotApplicable(f"cuDNN {self._cudnn.version} offers no algorithm in {self._precision} here")
        return kept

    def _algorithm(self, perf: _Perf) -> Algorithm:
        seconds = perf.time_ms * 1e-3 if perf.time_ms > 0 else None
        # Under FMA the default math cannot use TF32 either: cuDNN reports it where it makes no odds.
        fma = self._precision is Precision.FP32 and perf.math == _DEFAULT
        return Algorithm(perf.algo, _FMA if fma else perf.math, seconds, perf.memory, perf.determinism == 1)

    def prepare(self, algorithm: Algorithm) -> int:
        """Take the algorithm's math; bytes of workspace it wants."""
        self._set_math(algorithm.math)
        nbytes = c_size_t()
        self._cudnn.call(
            "cudnnGetConvolutionForwardWorkspaceSize",
            self._handle, *self._descriptors(), algorithm.number, ctypes.byref(nbytes),
        )  # fmt: skip
        return nbytes.value

    def forward(self, algorithm: Algorithm, x: int, w: int, y: int, workspace: int, nbytes: int) -> None:
        """Queue y = convolution of x and w; all are device pointers."""
        self._cudnn.call(
            "cudnnConvolutionForward",
            self._handle, ctypes.byref(self._one), self._x, x, self._w, w, self._convolution,
            algorithm.number, workspace, nbytes, ctypes.byref(self._zero), self._y, y,
        )  # fmt: skip

    def close(self) -> None:
        """Give the descriptors back."""
        for kind, made in [("Tensor", self._x), ("Tensor", self._y), ("Filter", self._w)]:
            self._cudnn.call(f"cudnnDestroy{kind}Descriptor", made)
        self._cudnn.call("cudnnDestroyConvolutionDescriptor", self._convolution)

    def _descriptors(self) -> tuple[c_void_p, ...]:
        return (self._x, self._w, self._convolution, self._y)

    def _set_math(self, math: int) -> None:
        self._cudnn.call("cudnnSetConvolutionMathType", self._convolution, math)


def strides(sizes: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Strides in elements of (batch, channels, image...), dense in either layout."""
    order = [0, *range(2, len(sizes)), 1] if channels_last else range(len(sizes))
    found, step = [0] * len(sizes), 1
    for axis in reversed(list(order)):
        found[axis], step = step, step * sizes[axis]
    return tuple(found)


def _ints(values: Sequence[int]) -> ctypes.Array[c_int]:
    return (c_int * len(values))(*values)
