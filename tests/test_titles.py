"""What is compared and in which case, in words that a reader without the code understands."""

from pathlib import Path

import pandas as pd
import pytest
import synthetic

from bench_lib.comparing import titles
from bench_lib.comparing.case_words import case_text
from bench_lib.comparing.changes import CaseChange, Change, Comparison, Difference
from bench_lib.comparing.verdicts import Pairing
from bench_lib.html import asking


def compared(baseline: str, candidate: str, pairing: Pairing, *differences: Difference) -> Comparison:
    return Comparison(baseline, candidate, "c", True, pairing, differences, "", (), False, ())


@pytest.mark.parametrize(
    ("contrast", "title"),
    [
        ("execution=eager:compiled", "torch.compile against eager"),
        ("precision=fp32:bf16-autocast", "bf16 autocast against IEEE fp32"),
        ("benchmark=off:on", "cudnn.benchmark on against off"),
        ("runtime=11.8:12.4", "CUDA runtime 12.4 against 11.8"),
        ("runtime=11.8:11.8#2", "CUDA runtime 11.8 against itself"),
        ("runtime=11.8:driver", "the driver alone against CUDA runtime 11.8"),
        ("way=prefetch:faults", "page faults against prefetch"),
        ("size=4:8", "size 8 against 4"),
        ("{}=a{}:b", "{} b against a{}"),
    ],
)
def test_a_contrast_is_told_by_what_its_values_are(contrast, title):
    parameter, _, values = contrast.partition("=")
    baseline, _, candidate = values.partition(":")
    labels = (f"{parameter}={baseline}", f"{parameter}={candidate}")
    assert titles.against(compared(*labels, Pairing.RUNS)) == title


CUDART = Difference("stack", "cudart", "11.8", "12.4")
TORCH = Difference("stack", "torch", "2.6", "2.7")


@pytest.mark.parametrize(
    ("differences", "title"),
    [
        ((CUDART,), "CUDA runtime 12.4 against 11.8"),
        ((CUDART, Difference("machine", "kernel", "6.1", "6.8")), "CUDA runtime 12.4 against 11.8"),
        ((Difference("driver", "driver", "550.1", "580.2"),), "driver 580.2 against 550.1"),
        ((CUDART, TORCH), "PyTorch 2.7 against 2.6"),
        ((CUDART, Difference("stack", "cublas", "11", "12")), "CUDA libraries 12.4 against 11.8"),
        ((CUDART, TORCH, Difference("driver", "driver", "550", "580")), "after against before"),
        ((CUDART, Difference("stack", "torch", "absent", "2.7")), "after against before"),
        (
            (Difference("stack", "cudnn", "9.1", "9.2"), Difference("stack", "nccl", "2", "3")),
            "after against before",
        ),
        ((Difference("stack", "cudart", "11.8", "absent"),), "after against before"),
        ((Difference("stack", "cudart", "11.8", "12.4 / 12.6"),), "after against before"),
        ((Difference("stack", "cudart", "12.4 (sha256 ab)", "12.4 (sha256 cd)"),), "after against before"),
        ((), "after against before"),
    ],
)
def test_two_stacks_are_told_by_the_component_that_says_most_of_their_difference(differences, title):
    assert titles.against(compared("before", "after", Pairing.ROUNDS, *differences)) == title


@pytest.mark.parametrize(
    ("gpus", "ranks", "text"),
    [
        (["NVIDIA H200", "NVIDIA H200"], 1, "one H200"),
        (["NVIDIA H200"], 8, "8 H200s"),
        (["NVIDIA H200", "NVIDIA A100"], 1, "A100 and H200"),
        ([""], 1, "a CPU"),
        ([], 1, ""),
        (["NVIDIA H200"], float("nan"), "one H200"),
    ],
)
def test_the_device_in_words(gpus, ranks, text):
    runs = pd.DataFrame({"gpu_name": gpus, "device": ["cuda" if gpu else "cpu" for gpu in gpus]}, dtype=str)
    assert titles.device(runs, pd.DataFrame({"world_size": [ranks]})) == text


