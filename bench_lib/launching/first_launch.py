"""The first launch of a fresh process: a child that makes a context, then times its first launch.

The child imports no more than that takes: it is started anew for each value.
`init` is what precedes the launch (the runtime's own initialisation and, with eager loading, the
module), `first` the launch itself and the wait for it. One child gives one value of each.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from bench_lib.device import kernels
from bench_lib.device.cudart import Runtime
from bench_lib.device.driver import Driver
from bench_lib.errors import CudaGainsError, Unavailable
from bench_lib.processes.ended import last_line

CHILD_SECONDS = 60


def measure(cubin: Path, loading: str, library: Path | None) -> dict[str, float]:
    """Seconds of `init` and `first` in a fresh process.

    `cubin` is the campaign's cubin, `loading` lazy or eager (CUDA_MODULE_LOADING), `library` a
    libcudart, or None for the driver API alone. Raises Unavailable when the child fails.
    """
    command = [sys.executable, "-m", "bench_lib.launching.first_launch", str(cubin), str(library or "")]
    environment = {**os.environ, "CUDA_MODULE_LOADING": loading.upper()}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
    )
    if done.returncode != 0:
        last = last_line(done.stderr)
        raise Unavailable(f"the child that times a first launch ended with {done.returncode}: {last}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    """The child: print `init` and `first` as JSON."""
    cubin_path, library = Path(sys.argv[1]), sys.argv[2]
    context = Driver.load().open()
    stream = context.stream()
    cubin = kernels.read_cubin(cubin_path)
    begin = perf_counter()
    if library:
        runtime = Runtime.load(Path(library))
        key = runtime.register(cubin, (kernels.EMPTY,))[kernels.EMPTY]
        runtime.initialise()
        ready = perf_counter()
        runtime.launch(key, (1, 1, 1), (1, 1, 1), stream)
    else:
        function = context.function(context.load(cubin.data), kernels.EMPTY)
        ready = perf_counter()
        context.launch(function, (1, 1, 1), (1, 1, 1), (), stream)
    context.synchronize(stream)
    print(json.dumps({"init": ready - begin, "first": perf_counter() - ready}))  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except CudaGainsError as error:
        sys.exit(str(error))
