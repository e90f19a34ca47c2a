"""Benchmark files in, the ops of their families out, with their possible parameters: nothing is imported."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bench_lib.claims import grids
from bench_lib.stacking import families


@dataclass(frozen=True)
class Names:
    """The ops of a family, the names that a parameter of it can have, and the values that are known.

    `values` holds by op the parameters whose values are known, all of them; a parameter of `shared` may
    have any value in any op.
    """

    ops: frozenset[str]
    parameters: frozenset[str]
    values: Mapping[str, grids.Values] = field(default_factory=dict)
    own: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by op the arguments of its function
    shared: frozenset[str] = frozenset()  # names and arguments of fixtures and hooks

    def possible(self, op: str, parameter: str) -> frozenset[str] | None:
        """The values that a parameter can have in cases of an op; None where any is possible."""
        if parameter in self.values.get(op, {}):
            return self.values[op][parameter]
        unused = parameter not in self.own.get(op, frozenset()) and parameter not in self.shared
        return frozenset() if unused else None


def of_families(folders: Iterable[Path]) -> dict[str, Names]:
    """By family what its files in these folders declare; a family with a file that is no Python is left out.

    A parameter has to be an argument of a case or of a fixture, which may lie in a conftest.py of the
    folder or above: of these names some are fixtures, but no parameter has another name.
    """
    found: dict[str, Names] = {}
    broken = set()
    for folder in dict.fromkeys(folders):
        for path, family in families.named(folder).items():
            if (names := _names_of(path)) is None:
                broken.add(family)
            else:
                found[family] = _joined(found[family], names) if family in found else names
    return {family: names for family, names in found.items() if family not in broken}


@cache
def _names_of(path: Path) -> Names | None:
    """What a benchmark file declares; None where it is no Python."""
    if (tree := _tree(path)) is None:
        return None
    above = (_tree(parent / "conftest.py") for parent in path.absolute().parents)
    return _names(tree, [one for one in above if one is not None])


@cache
def _tree(path: Path) -> ast.Module | None:
    """A file as Python; None where it cannot be read so."""
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _names(tree: ast.Module, above: Iterable[ast.Module]) -> Names:
    known, functions = grids.constants(tree), list(_functions(tree))
    cases = {name: one for one in functions if (name := _op(one))}
    others = [one for one in functions if not _op(one)] + [one for tree in above for one in _functions(tree)]
    shared = frozenset(name for one in others for name in (one.name, *_arguments(one)))
    own = {op: frozenset(_arguments(one)) for op, one in cases.items()}
    arguments = frozenset(name for one in (*functions, *others) for name in _arguments(one))
    values = {op: grids.values(one, known) for op, one in cases.items()}
    return Names(frozenset(own), arguments, values, own, shared)


def _joined(a: Names, b: Names) -> Names:
    """A family of two files, or of one that lies in two folders: what is possible in either."""
    values = {**a.values, **b.values}
    for op in a.ops & b.ops:
        known = {name: (a.possible(op, name), b.possible(op, name)) for name in a.parameters | b.parameters}
        values[op] = {
            name: mine | yours
            for name, (mine, yours) in known.items()
            if mine is not None and yours is not None
        }
    own = {op: a.own.get(op, frozenset()) | b.own.get(op, frozenset()) for op in a.ops | b.ops}
    return Names(a.ops | b.ops, a.parameters | b.parameters, values, own, a.shared | b.shared)


def _functions(tree: ast.Module) -> Iterator[grids.Function]:
    return (node for node in ast.walk(tree) if isinstance(node, grids.Function))


def _op(function: grids.Function) -> str:
    """The op that a function measures, "" for a function that is no case."""
    op = families.bare(function.name)
    return "" if op == function.name else op


def _arguments(function: grids.Function) -> Iterator[str]:
    """Their names without an underscore at the end, as cases have them."""
    of = function.args
    for one in (*of.posonlyargs, *of.args, *of.kwonlyargs):
        yield one.arg.removesuffix("_")
