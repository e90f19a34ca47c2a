"""A pretended CUDA for tests: libcuda.so.1 and libcudarts built from the C files beside this one.

`environment` gives the variables under which a new process finds them; `write_wheel` makes the
wheel of a runtime. What the device does, and its fault switches, stands at the top of fake_cuda.c.
"""

import platform
import shutil
import subprocess
import zipfile
from pathlib import Path

SOURCES = Path(__file__).parent
VERSIONS = ("11.8.89", "12.4.127", "13.0.96")  # the runtimes that are always there


def compiler() -> str | None:
    """The C compiler, None where there is none."""
    return shutil.which("gcc") or shutil.which("cc")


def build_library(source: Path, target: Path, *options: str) -> Path:
    """Compile one library, once: whoever comes second finds it there."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
        flags += [*options, f"-Wl,-soname,{target.name}", "-o", str(target)]
        subprocess.run([str(compiler()), *flags, str(source), "-ldl", "-lpthread", "-lrt"], check=True)
    return target


def build_driver(folder: Path) -> Path:
    """FOLDER/driver/libcuda.so.1; its folder belongs into LD_LIBRARY_PATH."""
    return build_library(SOURCES / "fake_cuda.c", folder / "driver" / "libcuda.so.1")


def runtime_name(version: str) -> str:
    """Where a wheel of this runtime holds its library, relative to site-packages."""
    major = int(version.split(".")[0])
    package = "cuda_runtime" if major < 13 else f"cu{major}"
    return f"nvidia/{package}/lib/libcudart.so.{'11.0' if major == 11 else major}"


def build_runtime(folder: Path, version: str) -> Path:
    """FOLDER/cudart-X.Y/nvidia/.../libcudart.so.X of one version ("12.4" or "12.4.127")."""
    major, minor = version.split(".")[:2]
    target = folder / f"cudart-{major}.{minor}" / runtime_name(version)
    return build_library(SOURCES / "fake_cudart.c", target, f"-DMAJOR={major}", f"-DMINOR={minor}")


def write_wheel(library: Path, version: str, wheels: Path) -> Path:
    """WHEELS/nvidia_cuda_runtime_cu12-12.4.127-py3-none-manylinux1_x86_64.whl holding `library`."""
    major = int(version.split(".")[0])
    name = "nvidia_cuda_runtime" + (f"_cu{major}" if major < 13 else "")
    wheels.mkdir(parents=True, exist_ok=True)
    wheel = wheels / f"{name}-{version}-py3-none-manylinux1_{platform.machine()}.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, runtime_name(version))
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def write_wheels(built: Path, wheels: Path, versions: tuple[str, ...] = VERSIONS) -> Path:
    """Fill the folder WHEELS with the wheels of these runtimes, for `--wheels WHEELS`."""
    for version in versions:
        write_wheel(build_runtime(built, version), version, wheels)
    return wheels


def environment(built: Path, scratch: Path) -> dict[str, str]:
    """Variables that put a process onto the pretended CUDA; `scratch` keeps locks and caches apart.

    In stack `here` such a process finds the runtime 13.0 first, through PYTHONPATH.
    """
    return variables(build_driver(built), build_runtime(built, "13.0.96"), scratch)


def variables(driver: Path, here: Path, scratch: Path) -> dict[str, str]:
    """The same of any driver, and of any runtime as that of stack `here`."""
    return {
        "LD_LIBRARY_PATH": str(driver.parent),
        "PYTHONPATH": str(here.parents[3]),
        "CUDA_GAINS_LOCK_DIR": str(scratch / "locks"),
        "XDG_CACHE_HOME": str(scratch / "cache"),
    }
