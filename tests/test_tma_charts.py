"""The charts of the family tma show the rates of what was measured, beside the device's peaks."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import synthetic
from figures import assert_readable, in_one_line, points

from bench_lib.claims import judged
from bench_lib.claims.derived import values
from bench_lib.claims.words import Verdict
from bench_lib.comparing.rates import peak_bandwidth, peak_link
from bench_lib.comparing.replicates import replicates
from bench_lib.comparing.store import Data
from bench_lib.errors import UsageError
from bench_lib.model import Case, Timing, Work
from bench_lib.tma_charts.attention import attention_backends
from bench_lib.tma_charts.tiles import tma_tiles

Timed = tuple[Case, float, Work]
Facts = Mapping[str, Mapping[str, str]]
NO_FACTS: Facts = MappingProxyType({})
COPIED = Work(nbytes=512e6)
PACES = {"plain": 0.80, "cp_async": 0.82, "tma": 0.90}  # share of an H200's 4800 GB/s


def copies() -> Iterator[Timed]:
    for tile in (2048, 16384):
        for loads, share in PACES.items():
            case = Case("tma", "copy_ptx", {"tile": tile, "loads": loads, "nbytes": 256000000})
            yield case, 512e6 / (share * 4.8e12), COPIED
    for loads in ("plain", "tma"):
        case = Case("tma", "copy", {"tile": "64x64", "loads": loads})
        yield case, 512e6 / (PACES[loads] * 4.8e12), COPIED


def products() -> Iterator[Timed]:
    for m in (128, 4096):
        work = Work(flop=2.0 * m * 4096**2, nbytes=2 * (2 * m * 4096 + 4096**2))
        for loads, share in (("cp_async", 0.5), ("tma", 0.6)):
            params = {"m": m, "n": 4096, "tile": "128x256x64", "loads": loads, "precision": "fp16"}
            yield Case("tma", "gemm", params), work.flop / (share * 989.4e12), work


def attentions() -> Iterator[Timed]:
    for direction, products in (("forward", 2), ("training", 7)):
        flop = products * 2.0 * 16384 * 16 * 128 * 2048
        params = {"sequence": 2048, "head_size": 128, "causal": False, "direction": direction}
        params |= {"precision": "bf16", "heads": 16, "tokens": 16384}
        for backend, rate in (("cudnn", 600e12), ("flash", 400e12), ("math", 30e12)):
            yield Case("tma", "attention", {**params, "backend": backend}), flop / rate, Work(flop=flop)
        yield Case("tma", "attention_default", params), flop / 600e12, Work(flop=flop)


def write(
    results: Path, runs: int, cases: Iterable[Timed], gpu: str = "NVIDIA H200", facts: Facts = NO_FACTS
) -> Data:
    made = (
        synthetic.SyntheticCase(
            case, seconds, timing=Timing.COLD, work=work, facts=facts.get(case.case_id, {})
        )
        for case, seconds, work in cases
    )
    return synthetic.write_here(results, "hopper", runs, made, machine=synthetic.Machine(gpu_name=gpu))


@pytest.mark.parametrize("runs", [1, 4])
def test_rates_by_tile_beside_the_peaks(tmp_path, runs):
    figure = tma_tiles(write(tmp_path, runs, [*copies(), *products()]))
    copied, multiplied = points(figure, 0), points(figure, 1)
    ptx, triton = "Copy, kernels in PTX: bytes of a tile", "Copy of an fp16 matrix in Triton: tile"
    assert copied[f"{ptx}; 16384: tma"] == pytest.approx(0.90 * 4800, rel=0.03)
    assert copied[f"{ptx}; 2048: cp_async"] == pytest.approx(0.82 * 4800, rel=0.03)
    assert copied[f"{triton}; 64x64: plain"] == pytest.approx(0.80 * 4800, rel=0.03)
    few_rows = "128 x 4096 times 4096 x 4096 in Triton, fp16: tile; 128x256x64"
    assert multiplied[f"{few_rows}: tma"] == pytest.approx(0.6 * 989.4, rel=0.03)
    told = in_one_line(figure)
    assert "the line is the data sheet's peak, 4,800" in told
    assert "the line is the data sheet's peak, 989" in told
    assert "Through TMA: copies 1." in told
    assert ("(1 run)" in told) == (runs == 1)
    assert ("[1.0" in told) == (runs == 4), "intervals need three runs"
    assert_readable(figure)


def test_an_unknown_gpu_has_no_peak_and_copies_alone_one_panel(tmp_path):
    figure = tma_tiles(write(tmp_path, 3, copies(), gpu="NVIDIA Z1"))
    assert len(figure.axes) == 1
    assert figure.axes[0].get_xlabel() == "GB/s"
    assert_readable(figure)


@pytest.mark.parametrize("runs", [1, 4])
def test_attention_by_backend(tmp_path, runs):
    figure = attention_backends(write(tmp_path, runs, attentions()))
    found = points(figure, 0)
    forward = "Forward, heads of 128; 2048 tokens a sequence"
    assert found[f"{forward}: cudnn"] == pytest.approx(600, rel=0.03)
    assert found[f"{forward.replace('Forward', 'Forward and backward')}: math"] == pytest.approx(30, rel=0.03)
    assert found[f"{forward}: torch's own choice"] == pytest.approx(600, rel=0.03)
    assert "FlashAttention" in in_one_line(figure)
    assert "bf16, 16 heads, 16,384 tokens a batch." in in_one_line(figure)
    assert "(forward, heads of 128, 2048 tokens a sequence): " in in_one_line(figure)
    assert_readable(figure)


@pytest.mark.parametrize(
    ("draw", "cases"), [(tma_tiles, attentions()), (attention_backends, copies())], ids=["tiles", "attention"]
)
def test_what_was_not_measured_is_not_drawn(tmp_path, draw, cases):
    with pytest.raises(UsageError, match="measure the family tma"):
        draw(write(tmp_path, 1, cases))


def test_the_published_claims_are_judged_on_it(tmp_path):
    waits = {"plain": "none", "cp_async": "DEPBAR.LE", "tma": "DEPBAR.LE; SYNCS.PHASECHK.TRANS64.TRYWAIT"}
    made = [*copies(), *products(), *attentions()]
    facts = {
        case.case_id: {"operators": "aten::_scaled_dot_product_cudnn_attention"}
        if case.op == "attention_default"
        else {"loads.waits": waits[str(case.params["loads"])]}
        for case, _, _ in made
        if case.op in ("attention_default", "copy_ptx")
    }
    write(tmp_path, 4, made, facts=facts)
    found = {str(one.claim.id): one for one in judged.verdicts(tmp_path, ["hopper"]).claims}
    assert found["tma-bandwidth-utilization"].verdict is Verdict.REFUTED
    assert "no case comes near it" in found["tma-bandwidth-utilization"].reason
    assert found["tma-no-syncthreads"].verdict is Verdict.MIXED
    assert found["tma-via-cudnn9-automatic"].verdict is Verdict.SUPPORTED


def test_the_share_of_the_memorys_peak_is_derived_when_read(tmp_path):
    data = write(tmp_path, 1, copies())
    shares = values("memory_share", data, replicates(data).values)
    by_case = dict(zip(shares["case_id"], shares["value"], strict=True))
    assert by_case["tma/copy_ptx[loads=tma,nbytes=256000000,tile=2048]"] == pytest.approx(0.90, rel=0.03)
    assert peak_bandwidth("NVIDIA H100 PCIe") == 2000
    assert [peak_link(f"NVIDIA {name}") for name in ("H100 80GB HBM3", "H100 NVL")] == [450, 300]
    assert np.isnan(peak_bandwidth("NVIDIA L40"))
