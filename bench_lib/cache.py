"""The library cache: a folder a stack, with one library out of one wheel, whole or not there."""

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
from pathlib import Path, PurePosixPath

from bench_lib.errors import Unavailable, UsageError

_DOWNLOAD_SECONDS = 600.0
_LIBRARY = "libcudart.so.*"
_MARK = "requirement"  # the file that says which wheel the library came from


def folder(name: str) -> Path:
    """Where the files of stack `name` are, or would be: under $XDG_CACHE_HOME, or ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "cuda-gains" / "stacks" / name


def find(name: str, requirement: str) -> Path | None:
    """The cached library of a stack, None when there is none or it came from another wheel."""
    mark = folder(name) / _MARK
    if not mark.is_file() or mark.read_text() != requirement:
        return None
    return next(folder(name).glob(_LIBRARY), None)


def find_wheel(requirement: str, wheels: Path) -> Path | None:
    """The wheel of `NAME==VERSION` for this machine in a folder of wheels, None when not there."""
    name, _, version = requirement.partition("==")
    prefix = f"{re.sub(r'[-_.]+', '_', name).lower()}-{version}-"
    for path in sorted(wheels.glob("*.whl")):
        fits = path.stem.endswith(("-any", f"_{platform.machine()}"))
        if fits and path.name.lower().startswith(prefix):
            return path
    return None


def unpack(name: str, requirement: str, wheel: Path) -> Path:
    """Put the library of a wheel into the cache; the path of the library.

    The folder appears by one rename, so a failure leaves the cache as it was. Raises UsageError
    when the file is no wheel or holds no such library.
    """
    target = folder(name)
    _writable(target.parent)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        library = _extract(wheel, made)
        (made / _MARK).write_text(requirement)
        if target.exists() and find(name, requirement) is None:
            target.rename(Path(scratch) / "old")
        with contextlib.suppress(OSError):  # another process was first: the same library
            made.rename(target)
    return target / library


def _writable(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be made ({error.strerror}); set XDG_CACHE_HOME elsewhere") from None
    if not os.access(path, os.W_OK):
        raise UsageError(f"{path} cannot be written; make it writable or set XDG_CACHE_HOME elsewhere")


def _extract(wheel: Path, into: Path) -> str:
    """Write the wheel's library into a folder, under its bare name; that name."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [m for m in archive.namelist() if PurePosixPath(m).match(_LIBRARY)]
            if len(members) != 1:
                raise UsageError(f"{wheel} holds {len(members)} files {_LIBRARY}, expected one")
            data = archive.read(members[0])
    except (zipfile.BadZipFile, zlib.error, OSError) as error:
        raise UsageError(f"{wheel} cannot be read as a wheel: {error}; fetch it again") from None
    name = PurePosixPath(members[0]).name
    with (into / name).open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    return name


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
