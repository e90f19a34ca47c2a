"""A child: every GPU as NVML sees it, whole ones and not slices."""

import importlib
import os
import re
from pathlib import Path
from typing import Any

from bench_lib.device.telemetry import Telemetry
from bench_lib.doctor.speaking import begin, say, stage
from bench_lib.identity.machine import text

# nvml.h: NVML_GPU_FABRIC_STATE_*; 0 is a GPU that needs no fabric manager.
_FABRIC = ("", "not started", "in progress", "completed")


def main() -> None:
    """Say it."""
    begin()
    stage("loading NVML")
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # of a package that may be another pynvml, or none
        say(error=f"{type(error).__name__}: {error}")
        return
    stage("asking NVML")
    say(gpus=described(nvml))


def described(nvml: Any) -> list[dict[str, Any]]:
    """What NVML tells of each GPU; a GPU that tells nothing is left out."""
    found = []
    for index in range(_told(0, nvml, nvml.nvmlDeviceGetCount)):
        handle = _told(None, nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        uuid = handle and _told("", nvml, nvml.nvmlDeviceGetUUID, handle)
        if uuid:
            found.append(_gpu(nvml, handle, uuid))
    return found


def _gpu(nvml: Any, handle: Any, uuid: str) -> dict[str, Any]:
    telemetry = Telemetry.open(uuid, nvml)
    memory = _told(None, nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    running = _told((), nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return {
        "uuid": uuid,
        "settings": {key.removeprefix("gpu."): value for key, value in telemetry.describe().items()},
        "processes": [process.pid for process in running if not _sibling(process.pid)],
        "free_nbytes": getattr(memory, "free", 0),
        "total_nbytes": getattr(memory, "total", 0),
        "fabric": _fabric(nvml, handle),
        "throttle_reasons": telemetry.read().throttle_reasons,
    }


def _sibling(pid: int) -> bool:
    """Whether it is another child of this doctor, as the one that asks torch."""
    parent = re.search(r"^PPid:\s*(\d+)", text(Path(f"/proc/{pid}/status")), re.MULTILINE)
    return parent is not None and int(parent[1]) == os.getppid()


def _fabric(nvml: Any, handle: Any) -> str:
    """How far the fabric manager has brought this GPU into its NVSwitch fabric."""
    if not hasattr(nvml, "c_nvmlGpuFabricInfo_t"):
        return ""
    info = nvml.c_nvmlGpuFabricInfo_t()
    if _told(None, nvml, nvml.nvmlDeviceGetGpuFabricInfo, handle, info) is None:
        return ""
    state = _FABRIC[info.state] if info.state < len(_FABRIC) else ""
    return "failed" if state == "completed" and info.status else state


def _told(otherwise: Any, nvml: Any, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (nvml.NVMLError, AttributeError):
        return otherwise


if __name__ == "__main__":
    main()
