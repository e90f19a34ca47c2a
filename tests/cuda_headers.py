"""How CUDA's own headers declare a function: each parameter as the ctypes type it is passed as."""

import ctypes
import re
import sys
from pathlib import Path

import pytest

# The first that matches counts. A handle is a pointer; an enum is an int.
PASSED_AS = [
    (r"\*|\bCU(context|stream|event|deviceptr|module|function|linkState)\b", ctypes.c_void_p),
    (r"\bcuda(Stream|Graph|GraphExec)_t\b", ctypes.c_void_p),
    (r"\bunsigned long long\b", ctypes.c_uint64),
    (r"\bsize_t\b", ctypes.c_size_t),
    (r"\bunsigned int\b", ctypes.c_uint),
    (r"\b(int|CUdevice|CUresult|CUdevice_attribute|CUjitInputType|enum \w+|cudaError_t)\b", ctypes.c_int),
]


def header(name: str) -> str:
    """The text of a header of some CUDA on this machine: a toolkit's, or one that pip brought."""
    folders = [*Path("/usr/local").glob("cuda*/include")]
    folders += [folder for entry in sys.path for folder in Path(entry).glob("nvidia/*/include")]
    found = [folder / name for folder in folders if (folder / name).is_file()]
    if not found:
        pytest.skip(f"no {name} on this machine")
    return found[0].read_text()


def parameters(text: str, function: str) -> list[object]:
    """The parameters of a function; one passed by value as a struct is its name as text."""
    # A macro may add _v2. The first declaration is today's; older ones follow, for the headers' makers.
    name = function.removesuffix("_v2")
    match = re.search(rf"(?:CUDAAPI|CUDARTAPI)\s+{name}(?:_v2)?\(([^)]*)\)", text)
    assert match, f"{function} is not declared"
    return [_passed_as(each.strip()) for each in match[1].split(",") if each.strip() != "void"]


def _passed_as(parameter: str) -> object:
    for pattern, kind in PASSED_AS:
        if re.search(pattern, parameter):
            return kind
    return parameter.split()[0]
