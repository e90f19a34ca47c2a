"""The machine under a run: host, boot, CPU, Linux kernel, virtual machine, container, driver.

Everything is read from small files, below `root` for the tests. What cannot be read is left out.
"""

import os
import platform
import re
import socket
from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/")

# /sys/class/dmi/id of the common hypervisors, in lower case; the first that is found counts.
_HYPERVISORS = {
    "firecracker": "firecracker",
    "amazon ec2": "amazon",
    "google compute engine": "google",
    "google": "google",
    "vmware": "vmware",
    "virtualbox": "oracle",
    "innotek": "oracle",
    "openstack": "openstack",
    "alibaba cloud": "alibaba",
    "xen": "xen",
    "kvm": "kvm",
    "qemu": "qemu",
    "virtual machine": "microsoft",  # product_name of Hyper-V and Azure
}
_DMI = ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
_CONTAINERS = ("docker", "kubepods", "containerd", "podman", "lxc")

# The build date that gVisor's kernel has always given as its own.
_GVISOR = "Sun Jan 10 15:06:54 PST 2016"


def facts() -> dict[str, str]:
    """The keys `host boot_id cpu.* kernel virtualisation container`."""
    found = {
        "host": socket.gethostname(),
        "boot_id": text(ROOT / "proc/sys/kernel/random/boot_id"),
        "cpu.model": cpu_model(),
        "cpu.count": str(os.cpu_count() or ""),
        "cpu.affinity": str(len(os.sched_getaffinity(0))),
        "cpu.governor": text(ROOT / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "kernel": platform.release(),
        "virtualisation": virtualisation(),
        "container": container(),
    }
    return {key: value for key, value in found.items() if value}


def text(path: Path) -> str:
    """The stripped text of a small file, "" when it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def cpu_model(root: Path = ROOT) -> str:
    """The CPU's name as Linux gives it; on machines that give none, the architecture."""
    match = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text(root / "proc/cpuinfo"), re.M)
    return match[1] if match else platform.machine()


def virtualisation(root: Path = ROOT, kernel: str | None = None) -> str:
    """The hypervisor below, "vm" for an unknown one, "none" on bare metal, "gvisor" in its sandbox."""
    version = f"{platform.release()} {platform.version()}" if kernel is None else kernel
    if _GVISOR in version or "gvisor" in version.lower():
        return "gvisor"
    dmi = " ".join(text(root / "sys/class/dmi/id" / name) for name in _DMI).lower()
    for word, name in _HYPERVISORS.items():
        if word in dmi:
            return name
    if "firecracker" in version.lower() or "pci=off" in text(root / "proc/cmdline"):
        return "firecracker"  # it has no DMI; its guests are started with this argument
    flags = re.search(r"^flags\s*:(.+)$", text(root / "proc/cpuinfo"), re.M)
    return "vm" if flags and "hypervisor" in flags[1].split() else "none"


def container(root: Path = ROOT, variables: Mapping[str, str] = os.environ) -> str:
    """The kind of container this process is in, "none" outside of one."""
    if "KUBERNETES_SERVICE_HOST" in variables:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in variables or "SINGULARITY_CONTAINER" in variables:
        return "apptainer"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    cgroup = text(root / "proc/1/cgroup")
    named = next((name for name in _CONTAINERS if name in cgroup), "")
    return {"": "none", "kubepods": "kubernetes"}.get(named, named)


def driver_version(root: Path = ROOT) -> str:
    """The version of NVIDIA's kernel module ("580.159.04"), "" where there is none."""
    words = text(root / "proc/driver/nvidia/version").partition("\n")[0]
    match = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", words)
    return match[1] if match else ""
