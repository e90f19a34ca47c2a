"""Shapes and their FLOP against torch's own count; the check of a result, and its checksum."""

import pytest

from bench_lib.convolution.convolutions import Convolution, checksum
from bench_lib.convolution.precision import Precision
from bench_lib.convolution.shapes import CONV3D, DIRECTIONS, LAYOUTS, SHAPES, Shape, shape, tolerance
from bench_lib.errors import Unavailable, UsageError, WrongResult

torch = pytest.importorskip("torch")

SMALL = "5x5-3-13-112"
KINDS = [SMALL, "3x3-256-256-28-depthwise", "3x3-128-128-56-groups32", CONV3D]


def made(name=SMALL, precision="fp32", layout="nchw", direction="forward", batch=2):
    return Convolution(torch, name, batch, Precision(precision), layout, direction, "cpu")


@pytest.mark.parametrize("name", SHAPES)
def test_output_and_flop_are_what_torch_says(name):
    from torch.utils.flop_counter import FlopCounterMode

    s: Shape = shape(name)
    x = torch.empty((3, s.c_in, *s.image), device="meta", requires_grad=True)
    w = torch.empty(s.weight, device="meta", requires_grad=True)
    convolve = getattr(torch.nn.functional, f"conv{len(s.kernel)}d")
    options = {"stride": s.stride, "padding": s.padding, "dilation": s.dilation, "groups": s.groups}
    with FlopCounterMode(display=False) as forward:
        y = convolve(x, w, **options)
    assert tuple(y.shape) == (3, s.c_out, *s.output)
    assert s.flop(3) == forward.get_total_flops()
    assert s.flop(3, "training") == 3 * s.flop(3)


def test_an_unknown_shape_is_named():
    with pytest.raises(UsageError, match="no convolution shape '2x2'; there are 7x7-3-64-224-s2, "):
        shape("2x2")


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_numbers_are_drawn_once_and_lent_to_nobody(batch, monkeypatch):
    def tensors(direction="training"):
        one = made("1x1-512-2048-7", direction=direction, batch=batch)
        return [one.input, one.weight, *([one._gradient] if direction == "training" else [])]

    first = tensors()
    seen = [tensor.detach().clone() for tensor in first]
    with torch.no_grad():
        for tensor in first:
            tensor.add_(1)
    monkeypatch.setattr(torch, "randn", None)
    for again, was in zip(tensors(), seen, strict=True):
        assert torch.equal(again.detach(), was)
    monkeypatch.undo()
    for again, was in zip(tensors("forward"), seen, strict=False):
        assert torch.equal(again, was)
        assert not again.requires_grad


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-autocast"])
@pytest.mark.parametrize("name", KINDS)
def test_right_numbers_pass_with_room_to_spare(name, precision, layout, direction):
    if precision.startswith("bf16") and torch.backends.cpu.get_cpu_capability() == "AVX2":
        pytest.skip("without AVX-512 torch has plain loops for bf16, which sum in bf16 and lose the layout")
    convolution = made(name, precision, layout, direction)
    error, digits = convolution.check()
    assert 0 < error < 0.5 * tolerance(Precision(precision), 1)
    assert len(digits.split("-")) == DIRECTIONS[direction]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", KINDS)
def test_all_tensors_have_the_layout_that_was_asked_for(name, layout):
    convolution = made(name, layout=layout)
    last = torch.channels_last if len(shape(name).kernel) == 2 else torch.channels_last_3d
    form = last if layout == "channels_last" else torch.contiguous_format
    for tensor in (convolution.input, convolution.weight, convolution.run()[0]):
        assert tensor.is_contiguous(memory_format=form)


def test_a_layout_that_a_cpu_does_not_keep_in_bf16_is_no_wrong_result():
    convolution = made(CONV3D, "bf16", "channels_last")
    right = convolution.run
    with pytest.raises(Unavailable, match=r"on this CPU that keep torch\.channels_last_3d in bf16$"):
        convolution.check(lambda: tuple(result.contiguous() for result in right()))


def test_another_layout_is_a_wrong_result():
    convolution = made("3x3-64-64-56", layout="channels_last")
    right = convolution.run
    with pytest.raises(WrongResult, match=r"the output has strides .* not torch\.channels_last"):
        convolution.check(lambda: tuple(result.contiguous() for result in right()))


@pytest.mark.parametrize("damage", [0.01, float("nan"), float("inf")])
@pytest.mark.parametrize(("number", "what"), list(enumerate(["output", "input gradient", "weight gradient"])))
def test_one_wrong_number_in_any_result_is_found(number, what, damage):
    convolution = made("3x3-67-131-28", direction="training")
    right = convolution.run

    def run():
        results = [result.detach().clone() for result in right()]
        rms = results[number].square().mean().sqrt()
        results[number].flatten()[-1] += damage * rms
        return tuple(results)

    with pytest.raises(WrongResult, match=f"the {what} is off by"):
        convolution.check(run)


@pytest.mark.parametrize("images", [1, 2, 4, 8])
def test_an_image_mistaken_for_another_is_found(images):
    """Images repeat in a batch, but not at a distance that a tile of images has."""
    convolution = made(batch=16)
    right = convolution.run
    with pytest.raises(WrongResult, match="the output is off by"):
        convolution.check(lambda: tuple(result.roll(images, 0) for result in right()))


def tf32(tensor):
    """Rounded to the ten bits of mantissa that TF32 keeps."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("name", ["3x3-64-64-56", "1x1-64-256-56", "7x7-3-64-224-s2"])
def test_tf32_in_effect_under_the_name_of_fp32_is_found(name):
    """What no flag can hide: the numbers themselves are those of TF32."""
    convolution, secretly = made(name), made(name)
    secretly.input, secretly.weight = tf32(secretly.input), tf32(secretly.weight)
    with pytest.raises(WrongResult, match="the output is off by"):
        convolution.check(secretly.run)
    honest = made(name, "tf32")
    honest.check(secretly.run)


def test_the_numbers_depend_on_the_shape_alone():
    first, again = made(), made(layout="channels_last")
    assert torch.equal(first.input, again.input)
    assert torch.equal(first.weight, again.weight)
    assert torch.equal(first.input.half(), made(precision="fp16").input)
    assert not torch.equal(first.input, made(batch=4).input[:2]) or torch.equal(
        first.input[0], again.input[0]
    )
    assert abs(float(first.input.std()) - 1) < 0.01
    assert float(first.input.abs().min()) > 0


def test_both_layouts_have_the_same_checksum():
    assert checksum(torch, made().input) == checksum(torch, made(layout="channels_last").input)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_checksum_tells_bits_and_places_apart(dtype):
    tensor = torch.arange(1, 13, dtype=getattr(torch, dtype)).reshape(3, 4)
    other = tensor.clone()
    other[2, 3] = torch.nextafter(other[2, 3], other[0, 0])
    swapped = tensor.flip(0)
    assert len({checksum(torch, one) for one in (tensor, other, swapped)}) == 3
    assert checksum(torch, tensor) == checksum(torch, tensor.clone())


def test_a_checksum_of_many_chunks(monkeypatch):
    from bench_lib.convolution import convolutions

    tensor = torch.randn(1000)
    whole = checksum(torch, tensor)
    monkeypatch.setattr(convolutions, "_CHUNK", 7)
    assert checksum(torch, tensor) == whole
