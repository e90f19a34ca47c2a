"""Benchmark files in, the ops and possible parameters of their families out: read, nothing is imported."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench_lib.stacking import families

_PREFIXES = ("bench_", "test_")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Names:
    """The ops of a family, and the names that a parameter of it can have."""

    ops: frozenset[str]
    parameters: frozenset[str]


def of_families(folders: Iterable[Path]) -> dict[str, Names]:
    """By family what its files in these folders declare; a family with a file that is no Python is left out.

    A parameter has to be an argument of a case or of a fixture, which may lie in the folder's
    conftest.py: of these names some are fixtures, but no parameter has another name.
    """
    found: dict[str, Names] = {}
    broken = set()
    for folder in dict.fromkeys(folders):
        shared = _functions(folder / "conftest.py") or ()
        for path, family in families.declared(folder).items():
            own = _functions(path)
            if own is None:
                broken.add(family)
                continue
            known = found.get(family, Names(frozenset(), frozenset()))
            found[family] = Names(known.ops | _ops(own), known.parameters | _arguments((*own, *shared)))
    return {family: names for family, names in found.items() if family not in broken}


@cache
def _functions(path: Path) -> tuple[_Function, ...] | None:
    """Every function of a file; None where it cannot be read as Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    return tuple(node for node in ast.walk(tree) if isinstance(node, _Function))


def _ops(functions: Iterable[_Function]) -> frozenset[str]:
    return frozenset(
        one.name.removeprefix(prefix)
        for one in functions
        for prefix in _PREFIXES
        if one.name.startswith(prefix)
    )


def _arguments(functions: Iterable[_Function]) -> frozenset[str]:
    """Their names without an underscore at the end, as cases have them."""
    return frozenset(name.removesuffix("_") for one in functions for name in _names(one.args))


def _names(arguments: ast.arguments) -> Iterator[str]:
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield one.arg
