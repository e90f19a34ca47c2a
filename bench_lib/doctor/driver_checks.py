"""Is there a GPU, does its driver start, and does it fit the CUDA of the stack?"""

import re
from pathlib import PurePath

from bench_lib.doctor.finding import Check, Finding, absent, fail, ok, warn
from bench_lib.doctor.snapshot import NO_DEVICE, Snapshot
from bench_lib.running import preflight

NO_GPU = "no NVIDIA GPU here"
_HIDING = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_HIDES = ("", "-1", "none", "void", "NoDevFiles")

# How a container is started so that it gets a GPU.
_WITH_GPU = {
    "docker": "start it with `docker run --gpus all`; the host needs the NVIDIA Container Toolkit",
    "podman": "start it with `podman run --device nvidia.com/gpu=all`",
    "kubernetes": "ask for one in the pod: resources.limits nvidia.com/gpu: 1",
    "apptainer": "start it with `apptainer exec --nv`",
}

# cuda.h, CUresult of the first call: what it means, and what to do. "" where the name says it.
_CODES: dict[int, tuple[str, str]] = {
    3: ("the driver did not initialise", "look at `dmesg`, then reload nvidia_uvm or reboot"),
    34: ("a stub of libcuda was loaded", "take the `stubs` folder out of LD_LIBRARY_PATH"),
    46: ("another process has the GPU for itself", "end that process, or wait for it"),
    100: ("the driver shows no device", "unset CUDA_VISIBLE_DEVICES, or give the container a GPU"),
    101: ("CUDA_VISIBLE_DEVICES names a device that is not there", "correct it; `nvidia-smi -L` lists them"),
    304: ("a device file cannot be opened", "give this user or container the files /dev/nvidia*"),
    802: (
        "the NVSwitch fabric is not ready: the fabric manager is not running, or is of another version",
        "install the nvidia-fabricmanager of exactly this driver, `systemctl restart nvidia-fabricmanager`, "
        "wait a minute",
    ),
    803: (
        "libcuda and the loaded kernel module are of different versions",
        "reboot after the driver's update (or reload its module), and start containers anew",
    ),
    804: (
        "libcuda of a compat package is loaded, which only data-centre GPUs accept",
        "remove the package cuda-compat, or its folder from LD_LIBRARY_PATH, or update the driver",
    ),
    805: (
        "the MPS server cannot be reached",
        "start nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY",
    ),
    806: ("the MPS server does not answer", "`echo quit | nvidia-cuda-mps-control`, then start it anew"),
    807: ("the MPS server is not ready", "wait for it, or `echo quit | nvidia-cuda-mps-control`"),
    808: ("the MPS server has no room for another client", "end some of its clients"),
    999: (
        "the driver met an unknown error, as after a suspend, a crashed nvidia_uvm or HMM on a kernel it "
        "does not fit",
        "reload nvidia_uvm (`modprobe -r nvidia_uvm && modprobe nvidia_uvm`, with uvm_disable_hmm=1 where "
        "HMM is the cause), or reboot",
    ),
}


def gpu(s: Snapshot) -> Finding:
    """Is there a GPU that this process can use?"""
    if s.driver.devices:
        return ok(
            ", ".join(f"{d.name} (compute capability {d.compute_capability})" for d in s.driver.devices)
        )
    hidden = next((n for n in _HIDING if n in s.variables and s.variables[n] in _HIDES), "")
    if not s.nvidia:
        return absent(
            f"{NO_GPU} and no driver of one; what exists on a CPU is measured, and a run names the families "
            "that need a GPU"
        )
    if hidden:
        return fail(f"{hidden}={s.variables[hidden]} hides every GPU", "a GPU to measure", f"unset {hidden}")
    if s.driver.child.problem or s.driver.code not in (0, NO_DEVICE):
        return fail("a GPU whose driver does not start", "a driver that starts", "see driver-starts")
    if s.host.container != "none" and not any(re.match(r"nvidia\d", node) for node in s.host.nodes):
        start = _WITH_GPU.get(s.host.container, "start it with the host's GPUs")
        return fail(
            f"this {s.host.container} container was given none of the host's GPUs", "one at least", start
        )
    if not s.host.module_version:
        return fail(
            f"{s.host.pci_gpus} GPU on the PCI bus and no NVIDIA driver loaded",
            "a loaded driver",
            "install NVIDIA's driver, or `modprobe nvidia`",
        )
    return fail("an NVIDIA driver and no GPU to use", "one at least", "see driver-starts and device-nodes")


