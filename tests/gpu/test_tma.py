"""The family tma on a real GPU: its code holds what it says, numbers are right, and rates are possible."""

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from plugin_runs import rows, run_benchmarks

from bench_lib.comparing.rates import peak_bandwidth, peak_teraflops
from bench_lib.device import kernels
from bench_lib.device.gpu import Gpu, detect
from bench_lib.errors import CudaGainsError
from bench_lib.tma import code, copy_ptx
from bench_lib.tma.copies import Copies

ROOT = Path(__file__).parents[2]
FILE = "benchmarks/bench_tma.py"
ODD_NBYTES = 1000 * 16384  # a number of tiles that no grid divides

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def hopper() -> str:
    found = detect()
    if not found.available:
        pytest.skip(f"needs a GPU: {found.reason}")
    if float(found.compute_capability) < 9:
        pytest.skip(f"needs Hopper or later: {found.name} has {found.compute_capability}")
    return found.name


@pytest.fixture(scope="module")
def copies():
    gpu = Gpu.open()
    made = Copies(gpu, kernels.cubin(gpu.context, ptx=copy_ptx.PTX))
    yield made
    made.close()


@pytest.mark.parametrize("tile", copy_ptx.TILES)
@pytest.mark.parametrize("way", copy_ptx.WAYS)
def test_every_copy_is_right_whatever_the_number_of_tiles(copies, way, tile):
    found = copies.code(way, tile)
    found.check(way)
    if code.disassembler() is not None:
        assert found.language == "SASS"
    for nbytes in (16384, 3 * 16384, ODD_NBYTES, 64 << 20):
        run = copies.by(way, tile, nbytes)
        for _ in range(3):
            run()
        copies.check()


def test_a_kernel_of_another_way_is_refused(copies):
    with pytest.raises(CudaGainsError, match="nothing of that way"):
        copies.code("plain", 8192).check("tma")
    with pytest.raises(CudaGainsError, match="it does not measure what it says"):
        copies.code("tma", 8192).check("plain")


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> list[dict]:
    """Cases of one run as rows, with their params, their facts and the median of their samples."""
    results = tmp_path_factory.mktemp("tma")
    asked = ["--require-gpu", "-k", "2048 or 8192 or 128x128 or 128x256x64"]
    campaign = run_benchmarks(results, FILE, *asked)
    cases, samples = rows(campaign, "cases"), pq.read_table(campaign / "samples").to_pandas()
    seconds = samples.groupby("case_id", observed=True)["seconds"].median()
    return [
        {
            **json.loads(row["params"]),
            **row,  # last: `nbytes` is what is moved, read and written, not the parameter
            "facts": dict(row["facts"]),
            "seconds": seconds.get(row["case_id"]),
        }
        for row in cases
    ]


def test_nothing_fails(measured):
    bad = [row for row in measured if row["status"] not in ("ok", "skipped")]
    assert not bad, [(row["case_id"], row["status"], row["reason"]) for row in bad]
    assert any(row["status"] == "ok" and row["op"] == "copy_ptx" for row in measured)


def test_tma_is_in_the_code_of_the_arms_that_claim_it_and_of_no_other(measured):
    arms = [row for row in measured if row["status"] == "ok" and "loads" in row]
    for row in arms:
        instructions = row["facts"]["loads.instructions"]
        has = any(name in instructions for name in ("UBLKCP", "UTMALDG", "cp.async.bulk"))
        assert has == (row["loads"] == "tma"), (row["case_id"], instructions)
    assert {row["loads"] for row in arms} >= {"plain", "cp_async", "tma"}


def test_rates_are_below_the_peaks_and_those_of_copies_not_far_below(measured, hopper, capsys):
    for row in (row for row in measured if row["status"] == "ok"):
        copied = row["op"].startswith("copy")
        rate = row["nbytes" if copied else "flop"] / row["seconds"]
        peak = 1e9 * peak_bandwidth(hopper) if copied else 1e12 * peak_teraflops(hopper, "fp16")
        with capsys.disabled():
            told = f"{rate / 1e9:.0f} GB/s" if copied else f"{rate / 1e12:.0f} TFLOP/s"
            print(f"\n{row['case_id']}: {row['seconds'] * 1e6:.1f} us, {told}")
        if not math.isnan(peak):  # a little above is possible: the last bytes written may still be in L2
            assert (0.4 * peak if copied else 0) < rate < 1.05 * peak, row["case_id"]


def test_the_kernels_of_an_attention_are_those_of_its_backend(measured, capsys):
    attentions = [row for row in measured if row["op"] == "attention" and row["status"] == "ok"]
    if not attentions:
        pytest.skip("; ".join({row["reason"] for row in measured if row["op"] == "attention"}))
    for row in attentions:
        with capsys.disabled():
            print(f"\n{row['case_id']}: {row['facts'].get('kernels', 'not asked')}")
        assert not row["facts"]["kernels"].startswith("unknown"), row["case_id"]
    cudnn = [row["facts"]["kernels"] for row in attentions if row["backend"] == "cudnn"]
    assert all("cudnn" in kernels for kernels in cudnn)


def test_triton_is_measured_wherever_it_is(measured):
    pytest.importorskip("torch")
    pytest.importorskip("triton.tools.tensor_descriptor")
    rows = [row for row in measured if row["op"] in ("copy", "gemm")]
    assert {(row["status"], row["reason"]) for row in rows} == {("ok", "")}
