"""What loading through Hopper's tensor memory accelerator (TMA) gives, and attention by torch's backends.

Copies and products of matrices that differ in nothing but `loads`: `plain` loads into registers, `cp_async`
(the asynchronous copies of the GPUs before), `tma`; read them with `--contrast loads=cp_async:tma`. The code
of each kernel is looked at before it is timed: one that loads otherwise than it says fails. All times are of
the device on a cold L2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.errors import CudaGainsError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench_lib.device.gpu import Gpu
    from bench_lib.processes.worker import Worker
    from bench_lib.tma.attention import Key
    from bench_lib.tma.copies import Copies
    from bench_lib.tma.triton_arms import Arm

FAMILY = "tma"
MARGIN = 0.02
COPIED = pytest.mark.parametrize("nbytes", [256 << 20])  # far over any L2
COLUMNS = 8192  # of the fp16 matrix that is copied


@pytest.fixture(scope="module", autouse=True)
def hopper(gpu: Gpu) -> None:
    """Skips everything on a GPU without the accelerator."""
    major, minor = gpu.context.compute_capability
    if major < 9:
        raise Unavailable(
            f"GPUs have a tensor memory accelerator from compute capability 9.0 on, {gpu.context.name} has "
            f"{major}.{minor}"
        )


@pytest.fixture(scope="module")
def copies(gpu: Gpu, campaign_folder: Path) -> Iterator[Copies]:
    """The copy kernels of this family, one cubin a campaign, and their buffers."""
    from bench_lib.device import kernels
    from bench_lib.tma import copy_ptx
    from bench_lib.tma.copies import Copies

    made = Copies(gpu, kernels.cubin(gpu.context, campaign_folder, copy_ptx.PTX))
    yield made
    made.close()


@pytest.mark.core(tile=8192)
@pytest.mark.parametrize("loads", ["plain", "cp_async", "tma"])
@pytest.mark.parametrize("tile", [2048, 4096, 8192, 16384])
@COPIED
def bench_copy_ptx(bench, copies: Copies, nbytes: int, tile: int, loads: str) -> None:
    """A copy in tiles of so many bytes, by kernels written in PTX: needs neither torch nor Triton."""
    code = copies.code(loads, tile)
    code.check(loads)
    bench.facts(code.facts())
    bench(copies.by(loads, tile, nbytes), timing="cold", nbytes=2 * nbytes, check=lambda _: copies.check())


@pytest.fixture(scope="module")
def triton(torch) -> None:
    """Skips what needs Triton's tensor descriptors where there are none."""
    from bench_lib.tma.triton_arms import check_triton

    check_triton()


@pytest.fixture(autouse=True)
def emptied(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a case of torch took goes back to the device after it."""
    yield
    if "torch" in request.fixturenames:
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def measure_arm(bench: Any, arm: Arm, loads: str) -> None:
    """Look at the code, check the result, then measure."""
    code = arm.code()
    code.check(loads)
    bench.facts(code.facts())
    for name, value in arm.check().items():
        bench.quantity(name, value)
    bench(arm.run, timing="cold", flop=arm.flop, nbytes=arm.nbytes)


@pytest.mark.core(tile="128x128")
@pytest.mark.parametrize("loads", ["plain", "tma"])
@pytest.mark.full(tile="64x128")
@pytest.mark.parametrize("tile", ["64x64", "64x128", "128x128", "128x256"])
@COPIED
def bench_copy(bench, torch, triton, nbytes: int, tile: str, loads: str) -> None:
    """A copy of an fp16 matrix by Triton, a tile a program; with `tma` stored through descriptors too."""
    from bench_lib.tma import triton_arms

    arm = triton_arms.copy(torch, loads, triton_arms.Tile.of(tile), nbytes // COLUMNS // 2, COLUMNS)
    measure_arm(bench, arm, loads)


@pytest.mark.core(tile="128x256x64", m=4096)
@pytest.mark.full(m=8192)
@pytest.mark.parametrize("precision", ["fp16"])
@pytest.mark.parametrize("loads", ["cp_async", "tma"])
@pytest.mark.parametrize("tile", ["64x64x64", "128x128x64", "128x256x64"])
@pytest.mark.parametrize(("m", "n"), [(128, 4096), (4096, 4096), (8192, 8192)])
def bench_gemm(bench, torch, triton, m: int, n: int, tile: str, loads: str, precision: str) -> None:
    """m x n times n x n by Triton, summed in fp32; few rows are bound by memory, many by the tensor cores."""
    from bench_lib.tma import triton_arms

    arm = triton_arms.gemm(torch, loads, triton_arms.Tile.of(tile), m, n)
    measure_arm(bench, arm, loads)


@pytest.fixture(scope="module")
def profiling(torch) -> Iterator[Worker]:
    """A process that says which kernels an attention ran: after profiling, none is fit for timing."""
    from bench_lib.processes.worker import Worker
    from bench_lib.tma.attention_kernels import profiling_worker

    made = Worker(profiling_worker, "cuda")
    made.up()
    yield made
    made.close()


def measure_attention(bench: Any, request: pytest.FixtureRequest, torch: Any, key: Key) -> None:
    """Check and measure, then ask which kernels ran: another backend than was asked for is a failure.

    --quick does not ask: the process for it takes as long as all its cases.
    """
    from bench_lib.tma.attention import Attention, check_ran

    made = Attention(torch, key)
    bench.quantity("relative_error", made.check())
    with made.backend():
        bench(made.run, timing="cold", flop=key.flop)
    if bench.policy.name == "quick":
        return
    try:
        facts = request.getfixturevalue("profiling").ask(key, bench.budget_seconds).facts()
    except (CudaGainsError, MemoryError) as error:  # the times stand without the names
        bench.warn(f"the kernels could not be asked for: {error}")
        return
    check_ran(key.backend, facts["operators"])
    bench.facts(facts)


@pytest.fixture
def key(tokens, sequence, heads, head_size, causal, direction, precision) -> Callable[[str], Key]:
    """Backend -> what is measured."""
    from bench_lib.convolution.precision import Precision
    from bench_lib.tma.attention import Key

    return lambda backend: Key(
        backend, sequence, heads, head_size, tokens, causal, direction, Precision(precision), "cuda"
    )


ATTENTION = (
    pytest.mark.parametrize("precision", ["bf16"]),
    pytest.mark.parametrize("tokens", [16384]),  # of a batch, at every length of its sequences
    pytest.mark.parametrize("heads", [16]),
    pytest.mark.parametrize("head_size", [128, pytest.param(64, marks=pytest.mark.full)]),
    pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.full)]),
    pytest.mark.parametrize("direction", ["forward", "training"]),
    pytest.mark.parametrize("sequence", [512, 2048, 8192]),
    pytest.mark.full(sequence=[512, 8192]),
    pytest.mark.core(sequence=2048, direction="forward", head_size=128, causal=False),
)


def attention(function: Any) -> Any:
    """The parameters of every attention."""
    for mark in ATTENTION:
        function = mark(function)
    return function


@attention
@pytest.mark.parametrize("backend", ["flash", "cudnn", "efficient", "math"])
def bench_attention(bench, request, torch, key, backend: str) -> None:
    """Attention by one of torch's backends, and the kernels it ran."""
    measure_attention(bench, request, torch, key(backend))


@attention
def bench_attention_default(bench, request, torch, key) -> None:
    """Attention by the backend that torch chooses when it is not told."""
    from bench_lib.tma.attention import ANY

    measure_attention(bench, request, torch, key(ANY))
