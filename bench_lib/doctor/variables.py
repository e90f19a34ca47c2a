"""The environment variables that checks look at."""

from collections.abc import Mapping

from bench_lib.faults.secrets import HIDDEN, secret_name
from bench_lib.identity import probe
from bench_lib.stacking.variables import secret

# Besides those that a run stores; none of them holds a secret.
_VARIABLES = ("CONDA_PREFIX", "NVTX_INJECTION64_PATH", "PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONTRACEMALLOC")
_PREFIXES = ("NSYS_", "NV_COMPUTE_PROFILER_", "NV_NSIGHT_INJECTION_", "TORCHDYNAMO_", "ASAN_")


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that checks look at; a value that could be a secret is hidden.

    A path is none, however long a word in it is: which tool is injected must be told.
    """
    return {
        name: value if value.startswith("/") or not secret(name, value) else HIDDEN
        for name, value in environ.items()
        if _asked(name)
    }


def _asked(name: str) -> bool:
    if secret_name(name):
        return False
    return name in _VARIABLES or name.startswith(_PREFIXES) or bool(probe.environment({name: ""}))
