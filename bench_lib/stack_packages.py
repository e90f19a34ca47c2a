"""Packages of the stack that is measured, imported here; a sentence where they cannot be."""

import importlib
from typing import TYPE_CHECKING, Any

from bench_lib.errors import NotApplicable, Unavailable
from bench_lib.stacking import stacks

if TYPE_CHECKING:
    from bench_lib.stacking.stacks import StackEntry


def package_of(stack: "StackEntry", package: str, called: str = "") -> Any:
    """A package; NotApplicable where the stack holds none, Unavailable where it does not import."""
    called = called or package
    if not stacks.holds(stack, package):
        raise NotApplicable(f"stack {stack.name} holds no {called}")
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise Unavailable(f"{called} does not import here: {error}") from None


def need_distributed(stack: "StackEntry", backend: str = "") -> None:
    """Import torch, so that the run's identity names it; it brings no CUDA up here.

    Raises as `package_of`, and Unavailable where it cannot work over ranks, or not with that backend.
    """
    package_of(stack, "torch")
    dist = importlib.import_module("torch.distributed")
    if not dist.is_available() or not getattr(dist, f"is_{backend}_available", lambda: True)():
        missing = f"torch.distributed's {backend}" if backend else "torch.distributed"
        raise Unavailable(f"this torch is built without {missing}")


def resnet50() -> Any:
    """A ResNet-50, its weights drawn from torch's seed; Unavailable without torchvision."""
    try:
        models = importlib.import_module("torchvision.models")
    except ImportError as error:
        raise Unavailable(
            f"torchvision does not import here: {error}; install the one of this torch"
        ) from None
    return models.resnet50(weights=None)
