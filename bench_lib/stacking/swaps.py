"""Stacks of kind `swap`: whether a library may take another's place in a stack."""

from collections.abc import Iterable
from pathlib import Path

from bench_lib.errors import UsageError
from bench_lib.identity import elf
from bench_lib.stacking import environments, stacks
from bench_lib.stacking.stacks import StackEntry
from bench_lib.units import names_text

_NAMED = 3  # of the symbols that are missing


def check(entry: StackEntry) -> None:
    """Refuse a swap that cannot work: another major, or a symbol that the base asks for is missing.

    Asked for is what torch's libraries, and NVIDIA's others, leave undefined and the old library
    defines. Raises UsageError; the libraries are read, not loaded.
    """
    assert entry.base is not None
    new, old = environments.exchanged(entry), _replaced(entry, entry.base)
    soname, wanted = elf.symbols(new).soname, elf.symbols(old).soname
    if soname != wanted:
        raise UsageError(
            f"stack {entry.name}: {new.name} calls itself {soname}, but stack {entry.base.name} asks for "
            f"{wanted}; choose a {entry.library} of the same major for the same CUDA major"
        )
    offered, before = _offered(entry.library, new.parent), _offered(entry.library, old.parent)
    for user in _users(entry, entry.base):
        missing = sorted((elf.symbols(user).undefined & before) - offered)
        if missing:
            raise UsageError(
                f"stack {entry.name}: {user.name} asks for {names_text(missing, _NAMED)}, which "
                f"{', '.join(entry.requirements)} does not have; choose a version that does"
            )


def _replaced(entry: StackEntry, base: StackEntry) -> Path:
    found = next(stacks.libraries(base, f"lib{entry.library}.so.*"), None)
    if found is None:
        places = ", ".join(str(site) for site in stacks.sites(base)) or "an environment that is not there yet"
        raise UsageError(
            f"stack {entry.name} exchanges {entry.library}, but stack {base.name} has none in "
            f"nvidia/*/lib below {places}; choose a base that pip installed it into"
        )
    return found


def _offered(library: str, folder: Path) -> frozenset[str]:
    """What a library and its companions (cuBLASLt, the parts of cuDNN) in one folder define."""
    found = folder.glob(f"lib{library}*.so*")
    return frozenset().union(*(elf.symbols(path).defined for path in found))


def _users(entry: StackEntry, base: StackEntry) -> Iterable[Path]:
    """Torch's libraries first: what they ask for is what a user knows."""
    for site in stacks.sites(base):
        yield from sorted(site.glob("torch/lib/lib*.so*"))
    own = {path.name for path in environments.exchanged(entry).parent.glob("lib*.so*")}
    yield from (path for path in stacks.libraries(base, "lib*.so*") if path.name not in own)
