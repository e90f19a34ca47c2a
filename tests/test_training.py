"""An arm on the CPU: its parts, its one mode, its data; and agreement that wrong code cannot reach."""

import warnings

import pytest

from bench_lib.compiling import training
from bench_lib.compiling.training import Arm, Setup, check_agrees, distance, reference
from bench_lib.convolution.precision import Precision
from bench_lib.errors import WrongResult

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytestmark = pytest.mark.usefixtures("one_thread")

TRAIN = Setup("bottleneck", "train", 2, Precision.FP32, "channels_last")
INFER = Setup("bottleneck", "infer", 2, Precision.FP32, "channels_last")
BF16 = Setup("bottleneck", "infer", 2, Precision.BF16_AUTOCAST, "nchw")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def weights(arm):
    return [p.detach().clone() for p in arm._model.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_two_copies_are_one_net_and_one_batch():
    a, b = Arm(TRAIN, "eager", "cpu"), Arm(TRAIN, "eager", "cpu")
    assert same(weights(a), weights(b))
    assert torch.equal(a._images, b._images)
    assert torch.equal(a._labels, b._labels)
    assert a._images.std() > 0.9


def test_a_training_step_has_three_parts_and_moves_the_weights():
    arm = Arm(TRAIN, "eager", "cpu")
    before = weights(arm)
    assert list(arm.parts) == ["forward", "backward", "optimizer"]
    arm.step()
    assert not any(torch.equal(x, y) for x, y in zip(before, weights(arm), strict=True))
    assert all(p.grad is None for p in arm._model.parameters())


def test_inference_is_a_forward_pass_without_gradients():
    arm = Arm(INFER, "eager", "cpu")
    before = weights(arm)
    assert list(arm.parts) == ["forward"]
    assert not arm.parts["forward"]().requires_grad
    arm.step()
    assert same(before, weights(arm))


def test_one_pass_moves_no_weight_and_leaves_no_gradient():
    arm = Arm(TRAIN, "eager", "cpu")
    before = weights(arm)
    found = arm.once()
    assert same(before, weights(arm))
    assert all(p.grad is None for p in arm._model.parameters())
    assert found["gradient"].numel() == sum(w.numel() for w in before)
    assert (found["gradient"] != 0).float().mean() > 0.9


@pytest.mark.parametrize(("setup", "training_mode"), [(TRAIN, True), (INFER, False)])
def test_the_mode_is_set_once_and_never_switched(monkeypatch, setup, training_mode):
    arm = Arm(setup, "eager", "cpu")
    assert {module.training for module in arm._model.modules()} == {training_mode}
    monkeypatch.setattr(torch.nn.Module, "train", lambda *_: pytest.fail("the mode was switched"))
    arm.once()
    arm.step()


@pytest.mark.parametrize("setup", [INFER, BF16])
def test_layout_and_precision_are_what_the_case_says(setup):
    arm = Arm(setup, "eager", "cpu")
    channels_last = arm._images.is_contiguous(memory_format=torch.channels_last)
    assert channels_last == (setup.layout == "channels_last")
    wide = next(p for p in arm._model.parameters() if p.dim() == 4 and p.shape[-1] == 3)
    assert wide.is_contiguous(memory_format=torch.channels_last) == channels_last
    half = setup.precision is Precision.BF16_AUTOCAST
    assert arm.parts["forward"]().dtype == (torch.bfloat16 if half else torch.float32)


def test_the_network_is_torchvisions():
    arm = Arm(Setup("resnet50", "infer", 1, Precision.FP32, "nchw"), "eager", "cpu")
    assert sum(w.numel() for w in weights(arm)) == 25_557_032
    assert arm.parts["forward"]().shape == (1, 1000)


@pytest.mark.parametrize("network", ["resnet50", "bottleneck"])
def test_all_arms_begin_with_the_same_numbers_drawn_once(network, monkeypatch):
    setup = Setup(network, "train", 2, Precision.FP32, "nchw")

    def made():
        arm = Arm(setup, "eager", "cpu")
        return [arm._images, arm._labels, *arm._model.state_dict().values()]

    first = made()
    expected = [one.clone() for one in first]
    monkeypatch.setattr(training, "resnet50", None)
    with torch.no_grad():
        for one in first[2:]:  # as steps do, which leave the data alone
            one.add_(1)
    assert all(map(torch.equal, made(), expected))


def test_an_arm_on_another_device_takes_nothing_away_from_those_after_it():
    setup = Setup("bottleneck", "train", 2, Precision.FP32, "nchw")
    gone = training._network(torch, setup, "meta")
    assert {one.device.type for one in gone.state_dict().values()} == {"meta"}
    assert all(one.requires_grad for one in gone.parameters())
    here, again = (training._network(torch, setup, "cpu").state_dict() for _ in range(2))
    assert all(map(torch.equal, here.values(), again.values()))
    assert not {one.data_ptr() for one in here.values()} & {one.data_ptr() for one in again.values()}


def test_a_setup_goes_to_a_child_and_comes_back():
    import json

    assert Setup.of(json.loads(json.dumps(BF16.text()))) == BF16
    assert BF16.name == "bottleneck-infer-2-bf16-autocast-nchw"


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_bf16_agrees_with_fp32_only_as_far_as_bf16_goes(mode):
    setup = Setup("bottleneck", mode, 2, Precision.BF16_AUTOCAST, "channels_last")
    errors = distance(Arm(setup, "eager", "cpu").once(), reference(setup, "cpu"))
    assert 1e-4 < errors["output"] < 0.05
    check_agrees("compiled", errors, errors)


def test_wrong_code_is_found(monkeypatch):
    """A net that forgot one of its ReLUs is no faster net."""
    expected = reference(TRAIN, "cpu")
    whole = training._network

    def careless(*given):
        model = whole(*given)
        model[0][1].relu = torch.nn.Identity()
        return model

    monkeypatch.setattr(training, "_network", careless)
    errors = distance(Arm(TRAIN, "eager", "cpu").once(), expected)
    with pytest.raises(WrongResult, match=r"of compiled is .* from fp32"):
        check_agrees("compiled", errors, dict.fromkeys(errors, 0.0))


def test_not_a_number_agrees_with_nothing():
    with pytest.raises(WrongResult, match="nan"):
        check_agrees("compiled", {"output": float("nan")}, {"output": 0.001})
