"""Wheels for tests: made of a few files, and those that stand for what this suite needs."""

import importlib.metadata
import re
import subprocess
import sysconfig
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import fake_cuda

EXTRA = "measure"


def write(
    folder: Path, name: str, version: str, files: Mapping[str, bytes | str], requires: Iterable[str] = ()
) -> Path:
    """FOLDER/NAME-VERSION-py3-none-any.whl, which pip can install."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
    info = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for place, content in files.items():
            archive.writestr(place, content)
        for place, content in info.items():
            archive.writestr(f"{stem}.dist-info/{place}", content)
    return wheel


def write_needs(folder: Path) -> Path:
    """Empty wheels of everything that this suite needs; one names this Python's own packages in a .pth.

    So an environment that pip makes from them alone, without an index, can measure.
    """
    site = sysconfig.get_path("purelib")
    for need in importlib.metadata.requires("cuda-gains") or ():
        requirement, _, marker = need.partition(";")
        if marker and EXTRA not in marker:
            continue
        (name,) = re.findall(r"^[\w.-]+", requirement)
        write(folder, name, importlib.metadata.version(name), {f"lent_{name}.pth": site})
    return folder


def library(path: Path, source: str, *options: str, named: bool = True) -> Path:
    """A shared library from C source, its soname the name of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [str(fake_cuda.compiler()), "-shared", "-fPIC", "-xc", "-", "-xnone", "-o", str(path), *options]
    command += [f"-Wl,-soname,{path.name}"] if named else []
    subprocess.run(command, input=source, text=True, check=True)
    return path


def runtime(path: Path, version: str) -> Path:
    """A libcudart that only says its version ("12.4")."""
    major, minor = version.split(".")
    number = int(major) * 1000 + int(minor) * 10
    return library(path, f"int cudaRuntimeGetVersion(int *v) {{ *v = {number}; return 0; }}")