def driver_library(s: Snapshot) -> Finding:
    """Which libcuda is loaded: the driver's own, a compat package's or a stub?"""
    library = s.driver.library
    if not library:
        if not s.nvidia:
            return absent(NO_GPU)
        return fail(
            "libcuda.so.1 cannot be loaded",
            "the library that comes with the driver",
            "install the driver's libraries; a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    if "stubs" in PurePath(library).parts:
        return fail(
            f"{library}, a stub to link with", "the driver's own", "take its folder out of LD_LIBRARY_PATH"
        )
    if "compat" in PurePath(library).parts:
        return warn(
            f"{library}, of cuda-compat: CUDA {s.driver.cuda} on kernel module {s.host.module_version}",
            "the driver's own libcuda",
            "keep it on data-centre GPUs alone (error 804 elsewhere), and never compare it with a new driver",
        )
    return ok(f"{library}, which knows CUDA up to {s.driver.cuda}")


def driver_starts(s: Snapshot) -> Finding:
    """Does the CUDA driver start, and if not, what does its error mean (802, 803, 804, 999, MPS)?"""
    driver = s.driver
    if driver.child.problem:
        return fail(
            f"the process that asked the driver {driver.child.story}",
            "an answer",
            "look at `dmesg` for NVRM and Xid lines, end what hangs on the GPU, or reboot",
        )
    if driver.devices:
        return ok(f"{len(driver.devices)} device{'s' if len(driver.devices) > 1 else ''}")
    if not driver.library:
        return absent(NO_GPU if not s.nvidia else "no libcuda to start")
    meaning, mend = _CODES.get(driver.code, ("", "look up the error in cuda.h, and at `dmesg`"))
    said = driver.error or "cuInit succeeded and shows no device"
    if driver.code in (0, NO_DEVICE) and not s.nvidia:
        return absent(f"{said}: {NO_GPU}")
    return fail(f"{said}{f': {meaning}' if meaning else ''}", "a driver that starts", mend)


def driver_version(s: Snapshot) -> Finding:
    """Is the driver new enough for the CUDA of the stack (its own, or by minor-version compatibility)?"""
    module, known = s.host.module_version, s.driver.cuda
    if not s.cuda or not (module or known):
        return absent("no driver" if s.cuda else "the stack has no CUDA")
    major, wanted = int(s.cuda.split(".")[0]), tuple(map(int, s.cuda.split(".")[:2]))
    oldest = preflight.OLDEST_DRIVER.get(major, "of its time")
    own = preflight.OWN_DRIVER.get((wanted[0], wanted[-1]), "")
    found = f"driver {module or 'unknown'}{f' (CUDA {known})' if known else ''}, and a stack of CUDA {s.cuda}"
    too_old = preflight.driver_too_old(s.cuda, known) if known else _below(module, oldest)
    if too_old:
        newer = f"update the driver to {own or oldest} or newer, or choose a stack of an older CUDA"
        return fail(found, f"driver {oldest} or newer (CUDA driver version is insufficient otherwise)", newer)
    if preflight.driver_older(s.cuda, known) if known else own and _below(module, own):
        return warn(
            f"{found}: minor-version compatibility",
            f"the driver this CUDA came with{f', {own}' if own else ''}, or a newer one",
            "update the driver if code that is compiled at run time fails; programs built for this CUDA run",
        )
    return ok(found)


def _below(driver: str, wanted: str) -> bool:
    numbers = [tuple(map(int, re.findall(r"\d+", version)[:2])) for version in (driver, wanted)]
    return bool(numbers[1]) and numbers[0] < numbers[1]


def driver_match(s: Snapshot) -> Finding:
    """Are libcuda and the loaded kernel module of one version?"""
    found = re.search(r"\.so\.(\d{3,}\.[\d.]+)$", s.driver.library)
    if not found or not s.host.module_version:
        return absent("the version of one of the two is not known" if s.nvidia else NO_GPU)
    if found[1] == s.host.module_version:
        return ok(f"both {found[1]}")
    compat = "compat" in PurePath(s.driver.library).parts
    return (warn if compat else fail)(
        f"libcuda {found[1]} and kernel module {s.host.module_version}",
        "one version",
        "see driver-library" if compat else "reboot, or reload the module; start containers anew (error 803)",
    )


def kernel_module(s: Snapshot) -> Finding:
    """Which flavour of the kernel module is loaded, open or proprietary, and does it fit the GPU?"""
    if not s.host.module_version:
        return absent("no NVIDIA kernel module")
    flavour = "open" if s.host.module_open else "proprietary"
    found = f"{s.host.module_version}, the {flavour} one, on Linux {s.host.kernel}"
    capability = tuple(map(int, s.device.compute_capability.split("."))) if s.device else ()
    if capability >= (10, 0) and not s.host.module_open:
        return fail(found, "the open one for this GPU", "install the driver with its open kernel modules")
    if capability and capability < (7, 5) and s.host.module_open:
        return fail(
            found, "the proprietary one for this GPU", "install the driver with its proprietary modules"
        )
    return ok(found)


def device_nodes(s: Snapshot) -> Finding:
    """Are the device files there, and may this user open them?"""
    if s.host.wsl:
        return absent("WSL has /dev/dxg instead")
    if not s.host.nvidia:
        return absent("this sandbox shows none" if s.nvidia else NO_GPU)
    nodes = s.host.nodes
    wanted = [
        "nvidiactl",
        "nvidia-uvm",
        *([] if any(re.fullmatch(r"nvidia\d+", n) for n in nodes) else ["nvidia0"]),
    ]
    # Without the capability files NCCL cannot share memory through NVSwitch, and slices do not open.
    caps = ["nvidia-caps"] if s.gpu and (s.gpu.fabric or s.gpu.settings.get("mig_mode") == "on") else []
    missing = [name for name in wanted if name not in nodes]
    closed = [n for n, opens in nodes.items() if not opens and re.fullmatch(r"nvidia(ctl|-uvm|\d+)", n)]
    if missing:
        mend = "run `nvidia-modprobe -u -c 0` as root; a container must be given them"
        return fail(f"no {', '.join(f'/dev/{n}' for n in missing)}", "all files of the driver", mend)
    if closed:
        mend = "let this user open them (group, or the container's device rules)"
        return fail(f"/dev/{', /dev/'.join(closed)} cannot be opened by this user", "read and write", mend)
    if [name for name in caps if name not in nodes]:
        mend = "give the container /dev/nvidia-caps too; NCCL's NVLS and MIG slices need it"
        return warn("no /dev/nvidia-caps", "the capability files beside the devices", mend)
    return ok(", ".join(nodes))


# fmt: off
CHECKS = tuple(map(Check, (
    gpu, driver_library, driver_starts, driver_version, driver_match, kernel_module, device_nodes
)))
# fmt: on
