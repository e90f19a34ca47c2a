"""What a check is and what it says: a snapshot in, one finding out."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from bench_lib.doctor.snapshot import Snapshot


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"


class Finding(NamedTuple):
    """What a check found, what it expected, and the one line that mends it ("" where all is well)."""

    state: State
    found: str
    expected: str = ""
    mend: str = ""

    @property
    def sentence(self) -> str:
        """All of it as one sentence."""
        expected = f", expected {self.expected}" if self.expected else ""
        return f"{self.found}{expected}{f'; {self.mend}' if self.mend else ''}"


class Check(NamedTuple):
    """One small question about a snapshot; the first line of `look`'s docstring says which."""

    look: Callable[[Snapshot], Finding]

    @property
    def name(self) -> str:
        """That of its function: `gpu_memory` is `gpu-memory`."""
        return self.look.__name__.replace("_", "-")

    @property
    def about(self) -> str:
        """What the check asks."""
        return (self.look.__doc__ or "").strip().partition("\n")[0]


def ok(found: str) -> Finding:
    """All is well."""
    return Finding(State.OK, found)


def warn(found: str, expected: str, mend: str) -> Finding:
    """A number may be moved by this, or a family cannot be measured."""
    return Finding(State.WARN, found, expected, mend)


def fail(found: str, expected: str, mend: str) -> Finding:
    """Nothing can be measured, or what is measured is wrong."""
    return Finding(State.FAIL, found, expected, mend)


def absent(found: str) -> Finding:
    """There is nothing to ask here."""
    return Finding(State.NOT_APPLICABLE, found)


def of_sentence(state: State, sentence: str, otherwise: str = "") -> Finding:
    """A sentence "FOUND, expected EXPECTED; MEND" of another module as a finding.

    `otherwise` mends it where the sentence does not say.
    """
    rest, _, mend = sentence.rpartition("; ")
    found, _, expected = (rest or sentence).partition(", expected ")
    return Finding(state, found, expected, mend if rest else otherwise)
