"""Strict JSON, and checksums of what is text on disk: a journal's line, a --benchmark-json file.

Parquet has its own. A flipped bit in text is often still valid JSON, with another number in it.
"""

import hashlib
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from bench_lib import schema

_SEAL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}')
_LENGTH = 20  # of that, at the end of a line


def finite(value: Any) -> Any:
    """The value for strict JSON: NaN and infinity become None, text becomes what UTF-8 can hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {schema.text(str(k)): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return schema.text(value) if isinstance(value, str) else value


def document(value: Any) -> str:
    """A whole document as strict JSON that people can read."""
    return json.dumps(finite(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def line(record: Mapping[str, Any]) -> bytes:
    """A record as one line of JSON, its checksum the last member."""
    text = json.dumps(finite(record), separators=(",", ":")).encode()
    return text[:-1] + b',"crc32":"%08x"}\n' % zlib.crc32(text)


def is_sealed(text: bytes) -> bool:
    """Whether a line carries a checksum (those of older versions do not)."""
    return _SEAL.fullmatch(text, max(len(text) - _LENGTH, 0)) is not None


def record(text: bytes, sealed: bool) -> dict[str, Any]:
    """The record of a line; ValueError where it is none or is not what was written.

    `sealed`: its file carries checksums, so a line without one has lost it.
    """
    found = _SEAL.fullmatch(text, max(len(text) - _LENGTH, 0))
    if found:
        text = text[: found.start()] + b"}"
        if int(found[1], 16) != zlib.crc32(text):
            raise ValueError("its checksum does not hold")
    elif sealed:
        raise ValueError("it has no checksum, other lines do")
    value = json.loads(text)
    if not isinstance(value, dict) or not isinstance(value.get("event"), str):
        raise ValueError("it is not an event")
    return value


def digest(runs: object, cases: object, benchmarks: Sequence[Any]) -> str:
    """The checksum of what a --benchmark-json file of ours is read for: runs, cases and samples."""
    samples = [[one["fullname"], one["stats"].get("data")] for one in benchmarks]
    text = json.dumps(finite([runs, cases, samples]), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
