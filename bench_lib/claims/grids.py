"""A benchmark file's syntax tree in, the values out that its parametrize marks write as literals.

What is computed stays unknown: a value can be called a mistake only where all values are known.
"""

import ast
import contextlib
from collections.abc import Mapping
from typing import Any, TypeGuard

from bench_lib.model import scalar_text

Function = ast.FunctionDef | ast.AsyncFunctionDef
Values = Mapping[str, frozenset[str]]  # parameter -> its values, as claims write them


def constants(tree: ast.Module) -> dict[str, Any]:
    """The names of a file that stand for one literal: assigned once, and no method or item of it used."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = [node.id for node in names if not isinstance(node.ctx, ast.Load)]
    touched = {
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Name)
    }
    found: dict[str, Any] = {}
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name)):
            continue
        if stored.count(target.id) == 1 and target.id not in touched:
            with contextlib.suppress(ValueError):
                found[target.id] = _evaluated(node.value, found)
    return found


def values(function: Function, known: Mapping[str, Any]) -> Values:
    """Of each parameter whose values all stand in one mark of the function: these values."""
    found: dict[str, frozenset[str]] = {}
    for mark in function.decorator_list:
        if _is_call(mark, "parametrize"):
            found.update(_of_mark(mark, known))
    return found


def _is_call(node: ast.expr, name: str) -> TypeGuard[ast.Call]:
    """Whether it is `something.name(...)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _of_mark(mark: ast.Call, known: Mapping[str, Any]) -> Values:
    if len(mark.args) != 2 or any(one.arg not in ("ids", "scope") for one in mark.keywords):
        return {}  # by keyword; or `indirect`, of which a fixture makes other values
    try:
        given, rows = (_evaluated(node, known) for node in mark.args)
    except ValueError:
        return {}
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else given
    if not isinstance(rows, list) or not rows:
        return {}
    if len(names) > 1 and not all(isinstance(row, list) and len(row) == len(names) for row in rows):
        return {}
    columns = zip(*rows, strict=True) if len(names) > 1 else [rows]
    return {
        name.removesuffix("_"): frozenset(map(scalar_text, column))
        for name, column in zip(names, columns, strict=True)
    }


def _evaluated(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A literal's value, tuples as lists; ValueError for anything that is computed."""
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_evaluated(one, known) for one in node.elts]
    if _is_call(node, "param"):
        row = [_evaluated(one, known) for one in node.args]
        return row[0] if len(row) == 1 else row
    return ast.literal_eval(node)
