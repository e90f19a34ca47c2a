"""Works in, what nvbench measured of them out: the package is looked for, and a child process runs it."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.version import Version

from bench_lib.cross_check.child import Request
from bench_lib.errors import CaseTimeout, Crashed, CudaGainsError, Unavailable
from bench_lib.importing import nvbench
from bench_lib.importing.found import FoundCase, Source
from bench_lib.model import Policy, Series, Status, Timing
from bench_lib.processes.ended import last_line
from bench_lib.running.outcomes import given

CHILD_SECONDS = 100.0
OLDEST = "0.3"  # the first cuda-bench that stops after a number of samples
_MAJORS = (12, 13)
_INSTALL = "pip install 'cuda-bench[cu12]' or 'cuda-bench[cu13]', by the CUDA of your torch"
_METRICS = {"gpu": "cold", "batch": "batch"}  # of nvbench, as this family calls them

Found = Mapping[tuple[str, str], Series | CudaGainsError]  # by work and metric


def require() -> str:
    """The version of the package that can be used here; Unavailable, with what to install, where none can."""
    found, bindings = _version("cuda-bench"), _version("cuda-bindings")
    if found is None:
        raise Unavailable(f"nvbench for Python (cuda-bench) is not installed; {_INSTALL}")
    if Version(found) < Version(OLDEST):
        raise Unavailable(f"cuda-bench {found} is too old to stop after a number of samples; {_INSTALL}")
    if bindings is None or Version(bindings).major not in _MAJORS:
        has = f"has {bindings}" if bindings else "has none"
        raise Unavailable(f"cuda-bench needs cuda-bindings 12 or 13, this environment {has}; {_INSTALL}")
    return found


def measure(works: Sequence[str], cubin: Path, policy: Policy, seconds: float = CHILD_SECONDS) -> Found:
    """What nvbench found for each work: samples of cold calls, and the mean of batches (one value).

    What nvbench skipped is an error in its place. Raises Unavailable without the package, CaseTimeout for a
    process that did not end, Crashed for one that died, else CudaGainsError with its last line.
    """
    require()
    with TemporaryDirectory(prefix="cuda-gains-nvbench-") as folder:
        out = Path(folder) / "nvbench.json"
        request = Request(tuple(works), str(cubin), policy.samples, policy.warmup_seconds, str(out))
        _run(request, seconds)
        (run,) = nvbench.read(Source.read(out))
    metrics = ((case, _METRICS.get(str(case.params["metric"]))) for case in run.cases)
    return {(case.op, metric): _series(case) for case, metric in metrics if metric is not None}


def taken(found: Found, work: str, metric: str) -> Series:
    """The series of a work by a metric; raises why there is none."""
    return given(found.get((work, metric)) or CudaGainsError(f"nvbench gave no {metric} time of {work}"))


def _run(request: Request, seconds: float) -> None:
    command = [sys.executable, "-m", "bench_lib.cross_check.child", request.text()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise CaseTimeout(f"the process in which nvbench measures did not end within {seconds:g} s") from None
    if done.returncode == 0 and Path(request.json).exists():
        return
    kind = Crashed if done.returncode < 0 else CudaGainsError
    last = last_line(done.stderr)
    raise kind(f"the process in which nvbench measures ended with {done.returncode}: {last}")


def _series(case: FoundCase) -> Series | CudaGainsError:
    if case.status is not Status.OK:
        return CudaGainsError(f"nvbench did not measure it: {case.reason}")
    return Series(case.seconds, timing=Timing(case.timing))


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
