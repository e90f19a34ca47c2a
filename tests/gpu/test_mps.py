"""Processes that share a real GPU: kernels of one thread run side by side under MPS, and in turns without."""

import statistics

import pytest

from bench_lib.cublas import library
from bench_lib.device.gpu import detect
from bench_lib.device.telemetry import Telemetry
from bench_lib.errors import NotApplicable, Unavailable
from bench_lib.mps import control, sharing, work
from bench_lib.stacking.stacks import HERE

pytestmark = pytest.mark.gpu

CLIENTS, TURNS, SECONDS = 4, 5, 0.2


@pytest.fixture(scope="module")
def made():
    if not (found := detect()).available:
        pytest.skip(f"needs a GPU: {found.reason}")
    capability = tuple(map(int, found.compute_capability.split(".")))
    settings = Telemetry.open(found.uuid)
    try:
        command = sharing.check(found.uuid, capability, settings.describe())
    except (Unavailable, NotApplicable) as error:
        pytest.skip(str(error))
    before = settings.describe()
    clients = sharing.Sharing(command, found.uuid, CLIENTS)
    yield clients
    assert clients.close() == ""
    assert control.processes() == {}
    assert settings.describe() == before  # the compute mode among them


def seconds(made, count, asked, metric="per_request"):
    """By way: the median of the series."""
    medians = {}
    for way, found in made.measured(count, asked, TURNS, SECONDS).items():
        if isinstance(found, Unavailable):
            pytest.skip(str(found))
        if isinstance(found, Exception):
            raise found
        medians[way] = statistics.median(found[metric].seconds)
    return medians


def test_kernels_of_one_thread_run_side_by_side_under_mps_alone(made, tmp_path):
    """The positive control: each takes some 50 microseconds of one multiprocessor, so four fit at once."""
    asked = {"work": work.ONE_THREAD, "folder": str(tmp_path)}
    alone, four = seconds(made, 1, asked), seconds(made, CLIENTS, asked)
    print(f"\none thread, seconds a request: {alone}, of {CLIENTS} clients {four}")
    assert alone["mps"] / four["mps"] > 2.5
    assert alone["time_sliced"] / four["time_sliced"] < 1.5
    assert four["time_sliced"] / four["mps"] > 2.0


def test_small_kernels_are_right_both_ways(made, tmp_path):
    asked = {"work": work.SMALL, "folder": str(tmp_path)}
    found = seconds(made, CLIENTS, asked)
    print(f"\nsmall kernels, seconds a request of {CLIENTS} clients: {found}")
    assert 1e-6 < min(found.values()) < max(found.values()) < 1e-1


def test_products_are_right_both_ways(made):
    cublas = library.locate(HERE)
    asked = {"work": work.GEMM, "cublas": str(cublas.cublas), "cublaslt": str(cublas.cublaslt)}
    found = seconds(made, CLIENTS, asked)
    rates = {way: work.flop(work.GEMM) / one / 1e12 for way, one in found.items()}
    print(f"\nproducts of {CLIENTS} clients, TFLOP/s: {rates}")
    assert 1.0 < min(rates.values()) < 200.0  # fp32: no GPU so far does more, and TF32 would
