"""C libraries: where the loader knows them, and by path in, functions with declared parameters out."""

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from ctypes import c_void_p
from pathlib import Path
from typing import Any

from bench_lib.errors import Unavailable


def known_to_ldconfig(name: str) -> list[Path]:
    """The files that the loader of this machine knows whose names fit a regular expression."""
    command = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    if not command:
        return []
    listing = subprocess.run([command, "-p"], capture_output=True, text=True, check=False).stdout
    return [Path(path) for path in re.findall(rf"{name} .*=> (\S+)", listing)]


def open_for_all(path: Path) -> ctypes.CDLL:
    """Load a library by path, lending its symbols to those loaded later; Unavailable when it fails."""
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL | os.RTLD_NOW)
    except OSError as error:
        raise Unavailable(f"{path} cannot be loaded: {error}") from None


class Library:
    """A loaded C library whose functions return 0 or a CUDA error code."""

    def __init__(self, path: str, signatures: Mapping[str, tuple[Any, ...]]) -> None:
        """Load it, resolving all it needs now and lending its symbols to nobody; OSError if it fails."""
        self.path = path
        self._cdll = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        self._signatures = signatures
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """The function with its declared parameters; Unavailable when the library has none."""
        if name not in self._functions:
            try:
                function = self._cdll[name]
            except AttributeError:
                raise Unavailable(f"{self.path} has no {name}; a newer one is needed") from None
            if name in self._signatures:
                function.argtypes = self._signatures[name]
            self._functions[name] = function
        return self._functions[name]

    def address(self, name: str) -> int:
        """The address of a function, for the native loops."""
        return ctypes.cast(self.function(name), c_void_p).value or 0
