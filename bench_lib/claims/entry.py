"""One table of a claims file, read key by key: the value, or an error that says what was expected."""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench_lib.errors import UsageError


@dataclass(frozen=True)
class Entry:
    """A table and where it stands, for errors to name."""

    where: str
    table: Mapping[str, Any]

    def error(self, what: str) -> UsageError:
        """The error that something about this entry is wrong."""
        return UsageError(f"{self.where} {what}")

    def text(self, key: str, default: str = "") -> str:
        """The text of a key; UsageError for anything else."""
        value = self.table.get(key, default)
        if not isinstance(value, str):
            raise self.error(f"has {key} = {value!r}, expected text")
        return value

    def needed(self, key: str) -> str:
        """The text of a key that must be there."""
        if not (value := self.text(key)).strip():
            raise self.error(f"lacks {key!r}")
        return value

    def one_of(self, key: str, known: Sequence[str], default: str | None = None) -> str:
        """A key whose text is one of `known`."""
        value = self.needed(key) if default is None else self.text(key, default)
        if value not in known:
            close = difflib.get_close_matches(value, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise self.error(f"has {key} = {value!r}, expected one of {_named(known)}{hint}")
        return value

    def number(self, key: str, default: float | None = None, least: float = -math.inf) -> float:
        """A finite number, not below `least`."""
        value = self.table.get(key, default)
        if value is None:
            raise self.error(f"lacks {key!r}, a share such as 0.30 for 30 %")
        if not _is_number(value) or value < least:
            raise self.error(f"has {key} = {value!r}, expected a number such as 0.30 for 30 %")
        return float(value)

    def pair(self, key: str) -> tuple[float, float]:
        """Two finite numbers in order."""
        value = self.table.get(key)
        good = isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
        if not good or not isinstance(value, list) or value[0] > value[1]:
            raise self.error(f"has {key} = {value!r}, expected two shares in order: [0.08, 0.12]")
        return float(value[0]), float(value[1])

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false, `default` where the key is absent."""
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"has {key} = {value!r}, expected true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, or one text alone."""
        value = self.table.get(key, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(one, str) and one for one in listed):
            raise self.error(f"has {key} = {value!r}, expected text or a list of texts")
        return tuple(listed)

    def tables(self, key: str) -> tuple[Mapping[str, Any], ...]:
        """A list of tables, or one table alone."""
        value = self.table.get(key, [])
        listed = [value] if isinstance(value, dict) else value
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise self.error(f'has {key} = {value!r}, expected tables such as {{ family = "launch" }}')
        return tuple(listed)

    def versions(self, key: str) -> dict[str, str]:
        """A table of texts, such as components and their versions."""
        value = self.table.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(one, str) and one for one in value.values()):
            raise self.error(f'has {key} = {value!r}, expected texts: {{ cudart = "12.4" }}')
        if key in self.table and not value:
            raise self.error(f"has an empty {key}; leave it out, or name what it holds")
        return dict(value)

    def without(self, *keys: str, because: str) -> None:
        """Raise unless none of the keys is there."""
        for key in keys:
            if key in self.table:
                raise self.error(f"has {key!r}, but {because}")


def _is_number(value: object) -> bool:
    """A finite number that a float can hold; TOML's integers have no end, and true is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e300


def _named(known: Iterable[str]) -> str:
    return ", ".join(repr(one) for one in known if one)
