"""Kernels in Triton that differ in how they load: through tensor descriptors, so by TMA, or by pointers.

Matrices are row by row and whole numbers of tiles in size, so that nothing is masked. Sizes of tiles are
constants of a kernel.
"""

import triton
import triton.language as tl


@triton.jit
def copy_plain(to, source, columns, tile_m: tl.constexpr, tile_n: tl.constexpr):
    """One tile of a matrix with so many columns, loaded into registers and stored."""
    rows = tl.program_id(1) * tile_m + tl.arange(0, tile_m)
    at = rows.to(tl.int64)[:, None] * columns + tl.program_id(0) * tile_n + tl.arange(0, tile_n)[None, :]
    tl.store(to + at, tl.load(source + at))


@triton.jit
def copy_tma(to, source, tile_m: tl.constexpr, tile_n: tl.constexpr):
    """One tile, loaded and stored through descriptors."""
    row, column = tl.program_id(1) * tile_m, tl.program_id(0) * tile_n
    to.store([row, column], source.load([row, column]))


@triton.jit
def _corner(m, n, tile_m: tl.constexpr, tile_n: tl.constexpr, group: tl.constexpr):
    """First row and column of this program's tile; programs of a group share rows of a and columns of b."""
    across = tl.cdiv(n, tile_n)
    first = tl.program_id(0) // (group * across) * group
    height = tl.minimum(tl.cdiv(m, tile_m) - first, group)
    inside = tl.program_id(0) % (group * across)
    return (first + inside % height) * tile_m, inside // height * tile_n


@triton.jit
def _store(c, total, row, column, n, tile_m: tl.constexpr, tile_n: tl.constexpr):
    """The same for both products, as it is their loads that are compared."""
    at = (row + tl.arange(0, tile_m))[:, None] * n + (column + tl.arange(0, tile_n))[None, :]
    tl.store(c + at, total.to(c.dtype.element_ty))


@triton.jit
def gemm_cp_async(
    a,
    b,
    c,
    m,
    n,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    group: tl.constexpr,
    stages: tl.constexpr,
):
    """One tile of c = a @ b, m x n by n x n, loaded by pointers; Triton pipelines the loads as cp.async."""
    row, column = _corner(m, n, tile_m, tile_n, group)
    ks = tl.arange(0, tile_k)
    a_at = a + (row + tl.arange(0, tile_m))[:, None] * n + ks[None, :]
    b_at = b + ks[:, None] * n + (column + tl.arange(0, tile_n))[None, :]
    total = tl.zeros((tile_m, tile_n), tl.float32)
    for _ in tl.range(0, n, tile_k, num_stages=stages):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += tile_k
        b_at += tile_k * n
    _store(c, total, row, column, n, tile_m, tile_n)


@triton.jit
def gemm_tma(
    a,
    b,
    c,
    m,
    n,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    group: tl.constexpr,
    stages: tl.constexpr,
):
    """The same, loaded through descriptors of a and b."""
    row, column = _corner(m, n, tile_m, tile_n, group)
    total = tl.zeros((tile_m, tile_n), tl.float32)
    for k in tl.range(0, n, tile_k, num_stages=stages):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    _store(c, total, row, column, n, tile_m, tile_n)
