"""stacks.toml -> stacks by name: what each is made of, what it promises, and where its files lie."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench_lib import suite_files
from bench_lib.containers import image as images
from bench_lib.containers.image import Image
from bench_lib.errors import Unavailable, UsageError, nearest
from bench_lib.layout import check_name
from bench_lib.stacking import cache

_PIN = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w.,-]+\])?==[\w.!+-]+", re.ASCII)
NAME_VARIABLE = "CUDA_GAINS_STACK"  # which stack a process was started for
FILE_VARIABLE = "CUDA_GAINS_STACKS"  # how a campaign tells its processes which file it reads


class _Keys(NamedTuple):
    required: frozenset[str]
    optional: frozenset[str] = frozenset()


_KEYS: dict[str, _Keys] = {
    "here": _Keys(frozenset({"kind"})),
    "cudart": _Keys(frozenset({"kind", "requirements", "declared"})),
    "native": _Keys(frozenset({"kind", "requirements", "declared"})),
    "venv": _Keys(frozenset({"kind", "requirements", "declared"}), frozenset({"extra_index", "python"})),
    "swap": _Keys(frozenset({"kind", "base", "library", "requirements", "declared"})),
    "path": _Keys(frozenset({"kind", "folder", "declared"}), frozenset({"python"})),
    "container": _Keys(frozenset({"kind", "image", "declared"}), frozenset(images.KEYS)),
}

SWAPPED = ("cudart", "cublas", "cudnn", "nccl")  # the libraries a swap can exchange
PACKAGES = ("torch", "cupy", "triton")  # Python packages that a stack holds or does not
# what a stack can declare
COMPONENTS = (*SWAPPED, "cublaslt", "nvrtc", *PACKAGES, "torch.cuda", "python", "numpy", "numba")


@dataclass(frozen=True)
class StackEntry:
    """One entry of stacks.toml: what a stack is made of and which versions it promises."""

    name: str
    kind: str  # here, cudart, native, venv, swap, path or container
    requirements: tuple[str, ...] = ()  # exact pins, NAME==VERSION
    declared: Mapping[str, str] = field(default_factory=dict)  # component -> version: cudart -> 12.4
    extra_index: str = ""  # venv: a second package index
    python: str = ""  # venv and path: the interpreter; "": this one
    folder: Path | None = None  # path: the unpacked folder
    base: "StackEntry | None" = None  # swap: the stack in which a library is exchanged
    library: str = ""  # swap: the component that is exchanged
    image: Image | None = None  # container: what it runs in

    @property
    def pins(self) -> tuple[str, ...]:
        """Everything that decides what is in the stack, for a campaign's plan."""
        base = () if self.base is None else (f"base {self.base.name}", *self.base.pins)
        index = (self.extra_index,) if self.extra_index else ()
        image = () if self.image is None else (f"image {self.image.name}",)
        return (*base, *self.requirements, *index, *image)


HERE = StackEntry("here", "here")


def load_stacks(path: Path | None = None) -> dict[str, StackEntry]:
    """The stacks of a stacks.toml by name; `here` is always among them.

    Without a path: the file $CUDA_GAINS_STACKS names, else stacks.toml as `suite_files` finds it, else
    none. Raises UsageError for a file that is not there or is wrong in any way.
    """
    found = path or file()
    if found is None:
        return {HERE.name: HERE}
    content = suite_files.content(found, "stacks")
    entries = {HERE.name: HERE}
    for swaps in (False, True):  # what a swap changes must be there before it
        for name, table in content.items():
            if (isinstance(table, dict) and table.get("kind") == "swap") is swaps:
                entries[name] = _entry(found, name, table, entries)
    return {name: entries[name] for name in (HERE.name, *content)}


def file() -> Path | None:
    """The stacks file that is read where none is named; None where there is none."""
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named)
    return suite_files.find("stacks.toml")


