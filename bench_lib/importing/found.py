"""What a file of another tool gives: runs of cases. And the file itself, which can say where it is wrong."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bench_lib.errors import DataError, UsageError
from bench_lib.model import Scalar, Status


@dataclass(frozen=True)
class FoundCase:
    """One case as the tool measured it. `timing` names the tool's method: methods are never compared."""

    op: str
    params: Mapping[str, Scalar]
    timing: str
    seconds: tuple[float, ...] = ()  # per call; a bandwidth is the seconds that `nbytes` take
    status: Status = Status.OK
    reason: str = ""
    calls: int = 1  # averaged into one sample
    world_size: int = 1
    nbytes: float | None = None
    flop: float | None = None
    warmup_calls: int | None = None
    quantities: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FoundRun:
    """One process of a tool, or one node of it: what it ran on, and its cases."""

    family: str  # the tool
    policy: str  # its settings that decide a number; policies are never pooled
    cases: tuple[FoundCase, ...]
    margin: float
    host: str = ""
    gpu_name: str = ""
    started_at: float | None = None  # seconds since the epoch
    ended_at: float | None = None
    stack: Mapping[str, str] = field(default_factory=dict)  # identities, with dotted keys
    driver: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True  # False: its output ends early
    notes: tuple[str, ...] = ()  # what of the file was left out


@dataclass(frozen=True)
class Source:
    """A file of another tool."""

    path: Path
    data: bytes

    @classmethod
    def read(cls, path: Path) -> "Source":
        """The file; UsageError where it cannot be read."""
        try:
            return cls(path, path.read_bytes())
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read ({error.strerror}); name a file that another tool wrote"
            ) from None

    @cached_property
    def text(self) -> str:
        """The file as text; DataError, naming the line, where it holds none."""
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.data[: error.start].count(b"\n") + 1
            raise self.malformed("holds bytes that are no text", line) from None

    @cached_property
    def document(self) -> Any:
        """The file as one JSON document; DataError with the line where it stops being one."""
        try:
            return json.loads(self.text)
        except json.JSONDecodeError as error:
            ends = not self.text[error.pos :].strip()
            what = "the file ends in the middle of it; was the run killed?" if ends else error.msg
            raise self.malformed(f"column {error.colno} is no JSON ({what})", error.lineno) from None
        except RecursionError:
            raise self.malformed("is nested too deeply to be a file of results", 1) from None

    @property
    def digest(self) -> str:
        """The SHA-256 of the content: the same file is the same run, whatever it is called."""
        return hashlib.sha256(self.data).hexdigest()

    def malformed(self, what: str, line: int | None = None) -> DataError:
        """The error of a file that is not what it seems to be."""
        return DataError(f"{self.path}{'' if line is None else f', line {line}'}: {what}")


def names(found: "list[str] | tuple[str, ...]") -> str:
    """Different names in one text, in order of appearance."""
    return ", ".join(dict.fromkeys(name for name in found if name))


def trouble(seconds: float) -> str:
    """Why a time cannot be a sample; "" when it can."""
    return "" if 0 < seconds < float("inf") else f"its time is {seconds}, which is no positive number"
