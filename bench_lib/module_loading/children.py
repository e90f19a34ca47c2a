"""Asks fresh processes what they took for a first time: one a question, each question once."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_lib.convolution import cudnn_libraries
from bench_lib.cublas import library
from bench_lib.errors import CaseTimeout, Crashed, Hung, NotApplicable, Unavailable
from bench_lib.module_loading.watch import Step
from bench_lib.mps.lines import Child
from bench_lib.running.outcomes import Outcomes
from bench_lib.stacking import stacks
from bench_lib.stacking.stacks import StackEntry

CHILD_SECONDS = 240.0  # eager loading of all of torch's kernels, from a cold disk
_END_SECONDS = 30.0  # to give a context back
_CHUNK = 1 << 24


@dataclass(frozen=True)
class Took:
    """What a child saw: its steps by name, and facts."""

    steps: Mapping[str, Step]
    facts: Mapping[str, str]


@dataclass
class Children:
    """The children of one run: `uuid` names the device for NVML, "" on the CPU."""

    stack: StackEntry
    uuid: str
    device: str = "cuda"
    _known: Outcomes[Took] = field(default_factory=Outcomes)
    _read: set[Path] = field(default_factory=set)

    def context(self, loading: str, cudart: Path | None) -> Took:
        """A context through a libcudart by its path, or through the driver alone."""
        self._ahead([cudart] if cudart else [])
        return self._ask(loading, {"kind": "context", "library": str(cudart or "")})

    def library(self, name: str, loading: str) -> Took:
        """The first use of cublas or cudnn, found as the stack has it."""
        if name == "cublas":
            found = library.locate(self.stack)
            self._ahead([found.cublas, found.cublaslt])
            files = {"cublas": str(found.cublas), "cublaslt": str(found.cublaslt)}
            return self._ask(loading, {"kind": name, **files})
        parts = cudnn_libraries.locate_cudnn(self.stack)
        self._ahead(path for path in (parts.cudnn.parent, *parts.folders) for path in path.glob("*.so*"))
        folders = [str(folder) for folder in parts.folders]
        return self._ask(loading, {"kind": name, "cudnn": str(parts.cudnn), "folders": folders})

    def torch(self, loading: str) -> Took:
        """Torch's import and its first calls, all in one child."""
        if not stacks.holds(self.stack, "torch"):
            raise NotApplicable(f"stack {self.stack.name} holds no torch")
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            raise Unavailable("torch is not installed here")
        self._ahead((Path(spec.origin).parent / "lib").glob("*.so*"))
        self._ahead(stacks.libraries(self.stack, "*.so*"))
        return self._ask(loading, {"kind": "torch"})

    def _ask(self, loading: str, asked: dict[str, Any]) -> Took:
        asked |= {"loading": loading, "uuid": self.uuid, "device": self.device}
        question = json.dumps(asked)
        return self._known.of(question, lambda: _answer(question, loading))

    def _ahead(self, paths: Iterable[Path]) -> None:
        """Have the files in the page cache: whoever comes first would else be timed with the disk."""
        for path in {path.resolve() for path in paths} - self._read:
            self._read.add(path)
            with path.open("rb", buffering=0) as stream:
                while stream.read(_CHUNK):
                    pass


def _answer(question: str, loading: str) -> Took:
    environment = {**os.environ, "CUDA_MODULE_LOADING": loading.upper()}
    child = Child("bench_lib.module_loading.child", [question], environment)
    try:
        answer = child.answer(CHILD_SECONDS)
    except Hung:
        raise CaseTimeout(f"the child that does it first did not end within {CHILD_SECONDS:.0f} s") from None
    except EOFError:
        raise Crashed(f"the child that does it first died: {child.last_words()}") from None
    finally:
        child.dismiss()
        if not child.ended(_END_SECONDS):
            child.end_hung()
    return Took({name: Step(**step) for name, step in answer["steps"].items()}, answer["facts"])
