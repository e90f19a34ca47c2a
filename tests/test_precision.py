"""Precision and tuning flags on stubs of torch 2.0, 2.6, 2.9, 2.14 and a later one, and on torch itself."""

import copy

import pytest
import stub_torch

from bench_lib.convolution.precision import Precision, autocast, check_supported, in_precision
from bench_lib.convolution.tuning import Tuning, in_tuning, without_cudnn
from bench_lib.errors import NotApplicable, Unavailable, UsageError

WITH_NEWER = stub_torch.VERSIONS[2:]


@pytest.fixture(autouse=True)
def no_override(monkeypatch):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)


@pytest.fixture(params=stub_torch.VERSIONS)
def torch(request):
    return stub_torch.flags(request.param)


def snapshot(torch):
    return copy.deepcopy(vars(torch.state))


@pytest.mark.parametrize("precision", Precision)
def test_what_is_asked_for_is_in_effect_and_what_was_found_comes_back(torch, precision):
    before = snapshot(torch)
    wanted = "tf32" if precision is Precision.TF32 else "ieee"
    with in_precision(torch, precision, "cuda") as effect:
        assert (torch.computes("conv"), torch.computes("matmul")) == (wanted, wanted)
        assert (effect.convolution, effect.matmul) == (wanted, wanted)
    assert snapshot(torch) == before


@pytest.mark.parametrize("version", WITH_NEWER[:2])
@pytest.mark.parametrize("precision", Precision)
def test_the_two_ways_never_disagree_inside(version, precision):
    """Else torch raises in whoever reads the older one, Inductor for example."""
    torch = stub_torch.flags(version)
    with in_precision(torch, precision, "cuda"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.state, "_warns", False)
        tf32 = precision is Precision.TF32
        assert torch.backends.cudnn.allow_tf32 is tf32
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")


LEVELS = ["conv", "rnn", "matmul", "all", "generic"]


@pytest.mark.parametrize("version", WITH_NEWER)
@pytest.mark.parametrize("level", LEVELS)
def test_fp32_is_ieee_whatever_was_set_before(version, level):
    torch = stub_torch.flags(version)
    torch.state.own[("generic", "all") if level == "generic" else ("cuda", level)] = "tf32"
    effective = [torch.computes(op) for op in ("conv", "rnn", "matmul")]
    with in_precision(torch, Precision.FP32, "cuda") as effect:
        assert torch.computes("conv") == torch.computes("matmul") == effect.convolution == "ieee"
    assert [torch.computes(op) for op in ("conv", "rnn", "matmul")] == effective


@pytest.mark.parametrize("version", WITH_NEWER[:2])
def test_a_mixed_state_that_was_found_is_left_as_effective_as_it_was(version):
    torch = stub_torch.flags(version)
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # the older flag still says TF32
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with in_precision(torch, Precision.TF32, "cuda"):
        assert torch.computes("conv") == "tf32"
    assert (torch.computes("conv"), torch.computes("matmul")) == ("ieee", "tf32")


@pytest.mark.parametrize("word", ["highest", "high", "medium"])
@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("version", ["2.0", "2.6"])
def test_older_torch_in_every_state(version, word, allowed):
    torch = stub_torch.flags(version)
    torch.state.matmul, torch.state.cudnn = word, allowed
    with in_precision(torch, Precision.FP32, "cuda"):
        assert torch.computes("conv") == torch.computes("matmul") == "ieee"
    assert (torch.state.matmul, torch.state.cudnn) == (word, allowed)


def test_restored_after_an_error(torch):
    before = snapshot(torch)
    with pytest.raises(ZeroDivisionError), in_precision(torch, Precision.FP32, "cuda"):
        1 / 0  # noqa: B018
    assert snapshot(torch) == before


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32])
def test_a_torch_that_does_not_take_the_flags_measures_nothing(torch, precision):
    torch.state.computes = torch.computes
    stuck = "ieee" if precision is Precision.TF32 else "tf32"
    if hasattr(torch.state, "own"):
        torch.state.resolved = lambda backend, op: stuck
    else:
        torch.state.cudnn = stuck == "tf32"
        torch.state.set_cudnn = lambda allowed: None
    with (
        pytest.raises(UsageError, match=f"asked for {precision}, torch has .* convolutions in {stuck}"),
        in_precision(torch, precision, "cuda"),
    ):
        pytest.fail("a case ran in another precision than its name says")


@pytest.mark.parametrize("version", WITH_NEWER)
def test_fp32_on_the_cpu_is_not_bf16(version):
    torch = stub_torch.flags(version)
    torch.state.own["mkldnn", "all"] = "bf16"
    with in_precision(torch, Precision.FP32, "cpu"):
        assert {torch.state.resolved("mkldnn", op) for op in ("conv", "matmul", "rnn")} == {"ieee"}
    assert torch.state.resolved("mkldnn", "conv") == "bf16"


