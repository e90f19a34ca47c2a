"""Which stacks are here, and having them here: created, checked, listed, removed."""

import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench_lib.containers import engine
from bench_lib.containers.command import Container
from bench_lib.errors import CudaGainsError, Unavailable, UsageError
from bench_lib.processes.ended import last_line
from bench_lib.stacking import cache, environments, stacks, swaps, venvs
from bench_lib.stacking.stacks import FILE_VARIABLE, NAME_VARIABLE, StackEntry

_OBSERVE_SECONDS = 300.0  # torch's import on a cold disk
_OF_OTHERS = ("path", "container")  # what others may have changed is asked again each time, and never removed

Progress = Callable[[str], None]


class StackRow(NamedTuple):
    """One line of `cuda-gains stacks list`."""

    name: str
    kind: str
    requirement: str
    here: str


def at_hand(entry: StackEntry, wheels: Path | None = None) -> bool:
    """Whether a stack can be used without fetching anything."""
    if entry.kind == "path":
        return entry.folder is not None and (entry.folder / "activate").is_file()
    if entry.kind == "venv":
        return venvs.at_hand(entry)
    if entry.image is not None:
        return os.environ.get(NAME_VARIABLE) == entry.name or engine.is_here(entry.image)
    if entry.base is not None and not at_hand(entry.base, wheels):
        return False
    in_wheels = wheels is not None and all(cache.find_wheel(pin, wheels) for pin in entry.requirements)
    return in_wheels or cache.find(entry.name, entry.requirements) is not None or entry.kind == "here"


def require(entry: StackEntry, wheels: Path | None = None) -> None:
    """Raise UsageError, with what makes it, for a stack that cannot be used without fetching anything."""
    if not at_hand(entry, wheels):
        raise UsageError(f"stack {entry.name} is not here; {how_to_have(entry)}")


def how_to_have(entry: StackEntry) -> str:
    """What a user does to have a stack that is not here."""
    base = entry.base
    if entry.kind == "path" and entry.folder is not None:
        script = entry.folder / "activate"
        return f"there is no {script}: unpack the stack there, or correct its `folder` in the stacks file"
    if entry.image is not None:
        return environments.how_to_have_image(entry)
    if base is not None and base.kind == "path" and not at_hand(base):
        return f"of its base {base.name} {how_to_have(base)}"
    return f"make it with `cuda-gains stacks create {entry.name}`"


def require_wheels(entries: Iterable[StackEntry], wheels: Path | None) -> None:
    """Raise before anything is made when a folder of wheels lacks some that these stacks need.

    Unavailable names all of them; UsageError a folder that is none. What is here already needs no wheel.
    """
    cache.require_folder(wheels)
    if wheels is None:
        return
    lacking = {e.name: pins for e in _with_bases(entries) if (pins := _lacking(e, wheels))}
    if lacking:
        said = "; ".join(f"{', '.join(pins)} of stack {name}" for name, pins in lacking.items())
        several = sum(map(len, lacking.values())) > 1
        be, put = ("are", "put their wheels") if several else ("is", "put its wheel")
        raise Unavailable(f"{said} {be} not in {wheels}; {put} for {platform.machine()} there")


def _with_bases(entries: Iterable[StackEntry]) -> Iterator[StackEntry]:
    for entry in entries:
        yield from () if entry.base is None else _with_bases([entry.base])
        yield entry


def _lacking(entry: StackEntry, wheels: Path) -> list[str]:
    here = cache.find(entry.name, entry.requirements) is not None or at_hand(entry)
    return [] if here else [pin for pin in entry.requirements if cache.find_wheel(pin, wheels) is None]


def have(entry: StackEntry, wheels: Path | None, progress: Progress, path: Path | None = None) -> None:
    """Create a stack unless it is here; with `wheels` nothing is fetched. Raises as `create`."""
    if entry.kind == "cudart" and wheels is not None:
        stacks.cached_library(entry, wheels)
    elif entry.kind != "here" and not (at_hand(entry) and entry.kind not in _OF_OTHERS):
        create(entry.name, wheels, progress, path)


def create(
    name: str, wheels: Path | None = None, progress: Progress = lambda _: None, path: Path | None = None
) -> Path | str:
    """Put what a stack needs into the cache and check what it promises; where it lies, or its image.

    With `wheels` everything comes from that folder, else pip fetches it. Raises Unavailable, naming the
    requirement, when it cannot be had, UsageError when it is not what its entry declares. After an error
    nothing half-made is left.
    """
    entry = stacks.stack(name, path)
    require_wheels([entry], wheels)
    if entry.kind == "here":
        raise UsageError(f"stack {name!r} is this Python as it is; there is nothing to create")
    if entry.kind == "cudart":
        return _runtime(entry, wheels, progress)
    if entry.base is not None:
        have(entry.base, wheels, progress, path)
    was_there = at_hand(entry)
    try:
        if not was_there:
            _fill(entry, wheels, progress)
        if entry.base is not None:
            swaps.check(entry)
        progress(f"{name}: asking its libraries for their versions")
        if broken := observe(entry, path)["broken"]:
            raise UsageError(str(broken))
    except CudaGainsError:
        if not was_there and entry.kind not in _OF_OTHERS:
            _remove(entry)
        raise
    return entry.image.name if entry.image is not None else entry.folder or cache.folder(name)


