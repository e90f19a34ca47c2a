"""One product of two square matrices in fp32 on the device, queued through cuBLAS and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench_lib.errors import WrongResult

if TYPE_CHECKING:
    from bench_lib.cublas.library import Cublas
    from bench_lib.device.driver import Context

_DEFAULT_STREAM = 0  # of copies
_COLUMNS = 4  # of the result that are checked
# A sum of n products of normal numbers in fp32, whatever its order: its error stays far below this
# share of the sum's own size (Higham, Accuracy and Stability of Numerical Algorithms, 3.1: about
# sqrt(n) roundings of 6e-8). TF32, with 5e-4 a product, does not pass for it.
_TOLERANCE = 2e-5


class Product:
    """C = A B; seeded normal numbers, the matrices stored by columns."""

    def __init__(self, cublas: Cublas, context: Context, n: int) -> None:
        rng = np.random.default_rng(0)
        self._arrays = tuple(rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
        self._cublas, self._context, self._n = cublas, context, n
        self._nbytes = 4 * n * n
        self._pointers = [context.alloc(self._nbytes) for _ in range(3)]
        for pointer, array in zip(self._pointers, self._arrays, strict=False):
            context.upload(pointer, array.tobytes(order="F"))
        self.spoil()

    @property
    def flop(self) -> float:
        """Of one product: a multiplication and an addition for each of n^3 pairs."""
        return 2.0 * self._n**3

    def run(self) -> None:
        """Queue one product."""
        self._cublas.multiply(self._n, *self._pointers)

    def spoil(self) -> None:
        """Fill the result with NaN, so that what stood there cannot pass for a new one.

        A copy from pageable memory returns once it is on its way, and other streams do not wait for it.
        """
        self._context.upload(self._pointers[2], b"\xff" * self._nbytes)
        self._context.synchronize(_DEFAULT_STREAM)

    def check(self) -> float:
        """The largest error of some columns, as a share of their root mean square; WrongResult beyond.

        All work must have ended.
        """
        data = self._context.download(self._pointers[2], self._nbytes)
        got = np.frombuffer(data, np.float32).reshape((self._n, self._n), order="F")
        columns = np.linspace(0, self._n - 1, _COLUMNS).astype(int)
        a, b = (array.astype(np.float64) for array in self._arrays)
        want = a @ b[:, columns]
        error = float(np.abs(got[:, columns] - want).max() / np.sqrt(np.mean(want**2)))
        if not (error <= _TOLERANCE and np.isfinite(got).all()):
            raise WrongResult(
                f"the matrix product is off by {error:.2g} of its root mean square, fp32 allows "
                f"{_TOLERANCE:.2g}; this cuBLAS computes wrong numbers here, or not in fp32"
            )
        return error

    def close(self) -> None:
        """Give the memory back."""
        for pointer in self._pointers:
            self._context.free(pointer)
        self._pointers.clear()
