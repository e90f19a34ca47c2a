"""Facts in comparisons: heuristic or kernel regression, changed implementations, differing bits; rates."""

import math
from dataclasses import replace

import numpy as np
import pytest
import synthetic
from synthetic import Machine, Noise, SyntheticCase

from bench_lib.comparing import compare, sides
from bench_lib.comparing.changes import Change
from bench_lib.comparing.rates import peak_teraflops, rates
from bench_lib.comparing.store import load
from bench_lib.model import Case, Series, Timing

RNG = np.random.default_rng(7)
MACHINE = Machine()
SECONDS = 100e-6


def conv(benchmark, **params):
    return Case("cudnn_selection", "conv", {"benchmark": benchmark, "precision": "fp32", **params})


def measured(case, factor=1.0, flop=None, **facts):
    """One case that takes `factor` times the usual, with its facts."""
    one = SyntheticCase(case, SECONDS * factor, timing=Timing.COLD)
    made = synthetic.measurement(one, synthetic.times(RNG, one.seconds, Noise(), 20))
    assert isinstance(made.series, Series)
    work = replace(made.series.work, flop=flop)
    return replace(made, series=replace(made.series, facts=facts, work=work))


def compared(results, old, new, rounds=10):
    """Rounds in which `old()` and `new()` give the measurements of the two stacks."""
    for number in range(rounds):
        for arm, make, version in (("old", old, "11.8"), ("new", new, "12.4")):
            info = synthetic.run_info("demo", arm, round=f"round-{number}")
            known = synthetic.identity(MACHINE, synthetic.cudart(version))
            synthetic.write_run(results, info, known, make(number))
    return compare.compare(*sides.pair("old", "new", "demo", results))


def reasons(comparison):
    return {str(row.params["benchmark"]): row.reason for row in comparison.cases}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [("ring", "nvls", "implementation changed: ring → nvls"), ("unknown: no log", "nvls", "")],
)
def test_an_algorithm_of_nccl_that_only_one_side_took_is_named(tmp_path, old, new, words):
    case = Case("allreduce", "all_reduce", {"api": "nccl", "nbytes": 8, "ranks": 2})

    def side(name):
        return lambda number: [measured(case, **{"nccl.algorithm": name})]

    (row,) = compared(tmp_path, side(old), side(new), 4).cases
    assert ("implementation changed" in row.reason) == bool(words)
    assert words in row.reason


def off_on(off=1.0, on=1.0, **facts):
    return lambda number: [measured(conv("off"), off, **facts), measured(conv("on"), on, **facts)]


def test_only_off_slower_is_a_heuristic_regression(tmp_path):
    found = reasons(compared(tmp_path, off_on(), off_on(off=1.4)))
    assert "heuristic regression: slower with benchmark=off alone" in found["off"]
    assert "regression" not in found["on"]


def test_both_slower_is_a_kernel_regression(tmp_path):
    found = reasons(compared(tmp_path, off_on(), off_on(off=1.4, on=1.4)))
    assert all("kernel regression: slower with benchmark off and on" in why for why in found.values())


def test_a_choice_that_varies_from_run_to_run_is_named_as_what_scatters(tmp_path):
    """cudnnFind takes one algorithm here and another there: no rounds settle what it is asked."""

    def side(often):
        def make(number):
            fft = number % often == 0
            return [measured(conv("on"), 1.0 if fft else 1.3, algorithm="fft" if fft else "winograd")]

        return make

    (row,) = compared(tmp_path, side(2), side(5)).cases
    assert row.change is Change.UNCLEAR
    assert row.reason.endswith("varies from run to run: fft in 5, winograd in 5 | winograd in 8, fft in 2")
    assert row.next_step.startswith("more rounds only average over what runs")


