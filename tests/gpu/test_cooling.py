"""The temperature that --cool-down waits for, from the NVML of a real GPU."""

import subprocess
import sys

import pytest

from bench_lib.device.gpu import detect


@pytest.mark.gpu
@pytest.mark.parametrize(("limit_c", "looks"), [(150, 1), (1, 2)])
def test_a_real_gpu_tells_its_temperature(limit_c: int, looks: int) -> None:
    """Below the limit one look is enough; never below it, the wait runs out."""
    found = detect()
    if not found.available:
        pytest.skip(f"no GPU: {found.reason}")
    command = [sys.executable, "-m", "bench_lib.thermal.wait", found.uuid, str(limit_c), "1.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    seen = [float(line) for line in done.stdout.splitlines()]
    assert len(seen) == looks
    assert all(5 < celsius < 120 for celsius in seen)
