"""A healthy machine as the doctor sees it, and the same with something changed."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench_lib.doctor.snapshot import (
    GIB,
    CudaDriver,
    Device,
    Distribution,
    GpuState,
    Host,
    Library,
    Nvml,
    Python,
    Snapshot,
    Torch,
)

SITE = "/venv/lib/python3.11/site-packages"
UUID = "GPU-00000000-1111-2222-3333-444444444444"
ATTRIBUTES = {
    "concurrent_managed_access": 1,
    "pageable_memory_access": 1,
    "pageable_memory_access_uses_host_page_tables": 0,
}


def dist(name: str, version: str, *requires: str, folder: str = SITE, installer: str = "pip") -> Distribution:
    return Distribution(name, version, folder, requires, installer)


def library(component: str, version: str, folder: str = f"{SITE}/nvidia/lib") -> tuple[Library, ...]:
    return (Library(f"{folder}/lib{component}.so.{version.split('.')[0]}", version),)


DEVICE = Device(UUID, "NVIDIA H200", "9.0", ATTRIBUTES)
GPU = GpuState(
    UUID,
    {"persistence": "on", "ecc": "on", "mig_mode": "off", "compute_mode": "default"},
    free_nbytes=139 * GIB,
    total_nbytes=140 * GIB,
    fabric="completed",
)
LIBRARIES = {
    "cudart": library("cudart", "12.4"),
    "cublas": library("cublas", "12.4.5"),
    "nvrtc": library("nvrtc", "12.4"),
    "cudnn": library("cudnn", "9.1.0"),
    "nccl": library("nccl", "2.21.5"),
}
INSTALLED = (
    dist("torch", "2.6.0", "nvidia-cudnn-cu12==9.1.0.70", "triton==3.2.0", "sympy"),
    dist("torchvision", "0.21.0", "torch==2.6.0"),
    dist("triton", "3.2.0"),
    dist("cupy-cuda12x", "13.6.0"),
    dist("nvidia-cudnn-cu12", "9.1.0.70"),
    dist("nvidia-nccl-cu12", "2.21.5"),
    *(dist(name, "1.0") for name in ("onnx", "onnxruntime", "onnxscript")),
    *(dist(name, "1.0") for name in ("pytest", "pytest-benchmark", "pyarrow", "numpy", "numba")),
)
HEALTHY = Snapshot(
    cuda="12.4",
    runtimes=2,
    driver=CudaDriver(
        library="/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", cuda="13.0", devices=(DEVICE, DEVICE)
    ),
    nvml=Nvml(gpus=(GPU,)),
    torch=Torch(
        version="2.6.0+cu124",
        cuda="12.4",
        file=f"{SITE}/torch/__init__.py",
        available=True,
        count=2,
        name="NVIDIA H200",
        compute_capability="9.0",
        archs=("sm_50", "sm_80", "sm_90"),
        nccl="2.21.5",
        built={"cudnn": "12.4", "nccl": "12.4"},
        libraries=LIBRARIES,
    ),
    python=Python(
        executable="/venv/bin/python",
        version="3.11.9",
        prefix="/venv",
        distributions=INSTALLED,
        headers="/usr/include/python3.11",
        compilers={"cuda": "", "cpu": ""},
    ),
    host=Host(
        kernel="6.8.0",
        pci_gpus=2,
        module_version="580.65.06",
        module_open=True,
        hmm_disabled="N",
        nodes=dict.fromkeys(["nvidia-caps", "nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"], True),
        governor="performance",
        cpus=16,
        available_nbytes=100 * GIB,
        shm_free_nbytes=64 * GIB,
        open_files=65536,
        results="results",
        results_free_nbytes=100 * GIB,
    ),
)
LAPTOP = Snapshot(
    host=dataclasses.replace(
        HEALTHY.host, pci_gpus=0, module_version="", module_open=False, hmm_disabled="", nodes={}
    ),
    torch=Torch(error="ModuleNotFoundError: No module named 'torch'"),
    python=HEALTHY.python,
)


def made(base: Snapshot = HEALTHY, **changes: Any) -> Snapshot:
    """The same with fields changed: host__wsl=True changes `host.wsl`; gpu__... is NVML's view."""
    for name, value in changes.items():
        part, _, key = name.partition("__")
        if part == "gpu":
            changed = dataclasses.replace(
                base.nvml, gpus=(dataclasses.replace(base.nvml.gpus[0], **{key: value}),)
            )
            base = dataclasses.replace(base, nvml=changed)
        elif key:
            base = dataclasses.replace(
                base, **{part: dataclasses.replace(getattr(base, part), **{key: value})}
            )
        else:
            base = dataclasses.replace(base, **{part: value})
    return base


def lay(root: Path, files: Mapping[str, str]) -> Path:
    """Files by their paths below a folder, as of /proc and /sys; the folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root
