"""How the GPU is set up: what NVML says of it, and how it moves managed memory."""

import re

from bench_lib.device.telemetry import CLOCKS_SET, THROTTLING
from bench_lib.doctor.driver_checks import NO_GPU
from bench_lib.doctor.finding import Check, Finding, absent, fail, ok, warn
from bench_lib.doctor.snapshot import GIB, GpuState, Snapshot
from bench_lib.memory import memory_mode

_SILENT = "NVML does not tell"
_FREE_SHARE = 0.5  # of the GPU's memory: the unified_memory family works with half of it


def nvml(s: Snapshot) -> Finding:
    """Does NVML answer, which tells clocks, heat and who else is on the GPU?"""
    if s.nvml.gpus:
        return ok(f"{len(s.nvml.gpus)} GPUs")
    if not s.nvidia:
        return absent(NO_GPU)
    said = s.nvml.child.story or s.nvml.error or "it shows no GPU"
    mend = "install nvidia-ml-py and remove the old package pynvml; runs go on without clocks and heat"
    return warn(said, "NVML, which comes with the driver", mend)


def hmm(s: Snapshot) -> Finding:
    """How does memory move between CPU and GPU (HMM, ATS, managed memory alone, not at all)?"""
    device = s.device
    if device is None:
        if s.driver.code in (3, 999) and s.host.hmm_disabled == "N":
            mend = "load nvidia_uvm with uvm_disable_hmm=1 and try again"
            return warn(
                f"HMM is on (Linux {s.host.kernel}) and the driver does not start",
                "a driver that starts",
                mend,
            )
        return absent(NO_GPU)
    if not device.attributes:
        return absent(_SILENT)
    mode = memory_mode.mode(device.attributes)
    if mode == "none":
        mend = "none on WSL and some vGPUs; the cases of page faults and prefetch are skipped"
        return warn(
            "managed memory does not move by page faults", "the attribute concurrentManagedAccess", mend
        )
    disabled = f", uvm_disable_hmm={s.host.hmm_disabled}" if s.host.hmm_disabled else ""
    return ok(f"{mode}{disabled}")


def fabric_manager(s: Snapshot) -> Finding:
    """On machines with NVSwitch: has the fabric manager joined this GPU to the fabric?"""
    state = s.gpu.fabric if s.gpu else ""
    switches = [node for node in s.host.nodes if re.fullmatch(r"nvidia-nvswitch\d+", node)]
    mend = "`systemctl status nvidia-fabricmanager`: it must run, in exactly the driver's version"
    if s.driver.code == 802:
        return fail("error 802: the fabric is not ready", "completed", mend)
    if switches and state in ("not started", "in progress", "failed"):
        return fail(f"{len(switches)} NVSwitches, fabric {state}", "completed", mend)
    if state in ("", "not started"):
        return absent("no NVSwitch fabric")
    return ok(state) if state == "completed" else warn(f"fabric {state}", "completed", mend)


def _setting(s: Snapshot, name: str) -> tuple[GpuState | None, str]:
    return s.gpu, s.gpu.settings.get(name, "") if s.gpu else ""


def _unknown(gpu: GpuState | None) -> Finding:
    return absent(_SILENT if gpu else NO_GPU)


def persistence(s: Snapshot) -> Finding:
    """Does the driver stay loaded while nothing uses the GPU?"""
    gpu, mode = _setting(s, "persistence")
    if not mode:
        return _unknown(gpu)
    if mode == "on":
        return ok("on")
    mend = "`nvidia-smi -pm 1` as root, or the service nvidia-persistenced; a reboot loses it"
    return warn("off: the driver is loaded anew by the first process, with default clocks", "on", mend)


def ecc(s: Snapshot) -> Finding:
    """Is memory error correction on, as it is on data-centre GPUs unless somebody turned it off?"""
    gpu, mode = _setting(s, "ecc")
    if not mode:
        return _unknown(gpu)
    mend = "`nvidia-smi -e 1` and a reboot, or the same setting on both sides of a comparison"
    return ok("on") if mode == "on" else warn("off, which makes memory faster", "on", mend)


def mig(s: Snapshot) -> Finding:
    """Is the GPU cut into slices?"""
    gpu, mode = _setting(s, "mig_mode")
    slice_ = s.device is not None and s.device.uuid.startswith("MIG-")
    if slice_ and s.device:
        mend = "measure the whole GPU, or compare with the same slice; NCCL does not join slices"
        return warn(f"{s.device.name} is a slice", "a whole GPU", mend)
    if mode == "on":
        mend = "`nvidia-smi mig -cgi ... -C` makes slices, `nvidia-smi -mig 0` turns it off"
        return fail("MIG mode is on and this process was given no slice", "a slice, or MIG mode off", mend)
    return ok("off") if mode else _unknown(gpu)


def mps(s: Snapshot) -> Finding:
    """Does a multi-process service stand between this process and the GPU?"""
    if not s.nvidia:
        return absent(NO_GPU)
    if not s.host.mps:
        return ok("none")
    mend = "`echo quit | nvidia-cuda-mps-control` unless its clients are what is measured"
    return warn("an MPS daemon is here: its other clients share the GPU at the same time", "none", mend)


def compute_mode(s: Snapshot) -> Finding:
    """May several processes use the GPU at once, as families with processes of their own do?"""
    gpu, mode = _setting(s, "compute_mode")
    if not mode:
        return _unknown(gpu)
    mend = "`nvidia-smi -c 0` as root"
    if mode == "prohibited":
        return fail("prohibited: no process can use the GPU", "default", mend)
    if mode.startswith("exclusive") and not s.host.mps:
        told = f"{mode}: a second process gets 'devices are busy or unavailable'"
        return warn(told, "default, for the families that start processes of their own", mend)
    return ok(mode)


def other_processes(s: Snapshot) -> Finding:
    """Does anything else compute on the GPU now?"""
    if s.gpu is None:
        return absent(NO_GPU)
    if not s.gpu.processes:
        return ok("none")
    pids = ", ".join(map(str, s.gpu.processes[:5]))
    return warn(
        f"{len(s.gpu.processes)} (pid {pids})", "none", "wait for them, or end them: they disturb every time"
    )


def gpu_memory(s: Snapshot) -> Finding:
    """Is enough of the GPU's memory free?"""
    if s.gpu is None or not s.gpu.total_nbytes:
        return absent(_SILENT if s.gpu else NO_GPU)
    found = f"{s.gpu.free_nbytes / GIB:.1f} of {s.gpu.total_nbytes / GIB:.1f} GiB free"
    if s.gpu.free_nbytes >= _FREE_SHARE * s.gpu.total_nbytes:
        return ok(found)
    return warn(
        found, "half of it at least", "end what holds it: cases of training and of managed memory run out"
    )


def gpu_clocks(s: Snapshot) -> Finding:
    """Is the GPU held at a lower clock, for heat, power or by a setting?"""
    if s.gpu is None:
        return absent(NO_GPU)
    reasons = set(s.gpu.throttle_reasons)
    if held := sorted(reasons & THROTTLING):
        return warn(
            f"held down now: {', '.join(held)}",
            "free clocks",
            "look at cooling, power and `nvidia-smi -q -d PERFORMANCE`",
        )
    if CLOCKS_SET in reasons:
        return warn(
            "application clocks are set", "none, or the same on both sides", "`nvidia-smi -rac` as root"
        )
    return ok("free")


# fmt: off
CHECKS = tuple(map(Check, (
    nvml, hmm, fabric_manager, persistence, ecc, mig, mps, compute_mode, other_processes, gpu_memory,
    gpu_clocks
)))
# fmt: on
