"""What both tools time, each on a given stream: an empty kernel, one that counts cycles, a convolution."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_uint64
from typing import TYPE_CHECKING, Any

from bench_lib.convolution.convolutions import Convolution
from bench_lib.convolution.precision import Precision, in_precision
from bench_lib.convolution.tuning import Tuning, in_tuning
from bench_lib.errors import UsageError

if TYPE_CHECKING:
    from bench_lib.device.driver import Context
    from bench_lib.device.kernels import Cubin

Call = Callable[[], object]

EMPTY, SPIN, CONV = "empty", "spin", "conv"
SPIN_CYCLES = 1_000_000  # half a millisecond at 2 GHz, whatever the tool
SHAPE, BATCH, PRECISION, LAYOUT = "3x3-64-64-56", 64, Precision.FP16, "channels_last"

_ONE = (1, 1, 1)


@contextmanager
def ready(work: str, context: Context, cubin: Cubin, stream: int) -> Iterator[Call]:
    """The call that queues a work on a stream; it has run once, so that its code is loaded.

    The convolution is checked against fp64 first (WrongResult), and leaves torch's settings as they were.
    """
    if work == CONV:
        with convolution(stream) as made:
            yield made.run
        return
    arguments: dict[str, list[Any]] = {EMPTY: [], SPIN: [c_uint64(SPIN_CYCLES)]}
    if work not in arguments:
        raise UsageError(f"there is no work {work!r}; known are {EMPTY}, {SPIN}, {CONV}")
    function = context.function(context.load(cubin.data), work)

    def launch() -> None:
        context.launch(function, _ONE, _ONE, arguments[work], stream)

    launch()
    context.synchronize(stream)
    yield launch


@contextmanager
def convolution(stream: int) -> Iterator[Convolution]:
    """A 3x3 convolution of ResNet-50 in fp16 on a stream, chosen by cuDNN's heuristic, and checked."""
    torch: Any = importlib.import_module("torch")
    with (
        torch.cuda.stream(torch.cuda.ExternalStream(stream)),
        in_tuning(torch, Tuning.OFF),
        in_precision(torch, PRECISION, "cuda"),
    ):
        made = Convolution(torch, SHAPE, BATCH, PRECISION, LAYOUT, "forward", "cuda")
        made.check()
        torch.cuda.synchronize()
        yield made