def _entry(path: Path, name: str, table: Any, known: Mapping[str, StackEntry]) -> StackEntry:
    where = f"{path}: stack {name!r}"
    try:
        check_name("stack", name)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f'{path}: {name!r} is not a stack; a stack is a table, ["NAME"]')
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise UsageError(f"{where} has kind {kind!r}, expected one of {', '.join(_KEYS)}{_hint(table)}")
    required, optional = _KEYS[kind]
    for key in table:
        if key not in required | optional:
            raise UsageError(f"{where} has the unknown key {key!r}; {nearest(key, required | optional)}")
    if missing := sorted(required - table.keys()):
        raise UsageError(f"{where} lacks the key {missing[0]!r}, which kind {kind!r} needs")
    entry = StackEntry(
        name,
        kind,
        _pins(where, table),
        _declared(where, table),
        _index(where, table),
        _text(where, table, "python"),
        _folder(path, where, table, "folder"),
        _base(where, table, known),
        _text(where, table, "library"),
        images.read(where, partial(_text, where, table), partial(_folder, path, where, table))
        if kind == "container"
        else None,
    )
    _check(where, entry)
    return entry


def _hint(table: Mapping[str, Any]) -> str:
    """The commonest slip: [cudart-11.8] without quotes is table "8" inside "cudart-11"."""
    nested = "kind" not in table and any(isinstance(value, dict) for value in table.values())
    return '; a name with a dot needs quotes: ["cudart-11.8"]' if nested else ""


def _pins(where: str, table: Mapping[str, Any]) -> tuple[str, ...]:
    pins = table.get("requirements", [])
    if not isinstance(pins, list) or not all(isinstance(pin, str) and _PIN.fullmatch(pin) for pin in pins):
        raise UsageError(f"{where} has requirements {pins!r}, expected a list of exact pins NAME==VERSION")
    return tuple(pins)


