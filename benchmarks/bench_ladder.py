"""The ladder: several CUDA runtimes in one process, their launches interleaved burst by burst.

The primary evidence on launch cost between toolkits: whatever the machine does in a turn, it does
to all runtimes. The null is a second copy of the baseline's file, so that its place in memory
differs too; the control is the bare driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from bench_lib.errors import NotApplicable, Unavailable
from bench_lib.model import NULL_SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from bench_lib.device.gpu import Gpu
    from bench_lib.device.kernels import Cubin
    from bench_lib.stacking.stacks import StackEntry

FAMILY = "ladder"
MARGIN = 0.01
BASELINE = "11.8"
NULL = BASELINE + NULL_SUFFIX
DRIVER = "driver"
TURNS = {1: 2000, 100: 1000}  # turns by burst: some seconds each, resolving about 0.3 %
QUICK_TURNS = {1: 500, 100: 200}
PREFIX = "cudart-"


def available(wheels: Path | None) -> dict[str, StackEntry]:
    """The runtimes at hand by version: in the cache or in `wheels`, lowest version first."""
    from bench_lib.stacking import stacks, stock

    found = {
        name.removeprefix(PREFIX): entry
        for name, entry in stacks.load_stacks(None).items()
        if entry.kind == "cudart" and stock.at_hand(entry, wheels)
    }
    return dict(sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item a runtime at hand, the null and the control; one that is skipped without them."""
    versions = list(available(metafunc.config.getoption("wheels")))
    arms = [*versions, NULL, DRIVER] if BASELINE in versions else [*versions, DRIVER]
    metafunc.parametrize("runtime", arms if len(versions) > 1 else ["none"])


class Turns(NamedTuple):
    """What was measured in turns, and through which files."""

    seconds: dict[int, dict[str, NDArray[np.float64]]]  # a launch: burst -> runtime -> a value a turn
    libraries: dict[str, dict[str, str]]  # runtime -> path and hash


@pytest.fixture(scope="module")
def turns(stack, wheels, gpu: Gpu, cubin: Cubin, bench_policy, order_seed, tmp_path_factory) -> Turns:
    """All runtimes at hand, measured in turns."""
    from bench_lib.device import cudart, native
    from bench_lib.device.kernels import EMPTY
    from bench_lib.launching.launch import CudartApi, DriverApi, synchronize_call
    from bench_lib.stacking import stacks

    if stack.kind != "here":
        raise NotApplicable(f"the ladder loads its runtimes itself and runs in stack here, not {stack.name}")
    entries = available(wheels)
    if len(entries) < 2:
        raise Unavailable(
            f"{len(entries)} CUDA runtimes at hand, the ladder needs two; fetch them with "
            "`cuda-gains stacks create cudart-11.8 cudart-12.4`"
        )
    paths = {version: stacks.cached_library(entry, wheels) for version, entry in entries.items()}
    runtimes = {version: cudart.Runtime.load(path) for version, path in paths.items()}
    if BASELINE in paths:
        # a name of its own: nothing that looks for this process's libcudart may take the copy for it
        copy = tmp_path_factory.mktemp("null") / f"null-{paths[BASELINE].name}"
        runtimes[NULL] = cudart.Runtime.load(paths[BASELINE], copy=copy)
    launches = {name: CudartApi(runtime, cubin, gpu).launch(EMPTY) for name, runtime in runtimes.items()}
    launches[DRIVER] = DriverApi(cubin, gpu).launch(EMPTY)
    sync = synchronize_call(gpu)
    rng = np.random.default_rng(order_seed)
    libraries = {
        name: {"cudart.path": str(runtime.path), "cudart.sha256": runtime.sha256}
        for name, runtime in runtimes.items()
    }
    result = {}
    for burst, count in (QUICK_TURNS if bench_policy.name == "quick" else TURNS).items():
        orders = rng.permuted(np.tile(np.arange(len(launches)), (count + count // 10, 1)), axis=1)
        seconds = native.in_turns(list(launches.values()), orders, burst, sync)
        result[burst] = dict(zip(launches, seconds[:, count // 10 :], strict=True))
    return Turns(result, libraries)


@pytest.mark.core
@pytest.mark.parametrize("metric", ["submit"])
@pytest.mark.parametrize("burst", [1, 100])
def bench_launch(bench, turns, runtime: str, burst: int, metric: str) -> None:
    """Submit cost of an empty kernel through one runtime, in bursts."""
    from bench_lib.model import Series, Timing

    bench.record(
        Series(
            tuple(float(s) for s in turns.seconds[burst][runtime]),
            timing=Timing.NATIVE,
            calls=burst,
            turns=f"ladder-{burst}",
            warmup_calls=len(turns.seconds[burst][runtime]) // 10 * burst,
            facts=turns.libraries.get(runtime, {}),
        )
    )
