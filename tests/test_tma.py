"""Copies and products with TMA and without: their code holds what it says, and their numbers are right."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from assembling import assembled

from bench_lib.convolution.precision import Precision
from bench_lib.device.telemetry import Telemetry
from bench_lib.errors import CudaGainsError, Unavailable, WrongResult
from bench_lib.model import QUICK_POLICY, Case, Policy
from bench_lib.processes.worker import Worker
from bench_lib.running.bench import Bench, Conditions
from bench_lib.tma import attention, code, copy_ptx
from bench_lib.tma.attention import ANY, Attention, Key
from bench_lib.tma.triton_arms import Tile

NAMES = {copy_ptx.name_of(way, tile): way for way in copy_ptx.WAYS for tile in copy_ptx.TILES}
SHARED_NBYTES = 227 << 10  # that a block of a Hopper GPU can have


@pytest.fixture(scope="module")
def cubin(tmp_path_factory):
    data, names = assembled(copy_ptx.PTX, "sm_90", tmp_path_factory.mktemp("sm_90"))
    assert names == set(NAMES)
    return data


@pytest.fixture
def disassembler():
    if code.disassembler() is None:
        pytest.skip("no nvdisasm on this machine")


@pytest.mark.parametrize("sm", ["sm_100", "sm_120"])
def test_ptxas_takes_the_copies_for_later_gpus(sm, tmp_path):
    assert assembled(copy_ptx.PTX, sm, tmp_path)[1] == set(NAMES)


def test_the_machine_code_of_each_copy_loads_as_it_says(cubin, disassembler):
    seen = {"plain": r"LDG\.E\.128", "cp_async": r"LDGSTS\.", "tma": r"UBLKCP\.S\.G"}
    for name, way in NAMES.items():
        found = code.of_kernel(name, cubin, copy_ptx.PTX)
        assert found.language == "SASS"
        found.check(way)
        facts = found.facts()
        assert re.search(seen[way], facts["loads.instructions"])
        assert "BAR" not in facts["loads.waits"].replace("DEPBAR", "")
        assert ("SYNCS.PHASECHK" in facts["loads.waits"]) == (way == "tma")


def test_where_there_is_no_disassembler_the_text_is_read(cubin, monkeypatch):
    monkeypatch.setattr(code, "disassembler", lambda: None)
    for name, way in NAMES.items():
        found = code.of_kernel(name, cubin + b"read anew", copy_ptx.PTX)
        assert found.language == "PTX"
        found.check(way)
        assert ("mbarrier" in found.facts()["loads.waits"]) == (way == "tma")


@pytest.mark.parametrize("data", [b"no cubin", b""], ids=["other bytes", "nothing"])
def test_bytes_that_nothing_can_read_are_no_code(data):
    assert code.of_kernel("copy_tma_2048", data, copy_ptx.PTX).language == "PTX"


def test_a_kernel_that_loads_otherwise_than_it_says_fails(cubin):
    plain, asynchronous, tma = (
        code.of_kernel(f"copy_{way}_8192", cubin, copy_ptx.PTX) for way in ("plain", "cp_async", "tma")
    )
    with pytest.raises(CudaGainsError, match=r"loads=tma holds .* and nothing of that way"):
        plain.check("tma")
    with pytest.raises(CudaGainsError, match=r"loads=tma holds .* and nothing of that way"):
        asynchronous.check("tma")
    with pytest.raises(CudaGainsError, match=r"loads=cp_async holds (UBLKCP|cp\.async\.bulk)"):
        tma.check("cp_async")
    with pytest.raises(CudaGainsError, match="loads=plain holds"):
        asynchronous.check("plain")


# --- Triton, compiled for Hopper without one

POINTER, SIZE = "*fp16", "i32"
ALIGNED = [["tt.divisibility", 16]]  # as Triton finds it of every argument here


def compiled(kernel, signature, constants, warps):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    attributes = {(i,): ALIGNED for i, kind in enumerate(signature.values()) if kind in (POINTER, SIZE)}
    whole = {**signature, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(kernel, signature=whole, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


def descriptor(rows, columns):
    return f"tensordesc<fp16[{rows},{columns}]>"


@pytest.fixture
def kernels():
    pytest.importorskip("triton.tools.tensor_descriptor")
    from bench_lib.tma import triton_kernels

    return triton_kernels


@pytest.mark.parametrize("tile", ["128x256"])
def test_a_copy_of_triton_loads_as_it_says(kernels, tile):
    size = Tile.of(tile)
    constants = {"tile_m": size.rows, "tile_n": size.columns}
    plain = {"to": POINTER, "source": POINTER, "columns": SIZE}
    made = {
        "plain": compiled(kernels.copy_plain, plain, constants, size.warps),
        "tma": compiled(
            kernels.copy_tma,
            dict.fromkeys(("to", "source"), descriptor(size.rows, size.columns)),
            constants,
            size.warps,
        ),
    }
    check_all(made)


@pytest.mark.parametrize("tile", ["128x256x64"])
def test_a_product_of_triton_loads_as_it_says(kernels, tile):
    size = Tile.of(tile)
    constants = {"tile_m": size.rows, "tile_n": size.columns, "tile_k": size.depth}
    constants |= {"group": 8, "stages": size.stages}
    rest = {"c": POINTER, "m": SIZE, "n": SIZE}
    pointers = {"a": POINTER, "b": POINTER, **rest}
    shared = {"a": descriptor(size.rows, size.depth), "b": descriptor(size.depth, size.columns), **rest}
    made = {
        "cp_async": compiled(kernels.gemm_cp_async, pointers, constants, size.warps),
        "tma": compiled(kernels.gemm_tma, shared, constants, size.warps),
    }
    check_all(made)
    assert all("wgmma" in one.asm["ptx"] for one in made.values()), "both on Hopper's tensor cores"


def check_all(made):
    for loads, one in made.items():
        code.of_kernel(one.name, one.asm["cubin"], one.asm["ptx"]).check(loads)
        assert one.metadata.shared <= SHARED_NBYTES


@pytest.mark.parametrize(
    ("tile", "warps", "stages"), [("64x64x64", 4, 4), ("128x256x64", 8, 4), ("256x256x64", 8, 3)]
)
def test_the_steps_in_flight_fit_the_shared_memory(tile, warps, stages):
    assert (Tile.of(tile).warps, Tile.of(tile).stages) == (warps, stages)


INTERPRETED = """
import torch
from bench_lib.errors import WrongResult
from bench_lib.tma import triton_arms as arms
made = [arms.copy(torch, loads, arms.Tile.of("32x64"), 128, 192, "cpu") for loads in ("plain", "tma")]
tile = arms.Tile.of("32x64x32")
made += [arms.gemm(torch, loads, tile, 96, 192, "cpu") for loads in ("cp_async", "tma")]
for arm in made:
    try:
        arm.check()
    except WrongResult as error:
        print("before:", error)
    arm.run()
    print("after:", arm.check())
