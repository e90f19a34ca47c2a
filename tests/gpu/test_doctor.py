"""The doctor on a real GPU: its five facts are torch's, and the driver's checks are answered."""

import json
import subprocess
import sys

import pytest

from bench_lib.device.gpu import detect

pytestmark = pytest.mark.gpu
ASKED = ("gpu", "driver-library", "driver-starts", "device-nodes", "nvml", "hmm", "mps", "gpu-memory")


@pytest.fixture(scope="module")
def answer() -> dict:
    if not (found := detect()).available:
        pytest.skip(f"needs a GPU: {found.reason}")
    command = [sys.executable, "-c", "from bench_lib.cli import main; main()", "doctor", "--json"]
    done = subprocess.run([*command, "--timeout", "120"], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


def test_the_driver_is_well(answer: dict) -> None:
    states = {check["name"]: check for check in answer["checks"]}
    for name in ASKED:
        assert states[name]["state"] in ("ok", "warn"), states[name]
    assert states["driver-starts"]["state"] == "ok"


def test_the_five_facts_are_those_of_torch(answer: dict) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    capability = ".".join(map(str, torch.cuda.get_device_capability(0)))
    assert answer["facts"] == {
        "available": True,
        "device_count": torch.cuda.device_count(),
        "name": torch.cuda.get_device_name(0),
        "compute_capability": capability,
        "cuda": torch.version.cuda,
    }
