"""Which environment variables can move a number, and which could hold a secret."""

from collections.abc import Mapping

from bench_lib.faults.secrets import secret_name, secret_value

_VARIABLES = frozenset(
    {
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "PYTHONHASHSEED",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NVIDIA_TF32_OVERRIDE",
        "NVIDIA_VISIBLE_DEVICES",
        "GLIBC_TUNABLES",
    }
)
_PREFIXES = (
    "CUDA_",
    "CUDNN_",
    "CUBLAS_",
    "CUPY_",
    "NCCL_",
    "PYTORCH_",
    "TORCH",
    "TRITON_",
    "NUMBA_",
)
# Where files lie: differs from stack to stack and run to run, and moves no number.
_PLACES = ("CUDA_GAINS_", "_CACHE_DIR", "CUDA_CACHE_PATH")
_LONG_WORD = 32


def moving(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that can move a number, by name; none that could hold a secret."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if (name in _VARIABLES or name.startswith(_PREFIXES))
        and not any(place in name for place in _PLACES)
        and not secret(name, value)
    }


def secret(name: str, value: str) -> bool:
    """Whether a variable could hold a secret: by its name, a password in an address, or a long key."""
    if secret_name(name) or secret_value(value):
        return True
    # A long word of letters and digits is a key; names of devices and paths have dashes or slashes.
    words = "".join(c if c.isalnum() or c == "_" else " " for c in value).split()
    return any(
        len(word) >= _LONG_WORD and any(map(str.isdigit, word)) and any(map(str.isalpha, word))
        for word in words
    )
