"""A forward convolution of cuDNN by path with its numbers on the device, checked without torch."""

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench_lib.convolution.cudnn import Algorithm, Cudnn
from bench_lib.convolution.precision import Precision
from bench_lib.convolution.shapes import DRAWN, Shape, shape, tolerance
from bench_lib.device.driver import Context
from bench_lib.errors import WrongResult

Array = np.ndarray[Any, Any]
_POINTS = 1024


def numbers(name: str, batch: int) -> tuple[Array, Array]:
    """Input and weight of a shape in fp32, NCHW: normal, seeded by its name (see `shapes.DRAWN`)."""
    wanted, rng = shape(name), np.random.default_rng(zlib.crc32(name.encode()))
    few = rng.standard_normal((min(batch, DRAWN), wanted.c_in, *wanted.image), dtype=np.float32)
    x = few[np.arange(batch) % len(few)]
    w = rng.standard_normal(wanted.weight, dtype=np.float32)
    return x, w / np.float32(math.sqrt(math.prod(wanted.weight[1:])))


class PathConvolution:
    """One forward convolution; `run` is the work of a case and nothing else."""

    def __init__(
        self,
        cudnn: Cudnn,
        memory: Context,
        name: str,
        arrays: tuple[Array, Array],
        precision: Precision,
        layout: str,
        synchronize: Callable[[], object],
    ) -> None:
        """`arrays` are those of `numbers`: of the images that repeat, the first of each is worked on.

        `synchronize` waits for copies and for cuDNN's stream.
        """
        self.shape: Shape = shape(name)
        self._synchronize = synchronize
        self.precision = precision
        self._memory, self._channels_last = memory, layout == "channels_last"
        self._dtype = np.dtype(np.float16 if precision is Precision.FP16 else np.float32)
        x, w = arrays
        self._batch = len(x)
        self._few, self._weight = (one.astype(self._dtype, copy=False) for one in (x[:DRAWN], w))
        self.flop = self.shape.flop(self._batch)
        self.descriptors = cudnn.convolution(self.shape, self._batch, precision, layout)
        self._pointers: list[int] = []
        self._run: Callable[[], None] | None = None
        self.workspace_nbytes = 0

    def place(self, algorithm: Algorithm) -> None:
        """Put the numbers on the device and take the workspace that the algorithm asks for."""
        x, w = self._put(self._few, self._batch), self._put(self._weight, len(self._weight))
        self._output = self._take(self._batch * self._image_nbytes)
        self.workspace_nbytes = self.descriptors.prepare(algorithm)
        workspace = self._take(self.workspace_nbytes) if self.workspace_nbytes else 0
        arguments = (algorithm, x, w, self._output, workspace, self.workspace_nbytes)
        self._run = lambda: self.descriptors.forward(*arguments)

    def run(self) -> None:
        """Queue one call."""
        assert self._run is not None, "place() comes first"
        self._run()

    def check(self) -> tuple[float, str]:
        """Run once; the largest error at some points of the first and last image, and a checksum.

        The checksum is of these two images. Raises WrongResult for numbers outside the tolerance.
        """
        images = sorted({0, self._batch - 1})
        for number in images:  # NaN, so that what stood there before cannot pass for a result
            self._memory.upload(self._place_of(number), b"\xff" * self._image_nbytes)
        self._synchronize()
        self.run()
        got = self.output(images)
        points, want = self._expected(images)
        error = np.abs(got.astype(np.float64)[tuple(points.T)] - want).max() / np.sqrt(np.mean(want**2))
        allowed = tolerance(self.precision, self.shape.summed(self._batch)["output"])
        if not (error <= allowed and np.isfinite(got).all()):
            raise WrongResult(
                f"the output is off by {error:.2g} of its root mean square, {self.precision} allows "
                f"{allowed:.2g}; this cuDNN computes wrong numbers here"
            )
        return float(error), f"{zlib.crc32(np.ascontiguousarray(got).tobytes()):08x}"

    def output(self, images: Sequence[int]) -> Array:
        """These images of the output as the last `run` left it: (image, channel, place...)."""
        self._synchronize()
        return np.stack([self._image(number) for number in images])

    def close(self) -> None:
        """Give memory and descriptors back."""
        for pointer in self._pointers:
            self._memory.free(pointer)
        self._pointers.clear()
        self.descriptors.close()

    @property
    def _image_nbytes(self) -> int:
        return self.shape.c_out * math.prod(self.shape.output) * self._dtype.itemsize

    def _place_of(self, image: int) -> int:
        return self._output + image * self._image_nbytes

    def _take(self, nbytes: int) -> int:
        self._pointers.append(self._memory.alloc(nbytes))
        return self._pointers[-1]

    def _put(self, array: Array, rows: int) -> int:
        """New device memory with so many rows: those of the array, again and again."""
        data = (np.moveaxis(array, 1, -1) if self._channels_last else array).tobytes()
        nbytes = rows * (len(data) // len(array))
        pointer = self._take(nbytes)
        for start in range(0, nbytes, len(data)):
            self._memory.upload(pointer + start, data[: nbytes - start])
        return pointer

    def _image(self, number: int) -> Array:
        """One image of the output, channels first."""
        data = self._memory.download(self._place_of(number), self._image_nbytes)
        flat, image = np.frombuffer(data, self._dtype), self.shape.output
        if self._channels_last:
            return np.moveaxis(flat.reshape(*image, self.shape.c_out), -1, 0)
        return flat.reshape(self.shape.c_out, *image)

    def _expected(self, images: list[int]) -> tuple[Array, Array]:
        """Points (image, channel, place...) of the output, corners among them, and their values."""
        s, rng = self.shape, np.random.default_rng(0)
        repeated = [image % len(self._few) for image in images]
        x, w = (array.astype(np.float64) for array in (self._few[repeated], self._weight))
        padding = [(0, 0), (0, 0), *((s.padding, s.padding),) * len(s.kernel)]
        x = np.pad(x, padding)
        sizes = (len(images), s.c_out, *s.output)
        points = rng.integers(0, sizes, (_POINTS, len(sizes)))
        points[0], points[-1] = 0, np.array(sizes) - 1
        return points, np.array([self._value(x, w, *point) for point in points.tolist()])

    def _value(self, x: Array, w: Array, image: int, channel: int, *place: int) -> float:
        s, width = self.shape, w.shape[1]
        first = channel // (s.c_out // s.groups) * width
        window = [
            slice(at * s.stride, at * s.stride + s.dilation * (k - 1) + 1, s.dilation)
            for at, k in zip(place, s.kernel, strict=True)
        ]
        part = x[image, first : first + width]
        return float((part[(slice(None), *window)] * w[channel]).sum())
