"""The machine's small files: /proc, /sys and /dev below `root` in, a Host out."""

import os
import platform
import re
import resource
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench_lib.doctor.snapshot import Host
from bench_lib.identity import machine
from bench_lib.identity.machine import ROOT, text

_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # PCI class of display and 3D controllers
_MPS_FOLDER = "tmp/nvidia-mps"  # unless CUDA_MPS_PIPE_DIRECTORY says otherwise
_MPS_COMMAND = "nvidia-cuda-mps"  # the kernel keeps 15 letters of it
_NO_LIMIT = 1 << 60
_JUPYTER_PORT = 8888
_LISTEN = "0A"


def host(results: Path, variables: Mapping[str, str], root: Path = ROOT) -> Host:
    """Everything that the machine's files tell."""
    kernel = text(root / "proc/sys/kernel/osrelease") or platform.release()
    free_nbytes, writable = _results(results)
    return Host(
        kernel=kernel,
        container=machine.container(root, variables),
        virtualisation=machine.virtualisation(root),
        wsl="microsoft" in kernel.lower() or (root / "dev/dxg").exists(),
        pci_gpus=_pci_gpus(root),
        module_version=machine.driver_version(root),
        module_open="open kernel module" in text(root / "proc/driver/nvidia/version").lower(),
        hmm_disabled=text(root / "sys/module/nvidia_uvm/parameters/uvm_disable_hmm"),
        nodes=_nodes(root),
        mps=_mps(root, variables),
        governor=_governor(root),
        load=_load(root),
        cpus=len(os.sched_getaffinity(0)),
        cpu_quota=cpu_quota(root),
        available_nbytes=available_nbytes(root),
        shm_free_nbytes=_free_nbytes(root / "dev/shm"),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        results=str(results),
        results_free_nbytes=free_nbytes,
        results_writable=writable,
        jupyter=jupyter(root),
    )


def _pci_gpus(root: Path) -> int:
    devices = (root / "sys/bus/pci/devices").glob("*")
    return sum(text(d / "vendor") == _NVIDIA and text(d / "class").startswith(_DISPLAY) for d in devices)


def _nodes(root: Path) -> dict[str, bool]:
    """The device files of NVIDIA's driver, and whether this user can open each."""
    found = sorted((root / "dev").glob("nvidia*"))
    return {path.name: os.access(path, os.R_OK | os.W_OK) for path in found}


def _mps(root: Path, variables: Mapping[str, str]) -> bool:
    named = variables.get("CUDA_MPS_PIPE_DIRECTORY")
    folder = Path(named) if named else root / _MPS_FOLDER
    commands = (text(path) for path in (root / "proc").glob("[0-9]*/comm"))
    return (folder / "control").exists() or _MPS_COMMAND in commands


def _governor(root: Path) -> str:
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return ", ".join(sorted({text(file) for file in files} - {""}))


def _load(root: Path) -> float:
    found = re.match(r"[\d.]+", text(root / "proc/loadavg"))
    return float(found[0]) if found else 0.0


def cpu_quota(root: Path = ROOT) -> float | None:
    """How many CPUs the container's limit is worth, None without a limit (cgroup versions 2 and 1)."""
    quotas = []
    for folder in _groups(root, "cpu"):
        pair = text(folder / "cpu.max").split()
        pair = pair or [text(folder / "cpu.cfs_quota_us"), text(folder / "cpu.cfs_period_us")]
        if len(pair) == 2 and all(part.isdigit() for part in pair) and int(pair[1]):
            quotas.append(int(pair[0]) / int(pair[1]))
    return min(quotas, default=None)


def available_nbytes(root: Path = ROOT) -> int:
    """Host memory that a new process can have: what the kernel says, within the container's limit."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text(root / "proc/meminfo"), re.MULTILINE)
    amounts = [int(found[1]) << 10] if found else []
    for folder in _groups(root, "memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            said = text(folder / limit)
            if said.isdigit() and int(said) < _NO_LIMIT:
                # What files fill of it is given back when memory is needed.
                files = re.search(
                    r"^(?:total_)?inactive_file (\d+)", text(folder / "memory.stat"), re.MULTILINE
                )
                taken = int(text(folder / used) or 0) - (int(files[1]) if files else 0)
                amounts.append(max(int(said) - max(taken, 0), 0))
    return min(amounts, default=0)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control group and of those above it, where limits lie."""
    for line in text(root / "proc/self/cgroup").splitlines():
        _, names, path = [*line.split(":", 2), "", ""][:3]
        if names and controller not in names.split(","):
            continue
        base = root / "sys/fs/cgroup" / (names and controller)
        group = base / path.strip("/")
        yield from (place for place in (group, *group.parents) if place.is_relative_to(base))


def _free_nbytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _results(results: Path) -> tuple[int, bool]:
    """Free bytes of the disk on which results will lie, and whether this user may write there."""
    there = next((path for path in (results.absolute(), *results.absolute().parents) if path.exists()), ROOT)
    return _free_nbytes(there), there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def jupyter(root: Path = ROOT) -> str:
    """Who can reach what listens on Jupyter's port: "" nobody does, "loopback" or "anywhere"."""
    reach = set()
    for name in ("tcp", "tcp6"):
        for line in text(root / "proc/net" / name).splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            if fields[3] == _LISTEN and int(port, 16) == _JUPYTER_PORT:
                # Words of the address in the machine's byte order: 127.0.0.1, ::1
                loop = address in ("0100007F", "00000000000000000000000001000000")
                reach.add("loopback" if loop else "anywhere")
    return min(reach, default="")
