"""torch.compile on a real GPU: the result agrees with eager, two eager arms come out at 1.00."""

import math
import statistics

import pytest

from bench_lib.compiling.compile_children import FirstStep
from bench_lib.compiling.executions import measure
from bench_lib.compiling.training import Setup
from bench_lib.convolution.precision import Precision
from bench_lib.device.gpu import Gpu, detect
from bench_lib.model import Policy

POLICY = Policy("test", samples=20, budget_seconds=15.0, min_samples=10, max_warmup_seconds=1.0)
TRAIN = Setup("resnet50", "train", 128, Precision.BF16_AUTOCAST, "channels_last")
TF32 = Setup("resnet50", "train", 64, Precision.TF32, "nchw")
INFER = Setup("resnet50", "infer", 128, Precision.BF16_AUTOCAST, "channels_last")
T_999 = {10: 4.78, 20: 3.88}  # two-sided 99.9 %, of t with that many values: never wrong by chance

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu():
    if not (found := detect()).available:
        pytest.skip(f"needs a GPU: {found.reason}")
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    gpu = Gpu.open()
    with torch.cuda.stream(torch.cuda.ExternalStream(gpu.stream)):
        yield gpu


@pytest.fixture(scope="module")
def training(gpu):
    names = ["eager", "eager#2", "compiled"]
    return measure(TRAIN, names, "cuda", gpu, POLICY, seed=1, telemetry=gpu.telemetry)


def log_ratios(found, baseline, candidate):
    pair = (found[name]["step"].seconds for name in (baseline, candidate))
    return [math.log(b / a) for a, b in zip(*pair, strict=True)]


def ok(found):
    for outcome in found.values():
        if isinstance(outcome, Exception):
            raise outcome
    return found


def test_compiled_training_agrees_with_eager(training):
    facts = {name: found["step"].facts for name, found in ok(training).items()}
    assert facts["compiled"]["compile.graphs"] == "1"
    for what in ("relative_error.output", "relative_error.gradient"):
        assert float(facts["compiled"][what]) <= max(0.01, 2 * float(facts["eager"][what]))
        assert float(facts["eager"][what]) > 0


def test_two_eager_arms_come_out_at_one(training, capsys):
    logs = log_ratios(ok(training), "eager", "eager#2")
    mean = statistics.fmean(logs)
    spread = T_999[10 if len(logs) < 20 else 20] * statistics.stdev(logs) / math.sqrt(len(logs))
    with capsys.disabled():
        gain = math.exp(-statistics.median(log_ratios(training, "eager", "compiled")))
        print(f"\neager#2 / eager {math.exp(mean):.4f} +- {spread:.4f}; compiled is {gain:.3f}x eager")
    assert abs(mean) <= spread
    assert abs(mean) < 0.01


def test_the_parts_make_up_the_step(training):
    for outcome in ok(training).values():
        whole, *parts = (statistics.median(series.seconds) for series in outcome.values())
        assert sum(parts) == pytest.approx(whole, rel=0.03)


def test_nothing_is_flagged_by_mistake(training):
    flagged = [flag for flag in ok(training)["eager"]["step"].flags if "clock-low" in flag]
    assert len(flagged) <= 1


def test_cuda_graphs_are_used_and_agree(gpu):
    names = ["eager", "compiled", "compiled-reduce-overhead"]
    found = ok(measure(INFER, names, "cuda", gpu, POLICY, seed=1))
    assert found["compiled-reduce-overhead"]["step"].facts["compile.graphs"] == "1"


def test_tf32_is_in_effect_in_all_arms(gpu):
    found = ok(measure(TF32, ["eager", "compiled"], "cuda", gpu, POLICY, seed=1))
    for outcome in found.values():
        assert outcome["step"].facts["precision.convolution"] == "tf32"
        assert outcome["step"].facts["precision.matmul"] == "tf32"


@pytest.mark.slow
@pytest.mark.parametrize("setup", [TRAIN, INFER])
def test_first_steps_and_the_memory_of_one_arm(gpu, tmp_path, setup):
    eager = FirstStep(setup, "eager", "cuda", tmp_path / "eager").take(cold=True)
    cold = FirstStep(setup, "compiled", "cuda", tmp_path / "compiled").take(cold=True)
    warm = FirstStep(setup, "compiled", "cuda", tmp_path / "compiled").take(cold=False)
    assert eager.seconds < warm.seconds < cold.seconds
    assert warm.cache_hits > 0
    assert any((tmp_path / "compiled" / "triton").rglob("*.cubin"))
    images = 4 * setup.batch * 3 * 224 * 224
    assert all(one.quantities["peak_nbytes"] > images for one in (eager, cold, warm))
