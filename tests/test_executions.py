"""Executions in turns on the CPU, eager against eager; what goes wrong with one stays with it."""

import math
import statistics
from dataclasses import replace

import pytest

from bench_lib.compiling import executions
from bench_lib.compiling.executions import kept_warnings, measure, told
from bench_lib.compiling.training import Setup
from bench_lib.convolution.precision import Precision
from bench_lib.errors import CudaError, CudaGainsError, NotApplicable, Unavailable, WrongResult
from bench_lib.model import Policy, Timing
from bench_lib.timing.turns import HostClock

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytestmark = pytest.mark.usefixtures("one_thread")

POLICY = Policy("test", samples=8, budget_seconds=10.0, min_samples=5, max_warmup_seconds=0.5)
SHORT = Policy("test", samples=2, budget_seconds=0.0, min_samples=2, max_warmup_seconds=0.0)
INFER = Setup("bottleneck", "infer", 1, Precision.FP32, "channels_last")


class Ticks:
    """A clock that ticks once a mark."""

    def __init__(self):
        self.now = 0

    def synchronize(self):
        pass

    def record(self):
        self.now += 1
        return self.now

    def elapsed(self, start, end):
        return float(end - start)


def run(setup=INFER, names=("eager", "eager#2")):
    return measure(setup, names, "cpu", Ticks(), SHORT, seed=1)


def test_two_eager_arms_come_out_at_one():
    found = measure(INFER, ("eager", "eager#2"), "cpu", HostClock(), POLICY, seed=1)
    a, b = (found[name]["step"] for name in ("eager", "eager#2"))
    logs = [math.log(y / x) for x, y in zip(a.seconds, b.seconds, strict=True)]
    half_width = 2.8 * statistics.stdev(logs) / math.sqrt(len(logs))
    assert abs(statistics.fmean(logs)) <= max(2 * half_width, 0.1)  # a busy machine is no steady one
    assert a.turns == b.turns == INFER.name
    assert (a.timing, a.calls) == (Timing.HOST, 10)


def test_a_case_carries_what_it_ran_in_and_how_far_from_fp32_it_is():
    bf16 = replace(INFER, precision=Precision.BF16_AUTOCAST)
    step = run(bf16, ["eager"])["eager"]["step"]
    assert step.facts["precision.autocast"] == "bfloat16"
    assert step.facts["precision.convolution"] == "ieee"
    assert step.facts["compile.graphs"] == "0"
    assert 1e-4 < float(step.facts["relative_error.output"]) < 0.05


def test_training_gives_its_parts():
    found = run(
        replace(
            INFER,
            mode="train",
        ),
        ["eager"],
    )["eager"]
    assert {name: series.seconds[0] for name, series in found.items()} == {
        "step": 6.1,  # two marks a part and one at the end
        "forward": 1.0,
        "backward": 1.0,
        "optimizer": 1.0,
    }


def test_without_a_compiler_eager_is_still_measured(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/c++")
    found = run(names=["compiled", "eager"])
    assert isinstance(found["compiled"], Unavailable)
    assert "CXX=/nowhere/c++" in str(found["compiled"])
    assert len(found["eager"]["step"].seconds) == 2


def test_a_wrong_result_gets_no_timing(monkeypatch):
    def careless(torch, model, execution, device):
        return model if execution == "eager" else lambda images: model(images).roll(1, dims=1)

    monkeypatch.setattr("bench_lib.compiling.training.compiled", careless)
    monkeypatch.setattr("bench_lib.compiling.training.check_compiled", lambda *_: None)
    found = run(names=["eager", "compiled"])
    assert isinstance(found["compiled"], WrongResult)
    assert len(found["eager"]["step"].seconds) == 2


def test_a_compilation_that_did_not_happen_is_an_error(monkeypatch):
    """What an older torch does when TORCH_COMPILE_DISABLE is set: nothing, in silence."""
    monkeypatch.setattr("bench_lib.compiling.training.compiled", lambda torch, model, *_: model)
    found = run(names=["eager", "compiled"])
    assert "0 graphs" in str(found["compiled"])


def test_a_recompilation_ends_the_set(monkeypatch):
    def changed(arms, *_, queued):
        model = torch.compile(torch.nn.Linear(4, 4), backend="eager", dynamic=False)
        for batch in (2, 3):
            model(torch.ones(batch, 4))

    monkeypatch.setattr(executions, "in_turns", changed)
    found = run()
    assert {type(outcome) for outcome in found.values()} == {CudaGainsError}
    assert "compiled again" in str(found["eager"])


def test_the_flags_are_as_before_afterwards():
    before = torch.get_float32_matmul_precision()
    run(names=["eager"])
    assert torch.get_float32_matmul_precision() == before


class OutOfMemoryError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (NotApplicable("no case"), NotApplicable, "no case"),
        (WrongResult("wrong"), WrongResult, "wrong"),
        (RuntimeError("one\ntwo"), CudaGainsError, "compiled: RuntimeError: one"),
        (
            RuntimeError(
                "backend='inductor' raised:\nCppCompileError: no header\n\nSet TORCHDYNAMO_VERBOSE=1"
            ),
            CudaGainsError,
            "compiled: RuntimeError: backend='inductor' raised: CppCompileError: no header",
        ),
        (RuntimeError(""), CudaGainsError, "compiled: RuntimeError: no message"),
        (OutOfMemoryError("Tried to allocate"), MemoryError, "compiled: OutOfMemoryError: Tried to allocate"),
        (CudaError("cuLaunchKernel", 700), CudaError, "cuLaunchKernel failed with CUDA error 700"),
    ],
)
def test_an_error_becomes_one_sentence_of_its_kind(error, kind, text):
    found = told("compiled", error)
    assert (type(found), str(found)) == (kind, text)
    assert found.__traceback__ is None


def test_warnings_are_kept_once_each_and_stop_nothing():
    import warnings

    with kept_warnings() as said:
        for text in ("TF32 is available\nmore", "TF32 is available\nmore", "", "another"):
            warnings.warn(text, stacklevel=1)
    assert said == ["TF32 is available", "another"]
