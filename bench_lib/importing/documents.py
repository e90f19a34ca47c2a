"""JSON with a place: a value that knows the file and the line it stands in, so that errors can name them."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench_lib.errors import DataError
from bench_lib.importing.found import Source

Step = str | int


@dataclass(frozen=True)
class Node:
    """One value of a JSON document."""

    source: Source
    value: Any
    path: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        """The way to it, such as `results[3].in_place`."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return "".join(steps).removeprefix(".") or "the document"

    def has(self, key: str) -> bool:
        """Whether it is an object with this key, and not null there."""
        return isinstance(self.value, dict) and self.value.get(key) is not None

    def child(self, key: str) -> "Node":
        """The value of a key; DataError where there is none."""
        if not self.has(key):
            raise self.malformed(f"has no {key!r}")
        return Node(self.source, self.value[key], (*self.path, key))

    def items(self, key: str) -> Iterator["Node"]:
        """The values of a list; none where the key is missing, DataError where it is no list."""
        if self.has(key):
            yield from self.child(key).elements()

    def elements(self) -> Iterator["Node"]:
        """The values of this list; DataError where it is none."""
        if not isinstance(self.value, list):
            raise self.malformed(f"is {_kind(self.value)}, expected a list")
        for place, value in enumerate(self.value):
            yield Node(self.source, value, (*self.path, place))

    def text(self, key: str, default: str | None = None) -> str:
        """A text or number as text; `default`, or DataError where there is none, for a missing one."""
        if default is not None and not self.has(key):
            return default
        found = self.child(key)
        if isinstance(found.value, dict | list):
            raise found.malformed(f"is {_kind(found.value)}, expected a text")
        return str(found.value)

    def number(self, key: str) -> float:
        """A number, also one written as text; "nan" and "N/A" are NaN."""
        return self.child(key).as_number()

    def integer(self, key: str) -> int:
        """A whole number, also one written as text."""
        value = self.number(key)
        if not value.is_integer():
            raise self.child(key).malformed(f"is {value:g}, expected a whole number")
        return int(value)

    def as_number(self) -> float:
        """This value as `number` reads one."""
        if self.value in ("N/A", "nan", "-nan"):
            return math.nan
        try:
            if isinstance(self.value, bool):
                raise ValueError
            return float(self.value)
        except (TypeError, ValueError):
            raise self.malformed(f"is {_kind(self.value)}, expected a number") from None

    def malformed(self, what: str) -> DataError:
        """The error that something is wrong with this value; names file and line."""
        line = self.source.text.count("\n", 0, _offset(self.source.text, self.path)) + 1
        return self.source.malformed(f"{self.name} {what}", line)


def _kind(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)


def _offset(text: str, path: tuple[Step, ...]) -> int:
    """Where in the text the value at `path` begins."""
    decode = json.JSONDecoder().raw_decode
    at = _past_space(text, 0)
    for step in path:
        is_object = text[at] == "{"
        at, place = _past_space(text, at + 1), 0
        while True:
            key: Step = place
            if is_object:
                key, at = decode(text, at)
                at = _past_space(text, _past_space(text, at) + 1)
            if key == step:
                break
            at = _past_space(text, _past_space(text, decode(text, at)[1]) + 1)
            place += 1
    return at


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
