"""NVTX ranges by the package `nvtx`, else by torch: what a profiler then shows is named by case."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from bench_lib import extras
from bench_lib.errors import UsageError

DOMAIN = "cuda-gains"


@dataclass(frozen=True)
class Ranges:
    """Opens and closes ranges; `maker` is the library and its version."""

    maker: str
    push: Callable[[str], object]
    pop: Callable[[], object]

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        """A range of that name around what is done inside, however it ends."""
        self.push(name)
        try:
            yield
        finally:
            self.pop()


NONE = Ranges("", lambda _name: None, lambda: None)  # without --nvtx


def find() -> Ranges:
    """The package nvtx where it is installed, else a torch with CUDA; UsageError where there is neither."""
    found = _of_package() or _of_torch()
    if found is None:
        raise UsageError(
            f"--nvtx found neither the package nvtx nor a torch with CUDA; {extras.cure('observe')}"
        )
    return found


def _of_package() -> Ranges | None:
    """Ranges of a domain of their own, their names registered."""
    try:
        nvtx: Any = importlib.import_module("nvtx")
    except ImportError:
        return None
    return Ranges(
        f"nvtx {metadata.version('nvtx')}",
        lambda name: nvtx.push_range(message=name, domain=DOMAIN),
        lambda: nvtx.pop_range(domain=DOMAIN),
    )


def _of_torch() -> Ranges | None:
    """Ranges of the default domain; a torch without CUDA has none."""
    try:
        torch: Any = importlib.import_module("torch")
        nvtx = torch.cuda.nvtx
        nvtx.range_push(DOMAIN)
        nvtx.range_pop()
    except (ImportError, RuntimeError):
        return None
    return Ranges(f"torch {torch.__version__}", nvtx.range_push, nvtx.range_pop)
