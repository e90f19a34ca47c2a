"""First times on a real GPU: contexts have a size, and torch's is smaller when it is loaded lazily."""

import pytest

from bench_lib.device import cudart
from bench_lib.device.gpu import detect
from bench_lib.module_loading.children import Children
from bench_lib.stacking.stacks import HERE

pytestmark = pytest.mark.gpu

LOADINGS = ("lazy", "eager")
MIB = 1 << 20


@pytest.fixture(scope="module")
def children():
    if not (found := detect()).available:
        pytest.skip(f"needs a GPU: {found.reason}")
    return Children(HERE, found.uuid)


def total(took, names):
    """Seconds and bytes of some steps together."""
    steps = [took.steps[name] for name in names]
    return sum(step.seconds for step in steps), sum(step.nbytes for step in steps)


@pytest.mark.parametrize("loading", LOADINGS)
@pytest.mark.parametrize("api", ["driver", "cudart"])
def test_a_context_takes_time_and_memory(children, api, loading):
    took = children.context(loading, cudart.of_stack(HERE) if api == "cudart" else None)
    assert took.facts["module_loading"] == loading
    assert 1e-3 < took.steps["first"].seconds < 60
    assert 32 * MIB < took.steps["first"].nbytes < 4096 * MIB


@pytest.mark.parametrize("loading", LOADINGS)
@pytest.mark.parametrize("name", ["cublas", "cudnn"])
def test_the_first_use_of_a_library_is_right(children, name, loading):
    took = children.library(name, loading)
    seconds, nbytes = total(took, ["init", "first"])
    print(f"\n{name}, {loading}: {seconds:.3f} s, {nbytes / MIB:.0f} MiB, {took.facts}")
    assert took.facts["module_loading"] == loading
    assert 1e-4 < seconds < 60
    assert 0 <= nbytes < 16384 * MIB


def test_eager_loading_takes_more_memory_for_torch(children):
    """The positive control: all of torch's kernels are on the device, not those alone that ran."""
    pytest.importorskip("torch")
    names = ["cuda_init", "matmul", "convolution"]
    found = {loading: total(children.torch(loading), names) for loading in LOADINGS}
    print(f"\ntorch, seconds and bytes: {found}")
    assert found["eager"][1] > found["lazy"][1] + 32 * MIB
