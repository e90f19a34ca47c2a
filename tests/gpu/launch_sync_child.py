"""The suite's launch_sync of one cubin through one libcudart: prints the median, in seconds a pair.

Samples, calls and warm-up are those of launch_sync.cu.
"""

import sys
from hashlib import sha256
from pathlib import Path
from statistics import median
from time import perf_counter

from bench_lib.device import native
from bench_lib.device.cudart import Runtime
from bench_lib.device.gpu import Gpu
from bench_lib.device.kernels import Cubin
from bench_lib.launching.launch import CudartApi, synchronize_call

SAMPLES, CALLS, WARMUP_SECONDS = 50, 100, 0.3


def main() -> None:
    library, cubin_path = (Path(argument) for argument in sys.argv[1:3])
    gpu = Gpu.open(wait="spin")
    data = cubin_path.read_bytes()
    cubin = Cubin(data, sha256(data).hexdigest(), "sm_{}{}".format(*gpu.context.compute_capability))
    call = CudartApi(Runtime.load(library), cubin, gpu, kernels=("empty",)).launch("empty")
    sync = synchronize_call(gpu)
    start = perf_counter()
    while perf_counter() - start < WARMUP_SECONDS:
        native.launch_sync(call, sync, CALLS)
    print(f"{median(native.launch_sync(call, sync, CALLS) for _ in range(SAMPLES)):.12g}")


if __name__ == "__main__":
    main()
