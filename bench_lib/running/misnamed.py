"""Functions that ask for `bench` and are named almost as cases are: pytest passes them over in silence."""

import difflib
import inspect
from fnmatch import fnmatch

import pytest

_PREFIX = "bench_"
_CUTOFF = 0.6  # of difflib's similarity: "bnech", "benhc", "bench" and "benchmark" are near, "record" is not


class Misnamed:
    """Names them once all is collected."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}  # where -> what

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, name: str, obj: object) -> None:
        """Note a function that is near; it answers nothing, so that pytest goes on."""
        if not isinstance(collector, pytest.Module) or not inspect.isfunction(obj):
            return
        asks = "bench" in inspect.signature(obj).parameters and obj.__module__ == collector.obj.__name__
        if asks and not _collected(name, collector.config) and _near(name):
            self._found[f"{collector.nodeid}::{name}"] = name

    def pytest_report_collectionfinish(self) -> list[str]:
        """A line each, beside how many were collected."""
        return [
            f"cuda-gains: {where} is no case: its name begins with {name.partition('_')[0]!r}, expected "
            f"{_PREFIX!r}; rename it, or begin it with '_' if it is a helper"
            for where, name in self._found.items()
        ]


def _near(name: str) -> bool:
    first = name.partition("_")[0].lower()
    return bool(difflib.get_close_matches(first, [_PREFIX[:-1]], cutoff=_CUTOFF))


def _collected(name: str, config: pytest.Config) -> bool:
    """By pytest's own rule: a setting is a prefix, or a pattern."""
    return any(name.startswith(one) or fnmatch(name, one) for one in config.getini("python_functions"))
