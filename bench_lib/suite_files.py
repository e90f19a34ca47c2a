"""The folder `benchmarks`, here, in the checkout of this package, or its lists as installed; a list in it."""

import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from bench_lib.errors import UsageError
from bench_lib.extras import DISTRIBUTION

NAME = "benchmarks"


def folders() -> list[Path]:
    """Where benchmark files, claims.toml and stacks.toml may lie, the first to be asked first.

    The current folder comes first, so that a project's own lists win. An installation holds the two
    lists alone: they are data files of the wheel, wherever its installer put them.
    """
    return [Path.cwd() / NAME, Path(__file__).parents[1] / NAME, *_installed()]


def find(name: str) -> Path | None:
    """The file of this name in the first of `folders` that holds one."""
    return next((folder / name for folder in folders() if (folder / name).is_file()), None)


def content(path: Path, what: str) -> dict[str, Any]:
    """What a TOML file holds; `what` file it is. Raises UsageError where it cannot be read or is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors put a mark first
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; name another {what} file") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def _installed() -> list[Path]:
    try:
        files = metadata.files(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:  # used from a checkout that was never installed
        return []
    lists = (Path(str(file.locate())) for file in files if file.parent.name == NAME)
    return list(dict.fromkeys(path.parent.resolve() for path in lists))
