"""torch.onnx.export by either of its exporters: seconds, the file, and its size."""

import importlib
import inspect
import re
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_lib import extras
from bench_lib.errors import CudaGainsError, NotApplicable, Unavailable, first_sentence
from bench_lib.exporting.networks import Subject, warm_up
from bench_lib.stack_packages import package_of

if TYPE_CHECKING:
    from bench_lib.stacking.stacks import StackEntry

DYNAMO, TORCHSCRIPT = "dynamo", "torchscript"
EXPORTERS = (DYNAMO, TORCHSCRIPT)
_PACKAGES = {DYNAMO: ("onnx", "onnxruntime", "onnxscript"), TORCHSCRIPT: ("onnx", "onnxruntime")}
_INPUT = "x"
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Exported:
    """A file that an export left."""

    path: Path
    seconds: float
    nbytes: int  # with the weights, wherever they lie


class Exporter:
    """One of torch's exporters, in a folder of its own; on the CPU, whatever is measured."""

    def __init__(self, entry: "StackEntry", name: str, folder: Path) -> None:
        """Warms up: what is done once in a process is not part of any export's time.

        Raises NotApplicable for a stack without torch or a torch without this exporter, Unavailable,
        naming the package, where something that it needs is not installed.
        """
        self.name, self._folder = name, folder
        self.torch = package_of(entry, "torch")
        self.facts = _versions(_PACKAGES[name])
        has_switch = "dynamo" in inspect.signature(self.torch.onnx.export).parameters
        if name == DYNAMO and not has_switch:
            raise NotApplicable(f"torch {self.torch.__version__} has no exporter `dynamo`; 2.5 or newer has")
        self._which = {"dynamo": name == DYNAMO} if has_switch else {}
        self.export(warm_up(self.torch))

    def export(self, subject: Subject) -> Exported:
        """Export a subject into a file; CudaGainsError with the exporter's own words when it fails."""
        folder = self._folder / subject.name
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.name}.onnx"
        options = {**self._which, **self._free(subject)}
        with warnings.catch_warnings():  # without no_grad: modules would take paths that are never exported
            warnings.simplefilter("ignore")  # of deprecations, which say nothing of this file
            begin = time.perf_counter()
            try:
                self.torch.onnx.export(
                    subject.module, subject.inputs, str(path), input_names=[_INPUT], verbose=False, **options
                )
            except Exception as error:  # of any of three packages
                raise CudaGainsError(f"{self.name} does not export {subject.name}: {_cause(error)}") from None
            seconds = time.perf_counter() - begin
        nbytes = sum(file.stat().st_size for file in folder.glob(f"{self.name}.onnx*"))
        return Exported(path, seconds, nbytes)

    def _free(self, subject: Subject) -> dict[str, Any]:
        if not subject.dynamic:
            return {}
        if self.name == TORCHSCRIPT:
            return {"dynamic_axes": {_INPUT: {0: "batch"}}}
        return {"dynamic_shapes": ({0: self.torch.export.Dim("batch")},)}


def _versions(packages: tuple[str, ...]) -> Mapping[str, str]:
    """The versions of what an exporter needs, as facts."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise Unavailable(
                f"{package} does not import here ({error}); {extras.cure('onnx')}, with this stack's Python"
            ) from None
    return {f"{package}.version": version(package) for package in packages}


def _cause(error: BaseException) -> str:
    """The first line of what an error comes from: an exporter's own is about how to report it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {first_sentence(_COLOUR.sub('', str(error)))[:200]}"
