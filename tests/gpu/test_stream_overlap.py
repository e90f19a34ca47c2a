"""stream_overlap on a real GPU: pinned copies overlap by more than 1.5, lost bytes are caught."""

import pytest

from bench_lib.device.gpu import Gpu
from bench_lib.errors import WrongResult
from bench_lib.model import Policy
from bench_lib.overlap import copying, loading
from bench_lib.overlap.copying import Passes, Size

POLICY = Policy("test", samples=15, budget_seconds=3.0, min_samples=5, max_warmup_seconds=0.2)

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def gpu(torch):
    gpu = Gpu.open()
    with torch.cuda.stream(torch.cuda.ExternalStream(gpu.stream)):
        yield gpu


@pytest.mark.parametrize("direction", ["to_gpu", "to_cpu"])
@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_copies_beside_kernels(torch, gpu, capsys, memory, direction):
    found = copying.measured(Passes(torch, memory, direction, Size()), gpu, POLICY, "test", 1)
    quantities = found["two"].quantities
    engines = gpu.context.attribute(copying.ASYNC_ENGINE_COUNT)
    with capsys.disabled():
        print(f"\n{memory} {direction}, {engines} copy engines: {dict(quantities)} {found['two'].warnings}")
    if not found["two"].warnings:
        assert 1.8 < quantities["overlap_bound"] <= 2.0
    assert quantities["overlap_ratio"] < 1.2 * quantities["overlap_bound"]
    if memory == "pinned" and engines:
        copying.check_control(found, engines)
        assert quantities["overlap_ratio"] > 1.5


def test_bytes_that_are_not_copied_are_caught(torch, gpu, monkeypatch):
    copy = Passes._copy
    monkeypatch.setattr(Passes, "_copy", lambda self, chunk: None if chunk == 5 else copy(self, chunk))
    with pytest.raises(WrongResult, match=r"chunks \[5\] of 8"):
        copying.measured(Passes(torch, "pinned", "to_gpu", Size()), gpu, POLICY, "test", 1)


@pytest.mark.parametrize("workers", [0, 4])
def test_a_loader_feeds_the_gpu(torch, gpu, capsys, workers):
    series = loading.fed(torch, "cuda", workers, POLICY)
    with capsys.disabled():
        rate = loading.BATCH["cuda"] / min(series.seconds)
        print(f"\n{workers} workers: {rate:.0f} images/s {dict(series.quantities)}")
    assert len(series.seconds) >= 5
    assert 0 < series.quantities["step_alone_seconds"] < max(series.seconds)
