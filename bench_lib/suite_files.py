"""Where the folder `benchmarks` lies: here, in the checkout of this package, or its lists as installed."""

from importlib import metadata
from pathlib import Path

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


def _installed() -> list[Path]:
    try:
        files = metadata.files(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:  # used from a checkout that was never installed
        return []
    lists = (Path(str(file.locate())) for file in files if file.parent.name == NAME)
    return list(dict.fromkeys(path.parent.resolve() for path in lists))
