"""Keep secrets out of what is written: values of variables that hold them, passwords in addresses."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench_lib.faults.output import cut

HIDDEN = "(hidden)"
_NAMES = ("TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE")
_LEAST_LENGTH = 6  # a shorter value is also an ordinary word
_NAMED = re.compile(r"(?i)(token|key|secret|pass(word|wd)?|pwd|credentials?|auth)\s*[=:]")
_PASSWORD = re.compile(r"(?<!\w)(\w{1,20}://)[^\s/@]+@")  # bounded: a log may hold one very long word


def secret_name(name: str) -> bool:
    """Whether a variable is called as those that hold secrets are."""
    return any(word in name.upper().replace("AUTHOR", "") for word in _NAMES)


def secret_value(value: str) -> bool:
    """Whether a value says that it holds a secret: `password=...`, or an address with one."""
    return _NAMED.search(value) is not None or ("://" in value and "@" in value)


def secrets(environ: Mapping[str, str]) -> list[str]:
    """The values that must not be written, the longest first."""
    found = {v for name, v in environ.items() if secret_name(name) and len(v) >= _LEAST_LENGTH}
    return sorted(found, key=len, reverse=True)


def hidden(value: Any, kept: list[str]) -> Any:
    """The same text, or list, or table, without the secrets in it."""
    if isinstance(value, str):
        for secret in kept:
            value = value.replace(secret, HIDDEN)
        return _PASSWORD.sub(rf"\g<1>{HIDDEN}@", value)
    if isinstance(value, Mapping):
        return {key: hidden(inner, kept) for key, inner in value.items()}
    return [hidden(inner, kept) for inner in value] if isinstance(value, list | tuple) else value


def hide_in(log: Path, kept: list[str]) -> None:
    """Take the secrets out of a log that nobody writes any more."""
    cut(log)
    text = log.read_bytes().decode(errors="surrogateescape")
    if (clean := hidden(text, kept)) != text:
        log.write_bytes(clean.encode(errors="surrogateescape"))
