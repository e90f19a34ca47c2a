"""The environment variables that checks look at."""

from collections.abc import Mapping

from bench_lib import probe

# Besides those that a run stores; none of them holds a secret.
_VARIABLES = ("CONDA_PREFIX", "NVTX_INJECTION64_PATH", "PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONTRACEMALLOC")
_PREFIXES = ("NSYS_", "NV_COMPUTE_PROFILER_", "NV_NSIGHT_INJECTION_", "NV_TPS_", "TORCHDYNAMO_", "ASAN_")


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that checks look at; none that could hold a secret."""
    kept = {name.removeprefix("env."): value for name, value in probe.environment(environ).items()}
    more = {n: v for n, v in environ.items() if n in _VARIABLES or n.startswith(_PREFIXES)}
    return kept | {name: value for name, value in more.items() if not probe.secret_name(name)}