def row(op: str = "migrate", family: str = "unified_memory", **params) -> CaseChange:
    metric = str(params.get("metric", "time"))
    return CaseChange(f"{family}/{op}", family, op, params, metric, Change.SAME, "")


def test_a_case_in_words_leaves_out_what_all_share_and_names_what_is_no_word():
    one = row(advise="none", direction="to_gpu", nbytes=64 << 20, order="random", pinned=True)
    assert case_text(one) == "unified memory migrate (advise none, to_gpu, 64 MiB, random, pinned true)"
    other = row(advise="none", direction="to_cpu", nbytes=64 << 20, order="random", pinned=True)
    assert case_text(one, [one, other]) == "unified memory migrate (to_gpu)"
    step = row("resnet50", "compile_resnet50", batch=128, metric="step", mode="train")
    assert case_text(step) == "resnet50 step (batch 128, train)"
    assert case_text(step, [step]) == case_text(step)


@pytest.mark.parametrize(
    ("op", "family", "params", "text"),
    [
        ("train_step", "amp_conv", {"metric": "step", "network": "resnet50"}, "training step (resnet50)"),
        (
            "conv_by_path",
            "cudnn_selection",
            {"benchmark": "off", "layout": "nchw", "metric": "time", "shape": "3x3-64-128-56"},
            "convolution by cuDNN alone (the heuristic's choice, NCHW, 3x3, 64 to 128 channels, 56x56)",
        ),
        ("first_call", "cudnn_selection", {"metric": "first"}, "first call of a convolution"),
        ("tuning", "cudnn_selection", {"metric": "tuning"}, "tuning of a convolution"),
        ("tuning", "mine", {"metric": "tuning"}, "mine tuning"),
        ("resnet50", "compile_resnet50", {"metric": "first_cold"}, "resnet50 first cold"),
        (
            "conv",
            "amp_conv",
            {"precision": "fp16-autocast", "shape": "7x7-3-64-224-s2"},
            "convolution (fp16 autocast, 7x7, 3 to 64 channels, 224x224, stride 2)",
        ),
        (
            "conv",
            "amp_conv",
            {"shape": "3x3x3-32-64-8x28x28"},
            "convolution (3x3x3, 32 to 64 channels, 8x28x28)",
        ),
        ("conv", "amp_conv", {"shape": "odd"}, "convolution (odd)"),
    ],
)
def test_a_case_of_the_suite_in_words_says_nothing_twice(op, family, params, text):
    assert case_text(row(op, family, **params)) == text


def test_a_damaged_parameter_is_no_traceback():
    first, second = (row("conv", "amp_conv", shape=["a"], size=size) for size in (1, 2))
    assert case_text(first, [first, second]) == "convolution (size 1)"


def test_a_side_is_known_by_the_versions_that_differ():
    cupy = Difference("stack", "cupy", "absent", "14.2")
    nccl = Difference("stack", "nccl", "(sha256 ab)", "2.28.9")
    of_two = compared("cu124", "here", Pairing.ROUNDS, CUDART, cupy, nccl, TORCH)
    assert titles.components(of_two, "cu124") == "torch 2.6, cudart 11.8"
    assert titles.components(of_two, "here") == "torch 2.7, cudart 12.4, nccl 2.28.9"
    assert titles.components(compared("a", "b", Pairing.ROUNDS, cupy), "b") == ""


def test_the_command_of_a_report_is_the_one_that_makes_it(tmp_path: Path):
    synthetic.write_campaign(tmp_path, "runs", {"old": 1.0}, rounds=1, samples=2)
    subject = asking.reported(["old"], "runs", tmp_path, "size=1:2", None)
    assert subject.command == "cuda-gains report old --campaign runs --contrast size=1:2"
