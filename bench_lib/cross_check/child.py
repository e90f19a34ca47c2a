"""The process in which nvbench measures: it runs all its benchmarks once, and ends with the process.

Nvbench's own ways are left as they are (its stream, its blocking kernel, a flush as large as the L2,
its guard against a low clock); only the number of samples is the run's, and the work is warm when it begins.
"""

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_lib.cross_check import works
from bench_lib.device import kernels
from bench_lib.device.driver import Context, Driver

TIMEOUT_SECONDS = 10.0  # of one measurement, after which nvbench is content with what it has
BATCH_SECONDS = 0.1


@dataclass(frozen=True)
class Request:
    """Which works, with how many samples after how long a warm-up, and where the results go."""

    works: tuple[str, ...]
    cubin: str
    samples: int
    warmup_seconds: float
    json: str

    def text(self) -> str:
        """As the child is given it."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> "Request":
        """The request of a text that `text` made."""
        given = json.loads(text)
        return cls(**{**given, "works": tuple(given["works"])})

    def arguments(self) -> list[str]:
        """The command line of nvbench; the first is skipped as a program's name."""
        n = str(self.samples)
        limits = ["--timeout", str(TIMEOUT_SECONDS), "--batch-target-time", str(BATCH_SECONDS)]
        stop = ["--stopping-criterion", "sample-count", "--target-samples", n, "--min-samples", n]
        return ["cuda-gains", "--quiet", "--devices", "0", *stop, *limits, "--jsonbin", self.json]


def measure(request: Request) -> None:
    """Let nvbench measure the works and write its files."""
    context = Driver.load().open()
    cubin = kernels.read_cubin(Path(request.cubin))
    nvbench: Any = importlib.import_module("cuda.bench")
    for work in request.works:
        nvbench.register(partial(_state, work, context, cubin, request.warmup_seconds)).set_name(work)
    nvbench.run_all_benchmarks(request.arguments())


def _state(work: str, context: Context, cubin: kernels.Cubin, warmup_seconds: float, state: Any) -> None:
    """One work in one state of nvbench: warmed up, then timed cold and, but for the empty kernel, in batches.

    Nvbench lets a batch go after two launches, so that of work shorter than a launch it shows the launch.
    """
    stream = int(state.get_stream().addressof())
    with works.ready(work, context, cubin, stream) as call:
        _warm_up(call, partial(context.synchronize, stream), warmup_seconds)
        state.exec(lambda _launch: _nothing(call()), batched=work != works.EMPTY)


def _warm_up(call: works.Call, synchronize: Callable[[], None], seconds: float) -> None:
    end = perf_counter() + seconds
    while perf_counter() < end:
        call()
        synchronize()


def _nothing(_result: object) -> None:
    return None


def main() -> None:
    """The child: the request is its argument; an error is its last line."""
    try:
        measure(Request.of(sys.argv[1]))
    except Exception as error:  # the parent shows it as the end of its cases
        sys.exit(f"{type(error).__name__}: {error}".splitlines()[0])


if __name__ == "__main__":
    main()
