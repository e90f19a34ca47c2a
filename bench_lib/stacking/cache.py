"""The library cache: a folder a stack, with libraries out of wheels, whole or not there."""

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from bench_lib.errors import Unavailable, UsageError

_DOWNLOAD_SECONDS = 3600.0  # a cuDNN has 700 MB
_RUNTIME = "libcudart.so.*"
_MARK = "requirement"  # the file that says which wheels the libraries came from

Keep = Callable[[Path, Sequence[str]], dict[str, str]]  # wheel, its members -> member: place in the folder


def folder(name: str) -> Path:
    """Where the files of stack `name` are, or would be: under $XDG_CACHE_HOME, or ~/.cache."""
    return root() / "stacks" / name


def root() -> Path:
    """The folder of everything that this suite caches."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "cuda-gains"


def find(name: str, requirements: Sequence[str]) -> Path | None:
    """The folder with a stack's libraries, None when there is none or they came from other wheels."""
    found = folder(name)
    try:
        right = (found / _MARK).read_text() == "\n".join(requirements)
    except OSError:
        return None
    return found if right and next(found.rglob("lib*.so*"), None) else None


def find_wheel(requirement: str, wheels: Path) -> Path | None:
    """The wheel of `NAME==VERSION` for this machine in a folder of wheels, None when not there.

    As for pip, a wheel of VERSION+LOCAL is one of VERSION.
    """
    name, _, version = requirement.partition("==")
    stem = f"{re.sub(r'[-_.]+', '_', name.partition('[')[0])}-{version}".lower()
    for path in sorted(wheels.glob("*.whl")):
        fits = path.stem.endswith(("-any", f"_{platform.machine()}"))
        if fits and path.name.lower().startswith((f"{stem}-", f"{stem}+")):
            return path
    return None


def require_folder(wheels: Path | None) -> None:
    """Raise UsageError for a folder of --wheels that is none."""
    if wheels is not None and not wheels.is_dir():
        there = "is not a folder" if wheels.exists() else "does not exist"
        raise UsageError(f"the folder of --wheels, {wheels}, {there}; name the one with the wheels")


def runtime_only(wheel: Path, members: Sequence[str]) -> dict[str, str]:
    """Of a wheel the one libcudart, under its bare name."""
    found = [m for m in members if PurePosixPath(m).match(_RUNTIME)]
    if len(found) != 1:
        raise UsageError(f"{wheel} holds {len(found)} files {_RUNTIME}, expected one")
    return {found[0]: PurePosixPath(found[0]).name}


def libraries_only(wheel: Path, members: Sequence[str]) -> dict[str, str]:
    """Of a wheel its shared libraries, at nvidia/PART/lib/ as pip would put them."""
    found = {m: m for m in members if re.fullmatch(r"nvidia/\w[\w.-]*/lib/lib[^/]+\.so[^/]*", m)}
    if not found:
        raise UsageError(f"{wheel} holds no library in nvidia/*/lib; is it a wheel of NVIDIA's?")
    return found


def unpack(name: str, requirements: Sequence[str], wheels: Sequence[Path], keep: Keep) -> Path:
    """Put what `keep` chooses of some wheels into the cache; the folder.

    The folder appears by one rename, so a failure leaves the cache as it was. Raises UsageError
    when a file is no wheel or holds no such library.
    """
    target = folder(name)
    writable(target.parent)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        for wheel in wheels:
            _extract(wheel, made, keep)
        (made / _MARK).write_text("\n".join(requirements))
        if target.exists() and find(name, requirements) is None:
            target.rename(Path(scratch) / "old")
        with contextlib.suppress(OSError):  # another process was first: the same libraries
            made.rename(target)
    return target


def writable(path: Path) -> None:
    """Make a folder of the cache; UsageError when it cannot be made or written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be made ({error.strerror}); set XDG_CACHE_HOME elsewhere") from None
    if not os.access(path, os.W_OK):
        raise UsageError(f"{path} cannot be written; make it writable or set XDG_CACHE_HOME elsewhere")


def _extract(wheel: Path, into: Path, keep: Keep) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member, place in keep(wheel, archive.namelist()).items():
                (into / place).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, (into / place).open("wb") as stream:
                    shutil.copyfileobj(source, stream, 1 << 20)
                    stream.flush()
                    os.fsync(stream.fileno())
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise UsageError(f"{wheel} cannot be read as a wheel: {error}; fetch it again") from None


def download(requirement: str, into: Path) -> Path:
    """Fetch one wheel with pip; raises Unavailable with the requirement and pip's last words."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(into), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS)
    except subprocess.TimeoutExpired:
        raise _not_fetched(requirement, f"no answer within {_DOWNLOAD_SECONDS:.0f} s") from None
    wheel = find_wheel(requirement, into)
    if done.returncode != 0 or wheel is None:
        said = done.stderr.strip() or done.stdout.strip() or "no wheel for this machine"
        raise _not_fetched(requirement, said.splitlines()[-1])
    return wheel


def _not_fetched(requirement: str, why: str) -> Unavailable:
    return Unavailable(
        f"{requirement} could not be fetched ({why.removeprefix('ERROR: ')}); "
        "check the network, or give a folder that has the wheel with --wheels DIR"
    )


def remove(name: str) -> bool:
    """Remove a stack's files; whether there were any."""
    target = folder(name)
    if not target.exists():
        return False
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target.parent) as scratch:
        shutil.move(target, scratch)  # gone by one rename, then deleted
    return True
