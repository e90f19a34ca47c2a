"""Copied as sitecustomize.py: runs first in every Python process of a stack that is not this Python as it is.

Workers and compilers' helpers are processes too, and torch finds its libraries by DT_RPATH, which
LD_LIBRARY_PATH does not change. A library that is loaded already, by its full path, is what the loader
takes for every later library that asks for its soname. LD_PRELOAD would also load it into gcc and ptxas.
"""

import ctypes
import os
import sys
from collections.abc import Mapping

PRELOAD_VARIABLE = "CUDA_GAINS_PRELOAD"  # paths of libraries, joined by ":"
HIDDEN_VARIABLE = "CUDA_GAINS_HIDDEN"  # names of packages, joined by ","


def prepare(variables: Mapping[str, str]) -> None:
    """Load the libraries that are exchanged; make the packages a stack does not hold absent."""
    for path in filter(None, variables.get(PRELOAD_VARIABLE, "").split(":")):
        ctypes.CDLL(path)
    for name in filter(None, variables.get(HIDDEN_VARIABLE, "").split(",")):
        sys.modules[name] = None  # type: ignore[assignment]  # "import NAME" raises ModuleNotFoundError


if __name__ == "sitecustomize":
    prepare(os.environ)
