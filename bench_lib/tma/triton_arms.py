"""Triton's copy and product of matrices, with descriptors and without: made, run, checked.

torch is handed in, so that importing this loads none; Triton's kernels are imported when the first is made.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench_lib.compiling import compile_preflight
from bench_lib.convolution.convolutions import relative_error
from bench_lib.convolution.precision import Precision
from bench_lib.convolution.shapes import tolerance
from bench_lib.errors import Unavailable, WrongResult
from bench_lib.tma.code import Code, of_kernel

_GROUP = 8  # rows of tiles that are walked together
_SEED = 20240305
_LARGE = 128 * 128  # numbers of a tile from which on eight warps share it
_ITEM_NBYTES = 2  # fp16


@dataclass(frozen=True)
class Tile:
    """What one program works on: rows and columns of the result, and of a product how deep at once."""

    rows: int
    columns: int
    depth: int = 0

    @classmethod
    def of(cls, text: str) -> Tile:
        """`128x64` of a copy, `128x256x64` of a product."""
        return cls(*map(int, text.split("x")))

    @property
    def warps(self) -> int:
        """Warps a program, the same for all ways to load."""
        return 8 if self.rows * self.columns >= _LARGE else 4

    @property
    def stages(self) -> int:
        """Steps of a product in flight: what fits 192 KiB of the 227 KiB of shared memory, 4 at most."""
        return min(4, (192 << 10) // (_ITEM_NBYTES * self.depth * (self.rows + self.columns)))


def check_triton() -> None:
    """Raise Unavailable, one sentence, unless this Triton has tensor descriptors and can build a launcher."""
    compile_preflight.check("cuda", what="a kernel in Triton")
    import triton

    if importlib.util.find_spec("triton.tools.tensor_descriptor") is None:
        raise Unavailable(
            f"Triton {triton.__version__} has no tensor descriptors, by which it loads through TMA; 3.4 has"
        )


@dataclass
class Arm:
    """A Triton kernel with its arguments, and how to tell whether it did right."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: Mapping[str, int]
    check: Callable[[], Mapping[str, float]]  # the quantities that it found; raises WrongResult
    flop: float | None
    nbytes: float

    def run(self) -> Any:
        """One call; the kernel as Triton compiled it."""
        return self.kernel[self.grid](*self.arguments, **self.constants)

    def code(self) -> Code:
        """Run once and tell what the kernel is made of; Unavailable where its tile does not fit the GPU."""
        from triton.runtime.errors import OutOfResources

        try:
            compiled = self.run()
        except OutOfResources as error:
            raise Unavailable(f"the tile is too large for this GPU: {error}") from None
        return of_kernel(compiled.name, compiled.asm["cubin"], compiled.asm["ptx"])


def copy(torch: Any, loads: str, tile: Tile, rows: int, columns: int, device: str = "cuda") -> Arm:
    """A copy of an fp16 matrix, `loads` plain or tma."""
    from bench_lib.tma import triton_kernels

    source = _numbers(torch, rows, columns, device)
    target = torch.zeros_like(source)
    constants = {"tile_m": tile.rows, "tile_n": tile.columns, "num_warps": tile.warps}
    grid = (columns // tile.columns, rows // tile.rows)

    def check() -> dict[str, float]:
        wrong = int((target != source).sum())
        if wrong:
            raise WrongResult(f"{wrong} of {source.numel()} numbers were not copied; the copy is wrong here")
        return {}

    arguments: tuple[Any, ...] = (target, source, columns)
    if loads == "tma":
        arguments = tuple(_descriptor(matrix, tile.rows, tile.columns) for matrix in (target, source))
    kernel = triton_kernels.copy_tma if loads == "tma" else triton_kernels.copy_plain
    return Arm(kernel, grid, arguments, constants, check, None, 2 * _ITEM_NBYTES * rows * columns)


def gemm(torch: Any, loads: str, tile: Tile, m: int, n: int, device: str = "cuda") -> Arm:
    """c = a @ b in fp16, summed in fp32: a is m x n, b n x n; `loads` cp_async or tma."""
    from bench_lib.tma import triton_kernels

    a, b = _numbers(torch, m, n, device), _numbers(torch, n, n, device) * n**-0.5
    c = torch.zeros_like(a)
    constants = {"tile_m": tile.rows, "tile_n": tile.columns, "tile_k": tile.depth, "group": _GROUP}
    constants |= {"stages": tile.stages, "num_warps": tile.warps}
    grid = (math.ceil(m / tile.rows) * math.ceil(n / tile.columns),)

    def check() -> dict[str, float]:
        error, allowed = relative_error(c, a.double() @ b.double()), tolerance(Precision.FP16, n)
        if not error <= allowed:
            raise WrongResult(
                f"the product is off by {error:.2g} of its root mean square, fp16 allows {allowed:.2g}"
            )
        return {"relative_error": error}

    arguments: tuple[Any, ...] = (a, b, c, m, n)
    if loads == "tma":
        shared = _descriptor(a, tile.rows, tile.depth), _descriptor(b, tile.depth, tile.columns)
        arguments = (*shared, c, m, n)
    kernel = triton_kernels.gemm_tma if loads == "tma" else triton_kernels.gemm_cp_async
    nbytes = _ITEM_NBYTES * (2 * m * n + n * n)
    return Arm(kernel, grid, arguments, constants, check, 2.0 * m * n * n, nbytes)


def _numbers(torch: Any, rows: int, columns: int, device: str) -> Any:
    """Seeded normal numbers, drawn on the device: nothing here is compared bit by bit over stacks."""
    generator = torch.Generator(device).manual_seed(_SEED + rows)
    return torch.randn((rows, columns), generator=generator, device=device, dtype=torch.float16)


def _descriptor(matrix: Any, rows: int, columns: int) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), [rows, columns])
