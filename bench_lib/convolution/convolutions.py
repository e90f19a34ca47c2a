"""One convolution in torch: made from a seed, run, and checked against an fp64 reference.

torch is handed in, so that importing this loads none.
"""

import math
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any

from bench_lib.convolution.precision import Precision, autocast
from bench_lib.convolution.shapes import DRAWN, Shape, shape, tolerance
from bench_lib.convolution.tuning import without_cudnn
from bench_lib.errors import Unavailable, WrongResult

Tensor = Any
_CHUNK = 1 << 22
_WRAP = 65521  # the largest prime under 2**16


class Convolution:
    """One convolution with its inputs on the device; `run` is the work of a case and nothing else.

    `name` is a shape of `shapes.SHAPES`, `layout` nchw or channels_last, `direction` forward or
    training (forward, then the gradients of input and weight). The numbers depend on name and batch
    alone: normal, seeded, made on the CPU so that every stack and device gets the same bits.
    """

    def __init__(
        self,
        torch: Any,
        name: str,
        batch: int,
        precision: Precision,
        layout: str,
        direction: str,
        device: str,
    ) -> None:
        self.shape: Shape = shape(name)
        self.precision = precision
        self.batch = batch
        self._torch, self._device, self._training = torch, device, direction == "training"
        self._format = _memory_format(torch, layout, len(self.shape.kernel))
        self._function = getattr(torch.nn.functional, f"conv{len(self.shape.kernel)}d")
        self.flop = self.shape.flop(batch, direction)
        few, weight, *gradient = _drawn(torch, name, min(batch, DRAWN), self._training)
        self.input = self._batch(few)
        fan_in = math.prod(self.shape.weight[1:])
        self.weight = self._placed(weight * fan_in**-0.5)
        self._gradient: Tensor = None
        if self._training:
            dtype = getattr(torch, precision.half or "float32")
            self._gradient = self._batch(*gradient).to(dtype)
            self.input.requires_grad_()
            self.weight.requires_grad_()

    def _batch(self, few: Tensor) -> Tensor:
        """A batch of these images, again and again (see `shapes.DRAWN`)."""
        times = -(-self.batch // len(few))
        return self._placed(few.to(self._device).repeat(times, *(1,) * (few.dim() - 1))[: self.batch])

    def _placed(self, numbers: Tensor) -> Tensor:
        return numbers.to(self._device, self.precision.dtype(self._torch)).contiguous(
            memory_format=self._format
        )

    def run(self) -> tuple[Tensor, ...]:
        """One call: the output, and in training the gradients of input and weight."""
        with autocast(self._torch, self.precision, self._device):
            output = self._convolve(self.input, self.weight)
        if not self._training:
            return (output,)
        gradients = self._torch.autograd.grad(output, (self.input, self.weight), self._gradient)
        return (output, *gradients)

    def _convolve(self, x: Tensor, w: Tensor) -> Tensor:
        s = self.shape
        return self._function(x, w, stride=s.stride, padding=s.padding, dilation=s.dilation, groups=s.groups)

    def reference(self) -> tuple[Tensor, ...]:
        """The same in fp64 by torch's own kernels, from the numbers the case starts from."""
        torch = self._torch
        with ExitStack() as stack:
            if self._device == "cuda":
                stack.enter_context(without_cudnn(torch))
            x, w = (
                t.detach().double().contiguous().requires_grad_(self._training)
                for t in (self.input, self.weight)
            )
            output = self._convolve(x, w)
            if not self._training:
                return (output,)
            return (output.detach(), *torch.autograd.grad(output, (x, w), self._gradient.double()))

    def check(self, run: Callable[[], tuple[Tensor, ...]] | None = None) -> tuple[float, str]:
        """Run once and compare: the largest error (see `shapes.tolerance`) and a checksum.

        Raises WrongResult for numbers outside their tolerance or another memory format, Unavailable where
        a CPU has no kernels that keep that format. `run` is for planting a fault.
        """
        results = (run or self.run)()
        self._check_formats(results[0])
        summed = self.shape.summed(self.batch)
        errors = []
        for (what, length), got, want in zip(summed.items(), results, self.reference(), strict=False):
            error, allowed = relative_error(got, want), tolerance(self.precision, length)
            if not error <= allowed:
                raise WrongResult(
                    f"the {what} is off by {error:.2g} of its root mean square, {self.precision} allows "
                    f"{allowed:.2g}; this convolution computes wrong numbers here"
                )
            errors.append(error)
        return max(errors), "-".join(checksum(self._torch, result) for result in results)

    def _check_formats(self, output: Tensor) -> None:
        for what, tensor in [("input", self.input), ("weight", self.weight), ("output", output)]:
            if tensor.is_contiguous(memory_format=self._format):
                continue
            if self._device == "cpu" and self.precision.half:  # what CPUs without AVX-512 have is plain loops
                raise Unavailable(
                    f"torch has no kernels on this CPU that keep {self._format} in {self.precision}"
                )
            raise WrongResult(
                f"the {what} has strides {tuple(tensor.stride())}, which is not {self._format}; "
                "this torch does not keep the layout that was asked for"
            )


@cache
def _drawn(torch: Any, name: str, images: int, training: bool) -> tuple[Tensor, ...]:
    """Normal numbers on the CPU, drawn once a process: input, weight, and in training the gradient."""
    wanted = shape(name)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    sizes = [(images, wanted.c_in, *wanted.image), wanted.weight, (images, wanted.c_out, *wanted.output)]
    return tuple(torch.randn(size, generator=generator) for size in sizes[: 2 + training])


def checksum(torch: Any, tensor: Tensor) -> str:
    """64 bits that depend on every bit of the tensor and its place, whatever the memory format.

    Integer sums that wrap: the same on every device, in any order of summation.
    """
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    flat = tensor.detach().contiguous().view(integers).flatten()
    total = 0
    for start in range(0, flat.numel(), _CHUNK):
        chunk = flat[start : start + _CHUNK].to(torch.int64)
        place = torch.arange(start, start + chunk.numel(), device=flat.device) % _WRAP + 1
        total += int((chunk * place).sum())
    return f"{total % 2**64:016x}"


def relative_error(got: Tensor, want: Tensor) -> float:
    """The largest difference, in units of the root mean square of what is wanted; NaN stays NaN."""
    return float((got.detach().double() - want).abs().max() / want.square().mean().sqrt())


def _memory_format(torch: Any, layout: str, dimensions: int) -> Any:
    if layout == "nchw":
        return torch.contiguous_format
    return torch.channels_last if dimensions == 2 else torch.channels_last_3d
