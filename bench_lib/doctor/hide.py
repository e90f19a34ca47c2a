"""Keep secrets out of what is printed: values of variables that hold them, passwords in addresses."""

import re
from collections.abc import Mapping
from typing import Any

from bench_lib import probe

HIDDEN = "(hidden)"
_LEAST_LENGTH = 6  # a shorter value is also an ordinary word
_PASSWORD = re.compile(r"(\w+://)[^\s/@]+@")


def secrets(environ: Mapping[str, str]) -> list[str]:
    """The values that must not be printed, the longest first."""
    found = {v for name, v in environ.items() if probe.secret_name(name) and len(v) >= _LEAST_LENGTH}
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
