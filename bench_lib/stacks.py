"""stacks.toml -> stacks by name, and the libraries they need: from the cache, a wheel or pip."""

import difflib
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench_lib import cache
from bench_lib.errors import Unavailable, UsageError
from bench_lib.layout import check_name

FILE_VARIABLE = "CUDA_GAINS_STACKS"  # how a campaign tells its processes which file it reads

# The keys of each kind. `here` is this Python as it is; `cudart` is one CUDA runtime by path.
# Stacks with their own torch or libraries (venv, native, swap, path) will each be one more line.
_KEYS: dict[str, frozenset[str]] = {
    "here": frozenset({"kind"}),
    "cudart": frozenset({"kind", "requirements", "declared"}),
}


@dataclass(frozen=True)
class StackEntry:
    """One entry of stacks.toml: what a stack is made of and which versions it promises."""

    name: str
    kind: str  # here or cudart
    requirements: tuple[str, ...] = ()  # exact pins, NAME==VERSION
    declared: Mapping[str, str] = field(default_factory=dict)  # component -> version: cudart -> 12.4


HERE = StackEntry("here", "here")


class StackRow(NamedTuple):
    """One line of `cuda-gains stacks list`."""

    name: str
    kind: str
    requirement: str
    here: str


def load_stacks(path: Path | None = None) -> dict[str, StackEntry]:
    """The stacks of a stacks.toml by name; `here` is always among them.

    Without a path: the file $CUDA_GAINS_STACKS names, else benchmarks/stacks.toml of the current
    folder, else of the checkout this package lies in, else none. Raises UsageError for a file that
    is not there or is wrong in any way.
    """
    found = path or _default_file()
    if found is None:
        return {HERE.name: HERE}
    try:
        content = tomllib.loads(found.read_text())
    except OSError as error:
        raise UsageError(f"{found} cannot be read: {error.strerror}; name another stacks file") from None
    except ValueError as error:
        raise UsageError(f"{found} is not valid TOML: {error}") from None
    entries = {name: _entry(found, name, table) for name, table in content.items()}
    return {HERE.name: HERE, **entries}


def _default_file() -> Path | None:
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named)
    parents = (Path.cwd(), Path(__file__).parent.parent)
    files = (parent / "benchmarks" / "stacks.toml" for parent in parents)
    return next((file for file in files if file.is_file()), None)


def _entry(path: Path, name: str, table: Any) -> StackEntry:
    where = f"{path}: stack {name!r}"
    check_name("stack", name)
    if not isinstance(table, dict):
        raise UsageError(f'{path}: {name!r} is not a stack; a stack is a table, ["NAME"]')
    kind = table.get("kind")
    if kind not in _KEYS:
        raise UsageError(f"{where} has kind {kind!r}, expected one of {', '.join(_KEYS)}{_hint(table)}")
    for key in table:
        if key not in _KEYS[kind]:
            raise UsageError(f"{where} has the unknown key {key!r}; {_nearest(key, _KEYS[kind])}")
    if missing := sorted(_KEYS[kind] - table.keys()):
        raise UsageError(f"{where} lacks the key {missing[0]!r}, which kind {kind!r} needs")
    entry = StackEntry(name, kind, _pins(where, table), _declared(where, table))
    if kind == "cudart" and (len(entry.requirements) != 1 or set(entry.declared) != {"cudart"}):
        raise UsageError(f"{where} needs exactly one requirement, and declared = {{ cudart = VERSION }}")
    return entry


def _hint(table: Mapping[str, Any]) -> str:
    """The commonest slip: [cudart-11.8] without quotes is table "8" inside "cudart-11"."""
    nested = "kind" not in table and any(isinstance(value, dict) for value in table.values())
    return '; a name with a dot needs quotes: ["cudart-11.8"]' if nested else ""


def _pins(where: str, table: Mapping[str, Any]) -> tuple[str, ...]:
    pins = table.get("requirements", [])
    exact = isinstance(pins, list) and all(isinstance(p, str) and p.count("==") == 1 for p in pins)
    if not exact:
        raise UsageError(f"{where} has requirements {pins!r}, expected a list of exact pins NAME==VERSION")
    return tuple(pins)


def _declared(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    declared = table.get("declared", {})
    if not isinstance(declared, dict) or not all(isinstance(v, str) for v in declared.values()):
        raise UsageError(
            f'{where} has declared {declared!r}, expected versions as text: {{ cudart = "12.4" }}'
        )
    return dict(declared)


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"


def stack(name: str, path: Path | None = None) -> StackEntry:
    """The stack of that name; UsageError with the nearest name when there is none."""
    entries = load_stacks(path)
    if name not in entries:
        raise UsageError(f"there is no stack {name!r}; {_nearest(name, entries)}")
    return entries[name]


def holds(entry: StackEntry, package: str) -> bool:
    """Whether cases that need `package` (torch, cupy, triton) have a meaning in this stack.

    Never in a cudart stack, whatever the machine's Python holds: it is not part of the stack.
    """
    return entry.kind == "here" or package in entry.declared


def at_hand(entry: StackEntry, wheels: Path | None = None) -> bool:
    """Whether the stack can be used without fetching anything."""
    if entry.kind == "here":
        return True
    requirement = entry.requirements[0]
    in_wheels = wheels is not None and cache.find_wheel(requirement, wheels) is not None
    return in_wheels or cache.find(entry.name, requirement) is not None


def cached_library(entry: StackEntry, wheels: Path | None = None) -> Path:
    """The libcudart of a cudart stack: from the cache, else unpacked into it from a wheel.

    Raises Unavailable, with the command that fetches it, when neither is there.
    """
    requirement = entry.requirements[0]
    if (found := cache.find(entry.name, requirement)) is not None:
        return found
    wheel = None if wheels is None else cache.find_wheel(requirement, wheels)
    if wheel is None:
        looked = "is not in the cache" if wheels is None else f"is neither in the cache nor in {wheels}"
        raise Unavailable(
            f"stack {entry.name} {looked} ({requirement}); "
            f"fetch it with `cuda-gains stacks create {entry.name}`"
        )
    return cache.unpack(entry.name, requirement, wheel)


def create(
    name: str,
    wheels: Path | None = None,
    progress: Callable[[str], None] | None = None,
    path: Path | None = None,
) -> Path:
    """Put what a stack needs into the cache, with pip unless `wheels` holds it; the library's path.

    Raises Unavailable, naming the requirement, when it cannot be had; nothing half-made is left.
    """
    entry = stack(name, path)
    if entry.kind == "here":
        raise UsageError(f"stack {name!r} is this Python as it is; there is nothing to create")
    if wheels is not None or at_hand(entry):
        return cached_library(entry, wheels)
    requirement = entry.requirements[0]
    if progress is not None:
        progress(f"{name}: fetching {requirement}")
    with tempfile.TemporaryDirectory() as scratch:
        return cache.unpack(name, requirement, cache.download(requirement, Path(scratch)))


def remove(name: str, path: Path | None = None) -> None:
    """Remove a stack's files from the cache; UsageError when it has none there."""
    if not cache.remove(stack(name, path).name):
        raise UsageError(f"stack {name!r} has no files in the cache; `cuda-gains stacks list` shows which do")


def listing(path: Path | None = None) -> list[StackRow]:
    """Every stack, and whether it can be used without fetching anything."""
    return [
        StackRow(e.name, e.kind, ", ".join(e.requirements), "yes" if at_hand(e) else "no")
        for e in load_stacks(path).values()
    ]
