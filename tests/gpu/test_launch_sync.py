"""launch_sync of `cudaLaunchKernel` against a CUDA C++ program built here: within 3 %."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench_lib.comparing import stats

HERE = Path(__file__).parent
PAIRS = 20
TOLERANCE = 0.03

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"),
]


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_launch_sync_agrees_with_a_cuda_program(tmp_path, capsys):
    source, program, cubin = HERE / "launch_sync.cu", tmp_path / "launch_sync", tmp_path / "empty.cubin"
    sm = run(
        sys.executable, "-c", "from bench_lib.device.gpu import detect; print(detect().compute_capability)"
    )
    arch = f"-arch=sm_{sm.replace('.', '')}"
    run("nvcc", "-O3", "-std=c++17", arch, "-cudart", "shared", "-o", program, source)
    run("nvcc", arch, "-cubin", "-o", cubin, source)
    library = next(
        Path(line.split("=>")[1].split("(")[0].strip())
        for line in run("ldd", program).splitlines()
        if "libcudart.so" in line
    )
    child = (sys.executable, HERE / "launch_sync_child.py", library.resolve(), cubin)
    run(*child)  # compiles the native loop once, so that no pair pays for it
    order, seconds = random.Random(1), {"suite": [], "program": []}
    for _ in range(PAIRS):
        for side in order.sample(["suite", "program"], 2):
            seconds[side].append(float(run(*(child if side == "suite" else (program,)))))
    logs = np.log(np.array(seconds["suite"]) / np.array(seconds["program"]))
    effects = stats.paired(logs[np.newaxis], np.zeros(1))
    (low,), (high,) = effects.interval()
    ratio = float(np.exp(effects.mean[0]))
    with capsys.disabled():
        print(
            f"\nlaunch_sync, suite / CUDA C++ program: {ratio:.4f} [{low:.4f}, {high:.4f}], {PAIRS} pairs; "
            + " and ".join(f"{name} {np.median(s) * 1e6:.3f} us" for name, s in seconds.items())
        )
    assert abs(ratio - 1) < TOLERANCE
