"""A C library by path in, its functions with declared parameters out."""

import ctypes
import os
from collections.abc import Mapping
from ctypes import c_void_p
from typing import Any

from bench_lib.errors import Unavailable


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
