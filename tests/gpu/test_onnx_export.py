"""Exports on a machine with a GPU: they stay on the CPU, and leave the GPU alone."""

import pytest

from bench_lib.exporting import agreement, networks
from bench_lib.exporting.exporter import EXPORTERS, Exporter
from bench_lib.stacking import stacks

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", EXPORTERS)
def test_networks_and_constructs_are_exported(name, tmp_path, capsys):
    for package in ("torch", "torchvision", "onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    exporter = Exporter(stacks.HERE, name, tmp_path)

    for network in (networks.TRANSFORMER, networks.RESNET50):
        found = agreement.whole_network(exporter, network)
        assert found.quantities["relative_error"] < agreement.TOLERANCE
        with capsys.disabled():
            print(f"\n{network} by {name}: {found.seconds[0]:.2f} s")
    found = agreement.constructs(exporter, networks.CONSTRUCTS)
    with capsys.disabled():
        print("\n" + "\n".join(f"{key}: {text}" for key, text in found.facts.items() if text != "ok"))
    assert found.quantities["exports_succeeded"] >= 6
