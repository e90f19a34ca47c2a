"""Stacks of kind `venv`: a virtual environment in the cache, filled by pip, the suite installed in it.

The folder counts as there once its mark is written, which is the last thing that happens. So what a
kill leaves behind is never used, and the next creation replaces it.
"""

import fcntl
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench_lib.errors import CudaGainsError, Unavailable, UsageError
from bench_lib.stacking import cache, environments
from bench_lib.stacking.stacks import StackEntry

_MARK = "requirements"
_SUITE = "cuda-gains"
_EXTRA = "measure"
_SHOWN = ("Collecting ", "Downloading ", "Installing collected packages")  # of what pip says


def at_hand(entry: StackEntry) -> bool:
    """Whether the environment is there, whole, and made of what its entry says now."""
    folder = cache.folder(entry.name)
    try:
        same = (folder / _MARK).read_text() == _recipe(entry)
    except OSError:
        return False
    links = folder.glob("lib/python3*/site-packages/bench_lib")
    return same and (folder / "bin" / "python").exists() and all(link.exists() for link in links)


def _recipe(entry: StackEntry) -> str:
    needs = importlib.metadata.requires(_SUITE) or ()
    return "\n".join([entry.python, *entry.pins, *sorted(need for need in needs if ";" not in need)])


def create(entry: StackEntry, wheels: Path | None, progress: Callable[[str], None]) -> None:
    """Make the environment, unless it is there; with `wheels` pip asks no index.

    Raises Unavailable, with the requirement that failed, UsageError when Python cannot make one. After
    an error nothing of it is left.
    """
    folder = cache.folder(entry.name)
    cache.writable(folder.parent)
    with _alone(folder):
        if at_hand(entry):
            return
        _clear(folder)
        try:
            _make(entry, folder, progress)
            _install(entry, folder, wheels, progress)
            (folder / _MARK).write_text(_recipe(entry))
        except BaseException:
            _clear(folder)
            raise


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time makes an environment; the next one finds it made."""
    with folder.with_name(f".{folder.name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _clear(folder: Path) -> None:
    (folder / _MARK).unlink(missing_ok=True)  # first: what a kill leaves of it must not count
    shutil.rmtree(folder, ignore_errors=True)


def _make(entry: StackEntry, folder: Path, progress: Callable[[str], None]) -> None:
    here = environments.environment(entry).variables
    python = environments.interpreter(entry, entry.python or sys.executable, here)
    progress(f"{entry.name}: making an environment with {python}")
    command = [python, "-m", "venv", "--without-pip", str(folder)]  # this Python's pip fills it
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stdout.strip() or done.stderr.strip() or "no reason given").splitlines()
        raise UsageError(f"stack {entry.name}: {python} -m venv failed ({' '.join(said)[:300]})")


def _install(entry: StackEntry, folder: Path, wheels: Path | None, progress: Callable[[str], None]) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    command += ["--no-input", "--disable-pip-version-check", "--only-binary=:all:", "--progress-bar=off"]
    command += [] if wheels is None else ["--no-index", "--find-links", str(wheels.absolute())]
    command += ["--extra-index-url", entry.extra_index] if entry.extra_index and wheels is None else []
    with tempfile.TemporaryDirectory() as scratch:
        suite = f"{_suite_wheel(Path(scratch))}[{_EXTRA}]"
        _pip(entry, [*command, *entry.requirements, suite], progress)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "bench_lib").symlink_to(Path(__file__).parents[1].resolve())


def _pip(entry: StackEntry, command: Sequence[str], progress: Callable[[str], None]) -> None:
    variables = environments.environment(entry).variables
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True, env=variables
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.strip().startswith(_SHOWN):
                    progress(f"{entry.name}: {line.strip()}")
        if child.returncode != 0:
            errors.seek(0)
            raise _failed(entry, errors.read())


def _failed(entry: StackEntry, said: str) -> CudaGainsError:
    """Which requirement it was: the first whose name pip's errors contain."""
    lines = [line.removeprefix("ERROR: ").strip() for line in said.splitlines() if line.startswith("ERROR: ")]
    reason = (lines or said.strip().splitlines()[-1:] or ["pip gave no reason"])[0]
    text = _canonical(" ".join(lines) or said)
    names = [pin for pin in entry.requirements if re.search(rf"(?<![\w-]){re.escape(_name(pin))}\b", text)]
    what = names[0] if names else ", ".join(entry.requirements)
    return Unavailable(
        f"{what} could not be installed for stack {entry.name} ({reason}); correct the pin or "
        "`extra_index`, check the network, or give a folder of wheels with --wheels DIR"
    )


def _canonical(text: str) -> str:
    return re.sub(r"[_.]+", "-", text).lower()


def _name(pin: str) -> str:
    return _canonical(re.split(r"[\[=]", pin, maxsplit=1)[0].strip())


def _suite_wheel(folder: Path) -> Path:
    """A wheel of this suite with everything but its code: what it needs, and its entry points.

    The code is a link to this very package, so that all stacks measure with one version of it, and no
    build is needed where it was installed from.
    """
    found = importlib.metadata.distribution(_SUITE)
    wheel = folder / f"{_SUITE.replace('-', '_')}-{found.version}-py3-none-any.whl"
    info = f"{wheel.name.split('-py3')[0]}.dist-info"
    content = {name: found.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}
    content["METADATA"] = content["METADATA"] or found.read_text("PKG-INFO") or ""
    content |= {"WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "RECORD": ""}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in content.items():
            archive.writestr(f"{info}/{name}", text)
    return wheel
