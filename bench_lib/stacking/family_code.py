"""The code of benchmark files as short digests: by them runs of other code are told apart.

What counts is the family's own file. What it imports does not: of the suite a run stores version and commit.
"""

import ast
import hashlib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench_lib.observing.settings import CODE

_DIGITS = 12

Code = Mapping[str, frozenset[str]]  # family -> the digests of its files, of which there is one as a rule


def of_files(files: Mapping[str, Iterable[Path]]) -> Code:
    """The code of each family in its files; a family with a file that cannot be parsed here is left out."""
    found = {family: frozenset(map(digest, paths)) for family, paths in files.items()}
    return {family: digests for family, digests in found.items() if "" not in digests}


def stored(code: Code) -> dict[str, str]:
    """The code as the settings of a run hold it."""
    return {f"{CODE}{family}": "+".join(sorted(digests)) for family, digests in code.items()}


def of_settings(settings: Mapping[str, str]) -> Code:
    """The code that the settings of a run hold; nothing of a run before there was any."""
    return {
        key.removeprefix(CODE): frozenset(str(value).split("+"))
        for key, value in settings.items()
        if key.startswith(CODE)
    }


def digest(path: Path) -> str:
    """Twelve hex digits of what a Python file does; "" where it cannot be read or is none.

    Of the tree and not of the bytes: a comment, a docstring or a formatter moves no number, and must not
    end a campaign.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the file's own text; who imports it hears of them
            tree = ast.parse(path.read_bytes())
        return hashlib.sha256(_written(tree).encode()).hexdigest()[:_DIGITS]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ""


def _written(node: object) -> str:
    """A tree as text. Not `ast.dump`: each Python has another one, and the stacks of a campaign have theirs.

    Fields that are empty are left out, so that one that a later Python adds to every function changes
    nothing; so are empty texts in an f-string, which Python 3.12 alone has.
    """
    if isinstance(node, list):
        return f"[{','.join(_written(item) for item in node if not _says_nothing(item))}]"
    if isinstance(node, ast.JoinedStr):
        return f"JoinedStr{[_written(part) for part in node.values if getattr(part, 'value', None) != '']}"
    if not isinstance(node, ast.AST):
        return ascii(node)
    fields = [(name, value) for name, value in ast.iter_fields(node) if value is not None and value != []]
    return f"{type(node).__name__}({','.join(f'{name}={_written(value)}' for name, value in fields)})"


def _says_nothing(node: object) -> bool:
    """Whether a statement is a text alone: a docstring, wherever it stands."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
