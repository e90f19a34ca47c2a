"""Whether a process of a stack has loaded what the stack's entry declares."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from bench_lib import environments, libraries, stacks
from bench_lib.stacks import StackEntry

_CORRECT = "correct its entry, or remove the stack and create it again"


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