def _declared(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    declared = table.get("declared", {})
    if not isinstance(declared, dict) or not all(isinstance(v, str) for v in declared.values()):
        raise UsageError(
            f'{where} has declared {declared!r}, expected versions as text: {{ cudart = "12.4" }}'
        )
    if table["kind"] != "cudart":
        for key in declared:
            if key not in COMPONENTS:
                raise UsageError(f"{where} declares the unknown {key!r}; {nearest(key, COMPONENTS)}")
    return dict(declared)


def _text(where: str, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str) or (key in table and not value) or not value.isprintable():
        raise UsageError(f"{where} has {key} {value!r}, expected text")
    return value


def _index(where: str, table: Mapping[str, Any]) -> str:
    index = _text(where, table, "extra_index")
    if "@" in index:
        raise UsageError(f"{where} has a password in extra_index; give it to pip in ~/.netrc instead")
    return index


def _folder(path: Path, where: str, table: Mapping[str, Any], key: str) -> Path | None:
    """A folder is meant relative to the stacks file."""
    folder = _text(where, table, key)
    if not folder:
        return None
    try:
        return (path.absolute().parent / Path(folder).expanduser()).resolve()
    except RuntimeError as error:  # a home or a symbolic link that leads nowhere
        raise UsageError(f"{where} has {key} {folder!r}, which cannot be followed: {error}") from None


def _base(where: str, table: Mapping[str, Any], known: Mapping[str, StackEntry]) -> StackEntry | None:
    name = _text(where, table, "base")
    if not name:
        return None
    if name not in known:
        raise UsageError(f"{where} has the base {name!r}, which is not there; {nearest(name, known)}")
    if known[name].kind not in ("here", "venv", "path"):
        raise UsageError(
            f"{where} has the base {name!r} of kind {known[name].kind}; a library is exchanged in a stack "
            "of kind here, venv or path"
        )
    return known[name]


def _check(where: str, entry: StackEntry) -> None:
    """What the keys of an entry must be together."""
    if entry.kind in ("cudart", "swap") and len(entry.requirements) != 1:
        raise UsageError(f"{where} needs exactly one requirement, {len(entry.requirements)} are named")
    if entry.kind == "cudart" and set(entry.declared) != {"cudart"}:
        raise UsageError(f"{where} needs declared = {{ cudart = VERSION }}")
    if entry.kind in ("native", "venv") and not entry.requirements:
        raise UsageError(f"{where} has no requirements; name what it is made of")
    if entry.kind == "swap":
        if entry.library not in SWAPPED:
            raise UsageError(f"{where} has library {entry.library!r}, expected one of {', '.join(SWAPPED)}")
        if entry.library not in entry.declared:
            raise UsageError(f"{where} does not declare the version of its {entry.library}")


def stack(name: str, path: Path | None = None) -> StackEntry:
    """The stack of that name; UsageError with the nearest name when there is none."""
    entries = load_stacks(path)
    if name not in entries:
        raise UsageError(f"there is no stack {name!r}; {nearest(name, entries)}")
    return entries[name]


def declared(entry: StackEntry) -> dict[str, str]:
    """Every version that a stack promises: a swap's own come before those of its base."""
    base = {} if entry.base is None else declared(entry.base)
    return {**base, **entry.declared}


def holds(entry: StackEntry, package: str) -> bool:
    """Whether cases that need `package` (torch, cupy, triton) have a meaning in this stack.

    What a stack does not declare counts as absent, whatever this machine's Python holds.
    """
    if entry.base is not None:
        return holds(entry.base, package)
    return entry.kind == "here" or package in entry.declared


def agrees(declared: str, seen: str) -> bool:
    """Whether a version is the declared one: 12.4 agrees with 12.4.127, 2.6.0 with 2.6.0+cu124."""
    return seen == declared or seen.startswith((f"{declared}.", f"{declared}+"))


def promises(entry: StackEntry, wanted: Mapping[str, str]) -> bool:
    """Whether a stack declares all these versions."""
    known = declared(entry)
    return all(agrees(version, known.get(name, "")) for name, version in wanted.items())


def sites(entry: StackEntry) -> tuple[Path, ...]:
    """The folders in which a stack's Python packages and its nvidia/PART/lib lie, first come first."""
    own = cache.folder(entry.name)
    if entry.base is not None:
        return (own, *sites(entry.base))
    if entry.kind == "venv":
        return tuple(sorted(own.glob("lib/python3*/site-packages")))
    if entry.kind == "path" and entry.folder is not None:
        return (entry.folder,)
    inside = entry.kind == "container" and os.environ.get(NAME_VARIABLE) == entry.name
    return tuple(Path(place) for place in sys.path) if entry.kind == "here" or inside else (own,)


def libraries(entry: StackEntry, pattern: str) -> Iterator[Path]:
    """The files of a stack that `pattern` names (libcudnn.so.*), in the order of its sites."""
    for site in sites(entry):
        yield from sorted(site.glob(f"nvidia/*/lib/{pattern}"))


def cached_library(entry: StackEntry, wheels: Path | None = None) -> Path:
    """The libcudart of a cudart stack. Raises as `unpacked`."""
    return next(unpacked(entry, wheels, cache.runtime_only).glob("libcudart.so.*"))


def unpacked(entry: StackEntry, wheels: Path | None, keep: cache.Keep) -> Path:
    """The folder of a stack that is one wheel: in the cache, else unpacked into it from `wheels`.

    Raises Unavailable, with the command that fetches it, when neither is there.
    """
    if found := cache.find(entry.name, entry.requirements):
        return found
    return cache.unpack(entry.name, entry.requirements, [_wheel(entry, wheels)], keep)


def _wheel(entry: StackEntry, wheels: Path | None) -> Path:
    requirement = entry.requirements[0]
    wheel = None if wheels is None else cache.find_wheel(requirement, wheels)
    if wheel is None:
        looked = "is not in the cache" if wheels is None else f"is neither in the cache nor in {wheels}"
        raise Unavailable(
            f"stack {entry.name} {looked} ({requirement}); "
            f"fetch it with `cuda-gains stacks create {entry.name}`"
        )
    return wheel
