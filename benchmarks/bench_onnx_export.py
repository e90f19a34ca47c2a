"""torch.onnx.export: how long it takes, whether it succeeds, and whether onnxruntime computes the same.

`export` is one export of a network by one of torch's two exporters, after a first one of a single layer, so
that what is done once in a process is not in it. `constructs` exports small modules, each with one thing
that exporters stumble over: how many succeed is the quantity `exports_succeeded`, which of them and why
not are facts. All of it happens on the CPU, on a machine with a GPU too.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_lib.exporting.exporter import Exporter

FAMILY = "onnx_export"
MARGIN = 0.10


@pytest.fixture(scope="module")
def exporters(stack, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exporter]:
    """An exporter by its name, warmed up when it is first asked for."""
    from bench_lib.exporting.exporter import Exporter

    return cache(lambda name: Exporter(stack, name, tmp_path_factory.mktemp(name)))


@pytest.mark.core(network="transformer")
@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("network", ["transformer", "resnet50"])
def bench_export(bench, exporters, network: str, exporter: str, metric: str) -> None:
    """A whole network in fp32, checked on two inputs."""
    from bench_lib.exporting.agreement import whole_network

    bench.record(whole_network(exporters(exporter), network))


@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def bench_constructs(bench, exporters, exporter: str, metric: str) -> None:
    """Small modules of a user's own: an attention mask, a loop, a condition, a batch left free and others."""
    from bench_lib.exporting.agreement import constructs
    from bench_lib.exporting.networks import CONSTRUCTS

    bench.record(constructs(exporters(exporter), CONSTRUCTS))