@pytest.mark.parametrize(("off", "on"), [(1.0, 1.4), (1.0, 1.0), (0.7, 0.7)])
def test_nothing_else_is_a_regression_of_either(tmp_path, off, on):
    found = reasons(compared(tmp_path, off_on(), off_on(off, on)))
    assert not any("regression" in why for why in found.values())


def test_an_unclear_partner_names_no_culprit(tmp_path):
    noisy = [measured(conv("on"), 1 + 0.3 * RNG.standard_normal()) for _ in range(10)]
    found = compared(
        tmp_path,
        lambda number: [measured(conv("off")), measured(conv("on"))],
        lambda number: [measured(conv("off"), 1.4), noisy[number]],
    )
    assert "regression" not in reasons(found)["off"]


def test_without_the_other_setting_there_is_no_verdict(tmp_path):
    found = compared(tmp_path, lambda _: [measured(conv("off"))], lambda _: [measured(conv("off"), 1.4)])
    assert "regression" not in reasons(found)["off"]


def test_other_kernels_are_named(tmp_path):
    found = reasons(compared(tmp_path, off_on(kernels="winograd"), off_on(kernels="implicit_gemm")))
    assert "implementation changed: winograd → implicit_gemm" in found["off"]


def test_so_are_algorithms_by_path_and_long_names_are_cut(tmp_path):
    found = reasons(compared(tmp_path, off_on(algorithm="x" * 300), off_on(algorithm="direct/fma")))
    assert f"implementation changed: {'x' * 89}… → direct/fma" in found["off"]


def test_a_choice_that_varies_by_itself_is_no_change(tmp_path):
    def varying(number):
        return [measured(conv("on"), kernels=f"kernel-{number % 2}")]

    found = reasons(compared(tmp_path, varying, lambda _: [measured(conv("on"), kernels="kernel-1")]))
    assert "implementation" not in found["on"]


def test_bits_that_differ_are_counted(tmp_path):
    def side(checksum):
        return lambda _: [
            measured(conv("off"), checksum=checksum),
            measured(conv("on"), checksum="same"),
            measured(conv("deterministic")),
        ]

    notes = compared(tmp_path, side("1"), side("2"), rounds=3).notes
    assert "the bits of the output differ in 1 of 2 cases that were checked on both sides" in notes


def test_without_checksums_nothing_is_said_of_bits(tmp_path):
    assert not any("bits" in note for note in compared(tmp_path, off_on(), off_on(), rounds=3).notes)


def test_rates_are_derived_from_flop_and_the_median_time(tmp_path):
    info = synthetic.run_info("demo", "old")
    rows = [measured(conv("off"), flop=670e6 / 2), measured(conv("on"))]
    synthetic.write_run(tmp_path, info, synthetic.identity(MACHINE), rows)
    found = rates(load(tmp_path, ["demo"]))
    assert list(found["case_id"]) == [conv("off").case_id]  # the other counts no FLOP
    assert found["teraflops"][0] == pytest.approx(3.35, rel=0.02)
    assert found["share"][0] == pytest.approx(0.05, rel=0.02)  # of 67 TFLOP/s fp32
    assert found["seconds"][0] == pytest.approx(SECONDS, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "precision", "peak"),
    [
        ("NVIDIA H200", "fp32", 67.0),
        ("NVIDIA H100 80GB HBM3", "bf16-autocast", 989.4),
        ("NVIDIA H100 PCIe", "tf32", 378.0),
        ("NVIDIA A100-SXM4-80GB", "fp16", 312.0),
        ("NVIDIA L4", "tf32", 60.0),
        ("NVIDIA L40S", "tf32", 183.0),
        ("Tesla V100-SXM2-16GB", "tf32", math.nan),
        ("NVIDIA GeForce RTX 9999", "fp32", math.nan),
        ("NVIDIA H200", "int8", math.nan),
    ],
)
def test_peaks_by_name_and_precision(gpu, precision, peak):
    assert peak_teraflops(gpu, precision) == pytest.approx(peak, nan_ok=True)