@pytest.mark.parametrize(
    ("value", "precision", "refused"),
    [
        ("0", "tf32", True),
        ("1", "fp32", True),
        ("0", "fp32", False),
        ("1", "tf32", False),
        ("0", "bf16", False),
    ],
)
def test_the_override_of_the_libraries_is_obeyed_or_refused(torch, monkeypatch, value, precision, refused):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", value)
    block = in_precision(torch, Precision(precision), "cuda")
    if refused:
        with pytest.raises(
            UsageError, match=f"asked for {precision}, but NVIDIA_TF32_OVERRIDE={value} is set"
        ):
            block.__enter__()
        return
    with block as effect:
        assert effect.convolution == ("tf32" if precision == "tf32" else "ieee")


def test_facts_say_all_of_it():
    with in_precision(stub_torch.flags("2.14"), Precision.BF16_AUTOCAST, "cuda") as effect:
        assert effect.facts() == {
            "precision.matmul": "ieee",
            "precision.convolution": "ieee",
            "precision.autocast": "bfloat16",
            "precision.autocast_cache": "on",
        }


@pytest.mark.parametrize(
    ("precision", "capability", "supported"),
    [
        ("fp32", (6, 0), True),
        ("fp16", (6, 1), False),
        ("fp16-autocast", (7, 0), True),
        ("tf32", (7, 5), False),
        ("bf16-autocast", (7, 5), False),
        ("bf16", (8, 0), True),
        ("tf32", (9, 0), True),
    ],
)
def test_formats_and_the_gpus_that_have_them(precision, capability, supported):
    if supported:
        check_supported(Precision(precision), "cuda", capability)
    else:
        with pytest.raises(Unavailable, match=rf"{precision} needs compute capability \d.0 or newer"):
            check_supported(Precision(precision), "cuda", capability)


@pytest.mark.parametrize("precision", Precision)
def test_the_cpu_is_measured_in_fp32_and_bf16(precision):
    if precision in ("fp32", "bf16", "bf16-autocast"):
        check_supported(precision, "cpu", None)
    else:
        with pytest.raises(NotApplicable, match=f"{precision} is a case of GPUs"):
            check_supported(precision, "cpu", None)


@pytest.mark.parametrize(
    ("tuning", "tries", "limit", "deterministic"),
    [
        ("off", False, 10, False),
        ("on", True, 10, False),
        ("exhaustive", True, 0, False),
        ("deterministic", False, 10, True),
    ],
)
def test_tuning_flags(torch, tuning, tries, limit, deterministic):
    cudnn = torch.backends.cudnn
    cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit = False, True, 3
    with in_tuning(torch, Tuning(tuning)) as facts:
        found = (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic)
        assert found == (True, tries, limit, deterministic)
        assert facts["cudnn.benchmark"] == str(tries).lower()
        assert facts["cudnn.benchmark_limit"] == str(limit)
    assert (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit) == (False, True, 3)


def test_a_torch_without_cudnn_is_one_sentence():
    torch = stub_torch.flags("2.6", cudnn=False)
    with (
        pytest.raises(Unavailable, match=r"torch 2\.6 has no torch\.backends\.cudnn\.benchmark_limit"),
        in_tuning(torch, Tuning.ON),
    ):
        pytest.fail("tuned without cuDNN")


def test_a_tuning_flag_that_does_not_stick_is_refused(torch):
    type(torch.backends.cudnn).benchmark = property(lambda self: False, lambda self, value: None)
    try:
        with pytest.raises(UsageError, match="asked for benchmark=on"), in_tuning(torch, Tuning.ON):
            pytest.fail("measured without the flag")
    finally:
        del type(torch.backends.cudnn).benchmark


def test_without_cudnn_is_undone(torch):
    with without_cudnn(torch):
        assert not torch.backends.cudnn.enabled
    assert torch.backends.cudnn.enabled


@pytest.mark.parametrize("precision", Precision)
def test_the_torch_that_is_installed(precision):
    real = pytest.importorskip("torch")
    before = (real.get_float32_matmul_precision(), real.backends.cudnn.allow_tf32)
    with in_precision(real, precision, "cpu"), autocast(real, precision, "cpu"):
        assert real.is_autocast_enabled("cpu") is precision.autocast
        assert (real.get_float32_matmul_precision() == "high") is (precision is Precision.TF32)
    assert (real.get_float32_matmul_precision(), real.backends.cudnn.allow_tf32) == before


def test_tensors_start_from_the_precisions_own_type():
    real = pytest.importorskip("torch")
    assert Precision.FP16.dtype(real) is real.float16
    assert Precision.FP16_AUTOCAST.dtype(real) is real.float32
    assert Precision.TF32.dtype(real) is real.float32
