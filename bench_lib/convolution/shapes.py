"""Convolution shapes by name, what one call is counted as doing, and how far its result may be off."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bench_lib.convolution.precision import Precision
from bench_lib.errors import UsageError

# Forward, gradient of the input and gradient of the weight multiply equally often.
DIRECTIONS: Mapping[str, int] = MappingProxyType({"forward": 1, "training": 3})
LAYOUTS = ("nchw", "channels_last")

# Images that are drawn for a batch; they repeat in it, because drawing 50 million numbers takes
# longer than a case. Seven, so that an image mistaken for another of its tile is still found.
DRAWN = 7

# Half the distance of two neighbouring numbers near 1. Products are summed in fp32 by all.
_UNIT = MappingProxyType({"float16": 2.0**-11, "bfloat16": 2.0**-8, "tf32": 2.0**-11, "fp32": 2.0**-24})


@dataclass(frozen=True)
class Shape:
    """One convolution without its batch: channels, kernel and image of two or three dimensions."""

    c_in: int
    c_out: int
    kernel: tuple[int, ...]
    image: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def output(self) -> tuple[int, ...]:
        """The image that comes out."""
        return tuple(
            (size + 2 * self.padding - self.dilation * (k - 1) - 1) // self.stride + 1
            for size, k in zip(self.image, self.kernel, strict=True)
        )

    @property
    def weight(self) -> tuple[int, ...]:
        """The weight's dimensions."""
        return (self.c_out, self.c_in // self.groups, *self.kernel)

    def flop(self, batch: int, direction: str = "forward") -> float:
        """FLOP of a direct convolution, a multiplication and an addition counted as two."""
        products = math.prod(self.weight) * math.prod(self.output) * batch
        return 2.0 * products * DIRECTIONS[direction]

    def summed(self, batch: int) -> dict[str, int]:
        """How many products are summed into one number of each result."""
        taps = math.prod(self.kernel)
        return {
            "output": self.c_in // self.groups * taps,
            "input gradient": self.c_out // self.groups * taps,
            "weight gradient": batch * math.prod(self.output),
        }


def tolerance(precision: Precision, summed: int) -> float:
    """The largest error allowed, in units of the reference's root mean square.

    Rounding inputs and output to a short format gives errors that look normal; over ten million
    numbers the largest is some six standard deviations of about one unit each: 32 units. In fp32
    the sum counts instead (Higham 2002, section 4.2: growing as its length's root) and Winograd
    transforms cost three digits. A weight gradient over 200,000 products was seen off by 2.6e-4 on
    an H200, and by 3.3e-3 in TF32: TF32 under the name of fp32 is still found.
    """
    if precision is Precision.FP32:
        return _UNIT["fp32"] * (2048 + 12 * math.sqrt(summed))
    return _UNIT[precision.half or "tf32"] * 32


def _square(k: int, c_in: int, c_out: int, size: int, **more: int) -> Shape:
    return Shape(c_in, c_out, (k, k), (size, size), **{"padding": k // 2, **more})


# The convolutions of ResNet-50's stem and four stages: kernel, channels in and out, image.
RESNET50: Mapping[str, Shape] = MappingProxyType(
    {
        "7x7-3-64-224-s2": _square(7, 3, 64, 224, stride=2),
        "3x3-64-64-56": _square(3, 64, 64, 56),
        "3x3-128-128-28": _square(3, 128, 128, 28),
        "3x3-256-256-14": _square(3, 256, 256, 14),
        "3x3-512-512-7": _square(3, 512, 512, 7),
        "1x1-64-256-56": _square(1, 64, 256, 56),
        "1x1-128-512-28": _square(1, 128, 512, 28),
        "1x1-256-1024-14": _square(1, 256, 1024, 14),
        "1x1-512-2048-7": _square(1, 512, 2048, 7),
    }
)

CONV3D = "3x3x3-32-64-8x28x28"

# Those whose algorithm heuristics are known to choose badly.
HARD: Mapping[str, Shape] = MappingProxyType(
    {
        "3x3-256-256-28-depthwise": _square(3, 256, 256, 28, groups=256),
        "3x3-128-128-56-groups32": _square(3, 128, 128, 56, groups=32),
        "3x3-256-256-28-dilated2": _square(3, 256, 256, 28, dilation=2, padding=2),
        CONV3D: Shape(32, 64, (3, 3, 3), (8, 28, 28), padding=1),
        "11x11-64-64-28": _square(11, 64, 64, 28),
        "31x31-64-64-28-depthwise": _square(31, 64, 64, 28, groups=64),
        "3x3-67-131-28": _square(3, 67, 131, 28),
        "5x5-3-13-112": _square(5, 3, 13, 112),
    }
)

# One convolution over images whose size changes from batch to batch.
WALK: Mapping[str, Shape] = MappingProxyType(
    {f"3x3-64-64-{size}": _square(3, 64, 64, size) for size in range(40, 72, 4)}
)

SHAPES: Mapping[str, Shape] = MappingProxyType({**RESNET50, **HARD, **WALK})


def shape(name: str) -> Shape:
    """The shape of that name; UsageError names those there are."""
    if name not in SHAPES:
        raise UsageError(f"no convolution shape {name!r}; there are {', '.join(SHAPES)}")
    return SHAPES[name]
