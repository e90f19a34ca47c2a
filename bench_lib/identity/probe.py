"""What a run ran on: stack, driver, machine and settings, as loaded in this process.

Versions are asked of the libraries themselves, never of pip. A file that cannot be read is a fact
that is left out; it never fails a run. Nothing here imports a library that the run did not load.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_lib.containers.image import ID_VARIABLE
from bench_lib.device.telemetry import clock_source
from bench_lib.identity import libraries, machine
from bench_lib.model import Identity
from bench_lib.stacking import environments
from bench_lib.stacking.stacks import StackEntry
from bench_lib.stacking.variables import moving

if TYPE_CHECKING:
    from bench_lib.device.gpu import Detected, Gpu

_PYTHON_PACKAGES = ("numpy", "cupy", "triton", "numba")


def identity(
    stack: StackEntry,
    gpu: "Gpu | None" = None,
    settings: Mapping[str, str] | None = None,
    quantities: Mapping[str, float] | None = None,
    detected: "Detected | None" = None,
) -> Identity:
    """The identity of this process now.

    `gpu` is the open device; before it is opened, `detected` tells what a child process saw.
    """
    return Identity(
        stack={**python_facts(), **libraries.facts(stack)},
        driver=_driver(gpu, detected),
        machine={**machine.facts(), "clocksource": clock_source(), **_gpu(gpu, detected)},
        settings={**environment(_without_folder(os.environ, stack)), **(settings or {}), **_context(gpu)}
        | ({"image": os.environ[ID_VARIABLE]} if ID_VARIABLE in os.environ else {}),
        quantities=dict(quantities or {}),
    )


def _without_folder(variables: Mapping[str, str], stack: StackEntry) -> dict[str, str]:
    """Where a stack lies is no setting: its folders are `STACK` in what points there."""
    folders = [str(environments.bare_names(stack.name)), *([str(stack.folder)] if stack.folder else [])]
    found = dict(variables)
    for folder in folders:
        found = {name: value.replace(folder, "STACK") for name, value in found.items()}
    return found


def python_facts() -> dict[str, str]:
    """Versions of Python and of the packages that are imported by now."""
    found = {"python.version": platform.python_version()}
    for name in _PYTHON_PACKAGES:
        if version := getattr(sys.modules.get(name), "__version__", ""):
            found[f"{name}.version"] = str(version)
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "version"):
        found["torch.version"] = str(torch.__version__)
        found["torch.git"] = str(getattr(torch.version, "git_version", ""))
        found["torch.cuda"] = str(torch.version.cuda or "none")
    return found


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that can move a number, as `env.NAME`; none that could hold a secret."""
    return {f"env.{name}": value for name, value in moving(variables).items()}


def suite_commit(package: Path = Path(__file__).parents[1]) -> str:
    """The commit of the checkout this package lies in, with "+dirty"; "" when it is installed."""
    try:
        _git(package, "ls-files", "--error-unmatch", "__init__.py")  # else: another project's checkout
        return _git(package, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+dirty")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _driver(gpu: "Gpu | None", detected: "Detected | None") -> dict[str, str]:
    found = {"driver.version": machine.driver_version()}
    if gpu is not None:
        major, minor = gpu.context.driver.version
        found["driver.cuda"] = f"{major}.{minor}"
    elif detected is not None:
        found["driver.cuda"] = detected.driver_version
    return {key: value for key, value in found.items() if value}


def _gpu(gpu: "Gpu | None", detected: "Detected | None") -> dict[str, str]:
    if gpu is None:
        return {} if detected is None else _device(detected.uuid, detected.name, detected.compute_capability)
    context = gpu.context
    capability = ".".join(map(str, context.compute_capability))
    return {
        **_device(context.uuid, context.name, capability),
        "gpu.memory_nbytes": str(context.total_nbytes),
        "gpu.l2_nbytes": str(context.l2_nbytes),
        **gpu.telemetry.describe(),
    }


def _device(uuid: str, name: str, capability: str) -> dict[str, str]:
    if not uuid:
        return {}
    _, _, profile = name.partition(" MIG ")  # "NVIDIA H200 MIG 1g.18gb"
    mig = (profile or "slice") if uuid.startswith("MIG-") else ""
    return {"gpu.uuid": uuid, "gpu.name": name, "gpu.sm": capability, "gpu.mig": mig}


def _context(gpu: "Gpu | None") -> dict[str, str]:
    return {} if gpu is None else {"context.wait": gpu.context.wait}