def _runtime(entry: StackEntry, wheels: Path | None, say: Progress) -> Path:
    if wheels is not None or at_hand(entry):
        return stacks.cached_library(entry, wheels)
    folder = _unpack(entry, None, say, cache.runtime_only)
    return next(folder.glob("libcudart.so.*"))


def _fill(entry: StackEntry, wheels: Path | None, say: Progress) -> None:
    if entry.kind == "path":
        environments.environment(entry)  # which says what is not there
    elif entry.kind == "venv":
        venvs.create(entry, wheels, say)
    elif entry.image is not None:
        _build(entry, say)
    else:
        _unpack(entry, wheels, say, cache.libraries_only)


def _build(entry: StackEntry, say: Progress) -> None:
    assert entry.image is not None
    its = engine.engine(entry.image)
    if not its.image_id(entry.image) and entry.image.dockerfile is None:
        environments.require_image(entry)  # which says what to do
    its.build(entry.image, lambda line: say(f"{entry.name}: {line}"))


def _unpack(entry: StackEntry, wheels: Path | None, say: Progress, keep: cache.Keep) -> Path:
    with tempfile.TemporaryDirectory() as scratch:
        found = [_wheel(entry, pin, wheels, Path(scratch), say) for pin in entry.requirements]
        return cache.unpack(entry.name, entry.requirements, found, keep)


def _wheel(entry: StackEntry, pin: str, wheels: Path | None, scratch: Path, say: Progress) -> Path:
    if wheels is None:
        say(f"{entry.name}: fetching {pin}")
        return cache.download(pin, scratch)
    found = cache.find_wheel(pin, wheels)
    assert found is not None  # asked for before
    return found


def observe(entry: StackEntry, path: Path | None = None) -> dict[str, Any]:
    """What a stack's libraries say of themselves, in a process of the stack: `facts` and `broken`.

    `broken` is the first promise of its entry that does not hold, "" when all do. Needs no GPU. Raises
    UsageError when the stack's Python cannot run this suite or its libraries do not load.
    """
    environment = environments.environment(entry)
    file = path or stacks.file()
    variables = dict(environment.variables) | ({} if file is None else {FILE_VARIABLE: str(file.absolute())})
    words = ["-P", "-m", "bench_lib.identity.observe", entry.name]
    box = Container.asking(entry, variables) if entry.image is not None else None
    command = [environment.python, *words] if box is None else box.command(words, variables)
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=_OBSERVE_SECONDS
        )
    except subprocess.TimeoutExpired:
        if box is not None:
            box.end()
        raise UsageError(f"stack {entry.name} did not answer within {_OBSERVE_SECONDS:.0f} s") from None
    if box is not None and (said := engine.not_started(box.engine.name, entry.name, done)):
        raise UsageError(said)
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = last_line(done.stderr)
        raise UsageError(
            f"stack {entry.name}: {environment.python} cannot run this suite ({last}); "
            "install cuda-gains for that Python or correct the entry"
        ) from None
    if "error" in answer:
        raise UsageError(f"stack {entry.name}: {answer['error']}")
    return answer


def remove(name: str) -> None:
    """Remove a stack's files from the cache; UsageError when it has none there."""
    if not _remove(stacks.stack(name)):
        raise UsageError(f"stack {name!r} has no files in the cache; `cuda-gains stacks list` shows which do")


def _remove(entry: StackEntry) -> bool:
    """Remove a stack and what was compiled for it; whether there was anything."""
    compiled = environments.compiled(entry.name)
    was_there = compiled.exists()
    shutil.rmtree(compiled, ignore_errors=True)
    return cache.remove(entry.name) or was_there


def listing() -> list[StackRow]:
    """Every stack, and whether it can be used without fetching anything."""
    return [
        StackRow(e.name, e.kind, ", ".join(e.requirements or e.pins), "yes" if at_hand(e) else "no")
        for e in stacks.load_stacks().values()
    ]


def described(name: str) -> dict[str, str]:
    """What an entry says, where the stack lies, and what its libraries say when it is here."""
    entry = stacks.stack(name)
    found = {"stack": name, "kind": entry.kind, "requirements": "\n".join(entry.requirements)}
    if entry.base is not None:
        found |= {"base": entry.base.name, "exchanges": entry.library}
    found |= {"extra index": entry.extra_index}
    if entry.image is not None:
        found |= {"image": entry.image.name, "dockerfile": str(entry.image.dockerfile or "")}
    found["declared"] = "\n".join(f"{key} {value}" for key, value in stacks.declared(entry).items())
    if not at_hand(entry):
        return {**found, "here": f"no; {_why_not(entry)}"}
    if entry.image is not None:
        found["image id"] = environments.require_image(entry)
    elif entry.kind != "here":
        found["folder"] = str(entry.folder or cache.folder(name))
    answer = observe(entry)
    found["python"] = environments.environment(entry).python
    seen = {key.removesuffix(".version"): value for key, value in answer["facts"].items()}
    ours = [f"{key} {value}" for key, value in seen.items() if "." not in key or key == "torch.cuda"]
    found["observed"] = "\n".join(ours)
    return {**found, "check": answer["broken"] or "what is declared is what is there"}


def _why_not(entry: StackEntry) -> str:
    """What a user does to have a stack; of an image, why it is not to be had, where its engine says that."""
    if entry.image is not None:
        try:
            environments.require_image(entry)
        except UsageError as error:
            return str(error)
    return how_to_have(entry)
