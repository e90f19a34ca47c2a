"""ONNX exports: really made by torch, really run by onnxruntime, and what is wrong with one is told."""

import sys
from importlib.util import find_spec

import pytest

from bench_lib.errors import CudaGainsError, NotApplicable, Unavailable, WrongResult
from bench_lib.exporting import agreement, exporter, networks
from bench_lib.exporting.exporter import TORCHSCRIPT, Exporter
from bench_lib.stacking import stacks

NEEDED = ("torch", "torchvision", "onnx", "onnxruntime", "onnxscript")

pytestmark = pytest.mark.skipif(
    not all(find_spec(name) for name in NEEDED), reason="needs torch and the extra onnx"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Exporter:
    return Exporter(stacks.HERE, TORCHSCRIPT, tmp_path_factory.mktemp("torchscript"))


def test_dynamo_exports_what_torchscript_cannot(tmp_path):
    found = agreement.constructs(Exporter(stacks.HERE, exporter.DYNAMO, tmp_path), ["condition"])

    assert found.facts["export.condition"] == "ok"
    assert set(found.facts) == {"export.condition", *(f"{name}.version" for name in NEEDED[2:])}


@pytest.mark.slow
@pytest.mark.parametrize("name", exporter.EXPORTERS)
def test_whole_networks_are_exported(name, tmp_path):
    made = Exporter(stacks.HERE, name, tmp_path)
    for network, least in ((networks.TRANSFORMER, 1e6), (networks.RESNET50, 1e8)):  # 25 million weights
        found = agreement.whole_network(made, network).quantities
        assert 0 < found["relative_error"] < 1e-4
        assert found["onnx_nbytes"] > least


def test_what_is_not_exported_is_counted_and_told_by_name(made):
    found = agreement.constructs(made, ["einsum", "condition"])

    assert found.quantities == {"exports_succeeded": 1.0, "exports_tried": 2.0}
    assert found.facts["export.einsum"] == "ok"
    assert found.facts["export.condition"].startswith("torchscript does not export condition: RuntimeError: ")
    assert "\x1b" not in found.facts["export.condition"]


def test_a_file_that_computes_something_else_is_a_wrong_result(made):
    subject = networks.construct(made.torch, "free-batch")
    done = made.export(subject)
    assert agreement.agreement(made.torch, subject, done.path).relative_error < 1e-5

    made.torch.nn.init.ones_(subject.module[3].bias)
    with pytest.raises(WrongResult, match=r"^free-batch: onnxruntime is off by .* at most 0\.001 was"):
        agreement.agreement(made.torch, subject, done.path)


def test_a_batch_that_was_not_left_free_is_refused_by_onnxruntime(made):
    free = networks.construct(made.torch, "free-batch")
    bound = networks.Subject("bound", free.module, free.inputs, free.others)

    with pytest.raises(CudaGainsError, match=r"^onnxruntime does not run bound: .*invalid dimensions"):
        agreement.agreement(made.torch, bound, made.export(bound).path)


def test_a_branch_that_tracing_took_is_found_on_the_other_input(made):
    class Branch(made.torch.nn.Module):
        def forward(self, x):
            return x.sin() if x.sum() > 0 else x.cos()

    one = made.torch.ones(3)
    subject = networks.Subject("branch", Branch().eval(), (one,), (-one,))
    with pytest.raises(WrongResult, match=r"^branch: "):
        agreement.agreement(made.torch, subject, made.export(subject).path)


def test_what_is_not_there_is_a_sentence(made, tmp_path, monkeypatch):
    with pytest.raises(NotApplicable, match=r"stack native-12\.4 holds no torch"):
        Exporter(stacks.stack("native-12.4"), TORCHSCRIPT, tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(Unavailable, match=r"^onnxruntime does not import .* -e '\.\[onnx\]'`"):
            Exporter(stacks.HERE, TORCHSCRIPT, tmp_path)
    monkeypatch.setattr(made.torch.onnx, "export", lambda model, args, f, verbose: None)
    with pytest.raises(NotApplicable, match=r"has no exporter `dynamo`; 2\.5 or newer has"):
        Exporter(stacks.HERE, exporter.DYNAMO, tmp_path)
