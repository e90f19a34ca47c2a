"""Whether a process of a stack has loaded what the stack's entry declares."""

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench_lib.identity import libraries
from bench_lib.stacking import cache, environments, stacks
from bench_lib.stacking.stacks import StackEntry

_CORRECT = "correct its entry, or remove the stack and create it again"
_FILES = {"cublaslt": "cublasLt"}  # component -> how its file is spelled, where that differs
_LIBRARIES = (*stacks.SWAPPED, "cublaslt", "nvrtc")


def broken(entry: StackEntry, facts: Mapping[str, str]) -> str:
    """The first promise that does not hold, as a sentence with both values; "" when all do.

    `facts` are those of the stack's identity. What is not loaded yet is not judged; the library of a swap
    is loaded from the start, and read from this process's memory map.
    """
    for component, version in stacks.declared(entry).items():
        seen, where = _seen(entry, component, facts)
        if seen and not stacks.agrees(version, seen):
            return (
                f"stack {entry.name} declares {component} {version}, but {seen} is loaded"
                f"{f' from {where}' if where else ''}; {_CORRECT}"
            )
    return "" if entry.base is None else _not_exchanged(entry, libraries.with_parts(entry.library))


def absent(entry: StackEntry, facts: Mapping[str, str]) -> str:
    """What is declared and not there at all, as a sentence; "" when all of it is.

    To be asked when everything that the stack holds was loaded: a library that cannot tell its version
    counts as there, and so does a file that nothing has asked for yet.
    """
    missing: dict[Path, list[str]] = {}
    for component, version in stacks.declared(entry).items():
        if not _there(entry, component, facts):
            missing.setdefault(_place(entry, component), []).append(f"{component} {version}")
    for place, named in missing.items():
        none = "none was" if len(named) == 1 else "none of them was"
        mend = "unpack the stack there again" if place == _folder(entry) else _CORRECT.partition(", or ")[2]
        return (
            f"stack {entry.name} declares {', '.join(named)}, but {none} found in {place}; "
            f"correct its entry, or {mend}"
        )
    return ""


def _there(entry: StackEntry, component: str, facts: Mapping[str, str]) -> bool:
    key = component if "." in component else f"{component}.version"
    if facts.get(key) or facts.get(f"{component}.path"):
        return True
    if component not in _LIBRARIES:
        return "." not in component and importlib.util.find_spec(component) is not None
    if component == "nvrtc" and stacks.holds(entry, "torch"):
        return True  # which looks for it when it first compiles, and not in nvidia/*/lib alone
    pattern = f"lib{_FILES.get(component, component)}.so*"
    return next(stacks.libraries(entry, pattern), None) is not None


def _place(entry: StackEntry, component: str) -> Path:
    """Where a component of a stack should lie."""
    if entry.base is not None and component not in entry.declared:
        return _place(entry.base, component)
    if entry.kind == "here":
        return Path(sys.prefix)
    return entry.folder or cache.folder(entry.name)


def _folder(entry: StackEntry) -> Path | None:
    return entry.folder if entry.base is None else _folder(entry.base)


def _seen(entry: StackEntry, component: str, facts: Mapping[str, str]) -> tuple[str, str]:
    """A component's version and path, "" when it is not loaded."""
    if entry.base is not None and component == entry.library:
        new = environments.exchanged(entry)  # beside it a package may have a copy for itself alone
        return libraries.version(component, new), str(new)
    key = component if "." in component else f"{component}.version"
    return facts.get(key, ""), facts.get(f"{component}.path", "")


def _not_exchanged(entry: StackEntry, loaded: Iterable[Path]) -> str:
    """Why a swap is not in effect: the map must hold the new library and no other of that name."""
    wanted = environments.exchanged(entry)
    found = [path.resolve() for path in loaded]
    if wanted not in found:
        return f"stack {entry.name} exchanges {entry.library}, but {wanted} was not loaded; {_CORRECT}"
    others = [path for path in found if path.parent != wanted.parent]
    if not others:
        return ""
    return (
        f"stack {entry.name} exchanges {entry.library} for {wanted}, but {others[0]} is loaded too; "
        "something loads that library by its path, so it cannot be exchanged in this way"
    )
