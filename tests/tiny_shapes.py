"""A pytest plugin for runs of the convolution families: the same shape names, a thousandth of the work.

Named with `-p tiny_shapes` it stands before the benchmark files are read. In the environment,
FAULT=wrong plants a wrong number into every result, FAULT=warning a warning into every run.
"""

import os
import warnings
from dataclasses import replace
from types import MappingProxyType

from bench_lib.convolution import convolutions, shapes
from bench_lib.convolution.shapes import Shape


def tiny(shape: Shape) -> Shape:
    """The same kind of convolution with at most 8 channels on an image of at most 9."""
    groups = 1 if shape.groups == 1 else 8 if shape.groups == shape.c_in else 2
    channels = {"c_in": min(shape.c_in, 8), "c_out": min(shape.c_out, 8)}
    return replace(shape, **channels, groups=groups, image=tuple(min(size, 9) for size in shape.image))


for _name in ("RESNET50", "HARD", "WALK", "SHAPES"):
    _all = {name: tiny(shape) for name, shape in getattr(shapes, _name).items()}
    setattr(shapes, _name, MappingProxyType(_all))

_run = convolutions.Convolution.run


def _wrong(self: convolutions.Convolution) -> tuple:
    first, *others = _run(self)
    first = first.detach().clone()
    first[(-1,) * first.ndim] += 1
    return (first, *others)


def _warning(self: convolutions.Convolution) -> tuple:
    warnings.warn("Plan failed with a cudnnException", UserWarning, stacklevel=2)
    return _run(self)


_faults = {"wrong": _wrong, "warning": _warning}
convolutions.Convolution.run = _faults.get(os.environ.get("FAULT", ""), _run)