"""


def test_tritons_interpreter_gets_the_same_numbers():
    """Nothing but what one process prints: Triton reads TRITON_INTERPRET when a kernel is declared."""
    pytest.importorskip("torch")
    pytest.importorskip("triton.tools.tensor_descriptor")
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "only 0-dimensional arrays" in done.stderr:
        pytest.skip("the interpreter of this Triton does not work with this NumPy")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["before", "after"] * 4
    assert lines[0] == "before: 24576 of 24576 numbers were not copied; the copy is wrong here"
    assert "the product is off by" in lines[4]
    errors = [float(line.split()[-1].rstrip("}")) for line in lines[5::2]]
    assert all(0 < error < 0.01 for error in errors)


# --- attention

SHORT = Policy(
    "short", samples=3, budget_seconds=1.0, min_samples=2, warmup_seconds=0.0, max_warmup_seconds=0.05
)
KEY = Key("math", 64, 2, 32, 256, False, "forward", Precision.BF16, "cpu")


def key(**fields):
    return replace(KEY, **fields)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("direction", ["forward", "training"])
@pytest.mark.parametrize("backend", ["math", "flash", ANY])
def test_attention_agrees_with_fp64(backend, direction, causal):
    torch = pytest.importorskip("torch")
    made = Attention(torch, key(backend=backend, direction=direction, causal=causal))
    assert 0 < made.check() < 0.125


@pytest.mark.parametrize("direction", ["forward", "training"])
def test_a_wrong_attention_is_found(direction, monkeypatch):
    torch = pytest.importorskip("torch")
    made = Attention(torch, key(direction=direction))
    attend = made._attend

    def off():
        output = attend().clone()
        output[-1, -1, -1, -1] += 1.0
        return output

    monkeypatch.setattr(made, "_attend", off)
    with pytest.raises(WrongResult, match="output of math attention is off by"):
        made.check()


def test_a_backend_that_has_no_kernel_here_is_unavailable():
    torch = pytest.importorskip("torch")
    with pytest.raises(Unavailable, match="has no cudnn attention for this"):
        Attention(torch, key(backend="cudnn")).check()


def test_what_an_attention_counts():
    products = 2.0 * 256 * 2 * 32 * 64
    assert KEY.flop == 2 * products
    assert key(causal=True).flop == products
    assert key(direction="training").flop == 7 * products


@pytest.fixture(scope="module")
def profiling():
    pytest.importorskip("torch")
    from bench_lib.tma.attention_kernels import profiling_worker

    made = Worker(profiling_worker, "cpu")
    yield made
    made.close()


class Asked:
    """What a case asks of pytest: the process that profiles."""

    def __init__(self, profiling):
        self.getfixturevalue = {"profiling": profiling}.__getitem__


@pytest.fixture
def measured(monkeypatch):
    """Measures attention on the CPU as the benchmark file does."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return as_the_benchmark_does


def as_the_benchmark_does(profiling, policy, asked):
    import bench_tma
    import torch

    conditions = Conditions("cpu", policy, Telemetry(), lambda: None, lambda: None)
    bench = Bench(Case("tma", "attention"), 60.0, conditions)
    bench_tma.measure_attention(bench, Asked(profiling), torch, asked)
    return bench.finished()


@pytest.mark.parametrize("backend", ["math", "flash", ANY])
def test_an_attention_is_checked_and_timed_and_says_what_ran(measured, profiling, backend):
    series = measured(profiling, SHORT, key(backend=backend))
    assert len(series.seconds) >= 2
    assert series.work.flop == KEY.flop
    assert 0 < series.quantities["relative_error"] < 0.125
    assert ("attention_math" in series.facts["operators"]) == (backend == "math")


def test_a_quick_run_does_not_ask_which_kernels_ran(measured):
    pytest.importorskip("torch")
    assert measured(None, QUICK_POLICY, KEY).facts == {}


def test_another_backend_than_was_asked_for_is_a_failure(measured, profiling, monkeypatch):
    monkeypatch.setitem(attention.BACKENDS, "flash", ("FLASH_ATTENTION", "_attention_math"))
    with pytest.raises(CudaGainsError, match="flash attention was asked for, and torch ran aten::"):
        measured(profiling, SHORT, key(backend="flash"))
