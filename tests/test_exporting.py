"""ONNX exports: really made by torch, really run by onnxruntime, and what is wrong with one is told."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench_lib import stacks
from bench_lib.errors import CudaGainsError, NotApplicable, Unavailable, WrongResult
from bench_lib.exporting import agreement, exporter, networks
from bench_lib.exporting.exporter import TORCHSCRIPT, Exporter

ROOT = Path(__file__).parents[1]
NEEDED = ("torch", "torchvision", "onnx", "onnxruntime", "onnxscript")

pytestmark = pytest.mark.skipif(
    not all(find_spec(name) for name in NEEDED), reason="needs torch and the extra onnx"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Exporter:
    return Exporter(stacks.HERE, TORCHSCRIPT, tmp_path_factory.mktemp("torchscript"))


def test_the_family_as_it_is_run(tmp_path):
    """All of torchscript, and the Transformer of dynamo."""
    command = [sys.executable, "-m", "pytest", "benchmarks", "--family", "onnx_export", "--device", "cpu"]
    options = ["-k", "torchscript or transformer", "--results", str(tmp_path), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "local" / "cases").glob("*.parquet")
    rows = {row["case_id"]: row for row in pq.read_table(path).to_pylist()}
    assert {one["status"] for one in rows.values()} == {"ok"}, [one["reason"] for one in rows.values()]
    export = {(p["network"], p["exporter"]): one for p, one in _of("export", rows)}
    assert set(export) == {
        ("resnet50", "torchscript"),
        ("transformer", "torchscript"),
        ("transformer", "dynamo"),
    }
    for (network, name), one in export.items():
        quantities, facts = dict(one["quantities"]), dict(one["facts"])
        assert 0 < quantities["relative_error"] < 1e-4
        assert quantities["onnx_nbytes"] > (1e8 if network == "resnet50" else 1e6)  # 25 million weights
        assert ("onnxscript.version" in facts) is (name == "dynamo")
        assert one["margin"] == 0.10
    ((_, constructs),) = _of("constructs", rows)
    assert dict(constructs["quantities"])["exports_tried"] == len(networks.CONSTRUCTS)
    assert dict(constructs["quantities"])["exports_succeeded"] >= 6


def _of(op, rows):
    return [(json.loads(one["params"]), one) for one in rows.values() if one["op"] == op]


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
        with pytest.raises(Unavailable, match=r"^onnxruntime does not import .* install the extra `onnx`"):
            Exporter(stacks.HERE, TORCHSCRIPT, tmp_path)
    monkeypatch.setattr(made.torch.onnx, "export", lambda model, args, f, verbose: None)
    with pytest.raises(NotApplicable, match=r"has no exporter `dynamo`; 2\.5 or newer has"):
        Exporter(stacks.HERE, exporter.DYNAMO, tmp_path)
