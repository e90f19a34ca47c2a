"""How a process of a stack is started: its interpreter and its environment variables."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench_lib.containers.engine import engine
from bench_lib.containers.image import ID_VARIABLE
from bench_lib.errors import Refused, UsageError
from bench_lib.faults.whole import whole
from bench_lib.stacking import cache, stacks, startup
from bench_lib.stacking.stacks import NAME_VARIABLE, PACKAGES, StackEntry

_ACTIVATE = "activate"
_ACTIVATE_SECONDS = 60.0
_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})

# What compilers keep from run to run, apart for each stack: code of one must not be found by another.
_CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUPY_CACHE_DIR": "cupy",
    "CUDA_CACHE_PATH": "driver",
}


@dataclass(frozen=True)
class Environment:
    """What a process of a stack is started with."""

    python: str
    variables: Mapping[str, str]


def environment(entry: StackEntry, variables: Mapping[str, str] | None = None) -> Environment:
    """The environment of a stack, on top of `variables` (default: this process's own).

    Raises UsageError when the stack's folder, `activate` file or interpreter is not there.
    """
    given = dict(os.environ if variables is None else variables)
    for name in (startup.HIDDEN_VARIABLE, startup.PRELOAD_VARIABLE):  # of a stack this process may be in
        given.pop(name, None)
    found = _of_kind(entry, given)
    added = {**_marks(entry, found), **_own_caches(entry), **_own_nvrtc(entry, found.variables)}
    return Environment(found.python, {**found.variables, **added})


def _of_kind(entry: StackEntry, given: dict[str, str]) -> Environment:
    if entry.base is not None:
        return _of_kind(entry.base, given)
    if entry.kind == "venv":
        return _venv(entry, given)
    if entry.kind == "path":
        return _activated(entry, given)
    if entry.image is not None:
        return _contained(entry, given)
    return Environment(sys.executable, given)


def _venv(entry: StackEntry, given: dict[str, str]) -> Environment:
    """As its own bin/activate would set it; what PYTHONPATH names is not part of the stack."""
    folder = cache.folder(entry.name)
    kept = {name: value for name, value in given.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    path = os.pathsep.join([str(folder / "bin"), given.get("PATH", os.defpath)])
    return Environment(str(folder / "bin" / "python"), {**kept, "VIRTUAL_ENV": str(folder), "PATH": path})


def _contained(entry: StackEntry, given: dict[str, str]) -> Environment:
    """What a container is started with, of which it is given only what it needs: see containers.command."""
    assert entry.image is not None
    kept = {name: value for name, value in given.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    suite = {"PYTHONPATH": str(Path(__file__).parents[2]), ID_VARIABLE: require_image(entry)}
    return Environment(entry.image.python, {**kept, **suite})


def require_image(entry: StackEntry) -> str:
    """The id of a container stack's image; UsageError, with what to do, when it is not here."""
    assert entry.image is not None
    if found := engine(entry.image).image_id(entry.image):
        return found
    raise UsageError(
        f"image {entry.image.name} of stack {entry.name} is not here; {how_to_have_image(entry)}"
    )


def how_to_have_image(entry: StackEntry) -> str:
    """What a user does to have the image of a container stack."""
    assert entry.image is not None
    if entry.image.dockerfile is not None:
        return f"build it with `cuda-gains stacks create {entry.name}`"
    return f"build it, or fetch it with `{entry.image.engine or 'docker'} pull {entry.image.name}`"


def _activated(entry: StackEntry, given: dict[str, str]) -> Environment:
    """The variables after its `activate` was sourced in bash; the Python it puts into PATH, if any."""
    assert entry.folder is not None
    script = entry.folder / _ACTIVATE
    if not script.is_file():
        raise UsageError(
            f"stack {entry.name}: there is no {script}; unpack the stack there or correct its `folder`"
        )
    variables = _sourced(script, given)
    before, own = (shutil.which("python3", path=v.get("PATH", os.defpath)) for v in (given, variables))
    python = entry.python or (own if own and own != before else sys.executable)
    return Environment(interpreter(entry, python, variables), variables)


def _sourced(script: Path, given: Mapping[str, str]) -> dict[str, str]:
    command = ["bash", "-c", '. "$1" >&2 && exec env -0', "bash", str(script)]
    try:
        done = subprocess.run(
            command, env=dict(given), stdin=subprocess.DEVNULL, capture_output=True, timeout=_ACTIVATE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{script} cannot be sourced in bash: {error}") from None
    if done.returncode != 0:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
        raise UsageError(f"{script} fails when bash sources it, with {done.returncode}: {said}")
    if not done.stdout:
        raise UsageError(f"{script} ends the shell that sources it; use `return` in it, not `exit`")
    pairs = (item.split("=", 1) for item in done.stdout.decode(errors="surrogateescape").split("\0") if item)
    after = {name: value for name, value in pairs if not name.startswith("BASH_FUNC_")}
    ours = {name: given[name] for name in _OF_THE_SHELL & given.keys()}
    return {name: value for name, value in after.items() if name not in _OF_THE_SHELL} | ours


def interpreter(entry: StackEntry, python: str, variables: Mapping[str, str]) -> str:
    """The path of a stack's interpreter; UsageError when it is not there."""
    found = shutil.which(python, path=variables.get("PATH", os.defpath))
    if found is None:
        raise UsageError(
            f"stack {entry.name} wants the interpreter {python!r}, which is not in PATH; "
            "install it or correct `python` in its entry"
        )
    return found


def _marks(entry: StackEntry, found: Environment) -> dict[str, str]:
    """What a process needs to know to be in the stack, and what it must do first."""
    marks = {NAME_VARIABLE: entry.name}
    hidden = [name for name in PACKAGES if not stacks.holds(entry, name)] if _hides(entry) else []
    preload = [str(exchanged(entry))] if entry.base is not None else []
    if hidden or preload:
        marks[startup.HIDDEN_VARIABLE], marks[startup.PRELOAD_VARIABLE] = ",".join(hidden), ":".join(preload)
        # Newer torch loads each library by its path, from the first nvidia/*/lib of sys.path that has it.
        swapped = [str(cache.folder(entry.name))] if preload else []
        path = [str(_startup_folder()), *swapped, found.variables.get("PYTHONPATH", "")]
        marks["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return marks


def _hides(entry: StackEntry) -> bool:
    """Whether a stack runs in a Python that may hold packages which are not part of it."""
    return _hides(entry.base) if entry.base is not None else entry.kind in ("cudart", "native", "path")


def _startup_folder() -> Path:
    """A folder with sitecustomize.py alone, as this version of the suite has it."""
    folder = cache.root() / "startup"
    cache.writable(folder)
    wanted, target = Path(startup.__file__).read_text(), folder / "sitecustomize.py"
    if not target.exists() or target.read_text() != wanted:
        with whole(target) as stream:
            stream.write(wanted.encode())
    return folder


def exchanged(entry: StackEntry) -> Path:
    """The library that a swap puts in; UsageError when it was not created."""
    found = cache.find(entry.name, entry.requirements)
    paths = sorted(found.glob(f"nvidia/*/lib/lib{entry.library}.so.*")) if found else []
    if not paths:
        raise UsageError(
            f"stack {entry.name} has no {entry.library} to exchange yet; "
            f"fetch it with `cuda-gains stacks create {entry.name}`"
        )
    return paths[0].resolve()


def _own_caches(entry: StackEntry) -> dict[str, str]:
    folder = compiled(entry.name)
    found = {name: str(folder / part) for name, part in _CACHES.items()}
    if "venv" in (entry.kind, entry.base and entry.base.kind) or entry.image is not None:
        found["NUMBA_CACHE_DIR"] = str(folder / "numba")  # its numba compiles the same files anew
    for place in found.values():
        cache.writable(Path(place))
    return found


def compiled(name: str) -> Path:
    """Where the compilers of a stack keep what they made."""
    return cache.root() / "compiled" / name


def bare_names(name: str) -> Path:
    """The folder in which a stack's libraries have names without a version, for those who ask for these."""
    return compiled(name) / "lib"


def _own_nvrtc(entry: StackEntry, variables: Mapping[str, str]) -> dict[str, str]:
    """LD_LIBRARY_PATH by which libnvrtc.so is that of the stack.

    A cuDNN built for CUDA 11 asks for libnvrtc.so.11.8, which no wheel holds, and then for libnvrtc.so:
    without this it opens that of a toolkit which the machine happens to have.
    """
    found = next(stacks.libraries(entry, "libnvrtc.so.*"), None)
    if found is None or entry.kind not in ("venv", "native", "path"):
        return {}
    folder = bare_names(entry.name)
    cache.writable(folder)
    link = folder / "libnvrtc.so"
    if not (link.is_symlink() and link.readlink() == found):
        temporary = folder / f".{os.getpid()}.tmp"
        temporary.symlink_to(found)
        temporary.replace(link)
    given = variables.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    others = [place for place in given if place and not Path(place).is_relative_to(compiled(""))]
    return {"LD_LIBRARY_PATH": os.pathsep.join([str(folder), *others])}


def require(entry: StackEntry, variables: Mapping[str, str]) -> None:
    """Refuse to measure a stack in a process that was not started for it."""
    if entry.kind not in ("here", "cudart") and variables.get(NAME_VARIABLE) != entry.name:
        raise Refused(
            f"stack {entry.name} of kind {entry.kind} has an environment of its own, which this process "
            f"is not in; measure it with `cuda-gains run --stack {entry.name}`"
        )
