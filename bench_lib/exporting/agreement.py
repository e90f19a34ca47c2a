"""Whether an ONNX file computes what the module does: onnxruntime on the CPU against torch on the CPU."""

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_lib.errors import CudaGainsError, WrongResult, first_sentence
from bench_lib.exporting.exporter import Exported, Exporter
from bench_lib.exporting.networks import Subject, construct, network
from bench_lib.model import Series, Timing

TOLERANCE = 1e-3  # of the largest value of the result, both in fp32; kernels sum in another order


@dataclass(frozen=True)
class Agreement:
    """How far the two are apart, on the inputs of the export and on the others."""

    max_abs_error: float
    relative_error: float  # the largest error over the largest value
    opset: int
    nodes: int


def agreement(torch: Any, subject: Subject, path: Path) -> Agreement:
    """Run the file and the module on the same inputs.

    Raises WrongResult where they differ, CudaGainsError where onnxruntime does not take the file.
    """
    onnx, runtime = importlib.import_module("onnx"), importlib.import_module("onnxruntime")
    model = onnx.load(str(path), load_external_data=False)
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        pairs = [_pair(torch, session, subject, inputs) for inputs in (subject.inputs, subject.others)]
    except Exception as error:  # of its own kinds, none of which is public
        raise CudaGainsError(
            f"onnxruntime does not run {subject.name}: {first_sentence(str(error))}"
        ) from None
    absolute = max(float(abs(found - expected).max()) for found, expected in pairs)
    relative = max(_relative(found, expected) for found, expected in pairs)
    if not relative <= TOLERANCE:
        raise WrongResult(
            f"{subject.name}: onnxruntime is off by {relative:.2g} of torch's largest value, at most "
            f"{TOLERANCE:g} was expected"
        )
    opset = max(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    return Agreement(absolute, relative, opset, len(model.graph.node))


def _pair(torch: Any, session: Any, subject: Subject, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    named = {put.name: tensor.numpy() for put, tensor in zip(session.get_inputs(), inputs, strict=True)}
    with torch.no_grad():
        expected = subject.module(*inputs).numpy()
    (found,) = session.run(None, named)
    if found.shape != expected.shape:
        raise WrongResult(f"shape {found.shape} for {expected.shape}")
    return found, expected


def _relative(found: Any, expected: Any) -> float:
    return float(abs(found - expected).max() / abs(expected).max())


def whole_network(exporter: Exporter, name: str) -> Series:
    """One export of a network, checked; raises where it fails or computes something else."""
    subject = network(exporter.torch, name)
    done = exporter.export(subject)
    found = agreement(exporter.torch, subject, done.path)
    quantities = {
        "onnx_nbytes": float(done.nbytes),
        "max_abs_error": found.max_abs_error,
        "relative_error": found.relative_error,
        "onnx_nodes": float(found.nodes),
    }
    facts = {**exporter.facts, "opset": str(found.opset), "export": "succeeded, and onnxruntime agrees"}
    return Series((done.seconds,), timing=Timing.HOST, quantities=quantities, facts=facts)


def constructs(exporter: Exporter, names: Iterable[str]) -> Series:
    """Small modules one after the other: which are exported and compute the same, told by name as facts.

    One that fails is counted and is no failure of the case; its time counts too.
    """
    seconds, told = 0.0, dict[str, str]()
    for name in names:
        done, told[name] = _tried(exporter, construct(exporter.torch, name))
        seconds += done.seconds if done else 0.0
    good = sum(text == "ok" for text in told.values())
    quantities = {"exports_succeeded": float(good), "exports_tried": float(len(told))}
    facts = {**exporter.facts, **{f"export.{name}": text for name, text in told.items()}}
    return Series((seconds,), timing=Timing.HOST, quantities=quantities, facts=facts)


def _tried(exporter: Exporter, subject: Subject) -> tuple[Exported | None, str]:
    done = None
    try:
        done = exporter.export(subject)
        agreement(exporter.torch, subject, done.path)
    except CudaGainsError as error:
        return done, str(error)
    return done, "ok"
