"""A Python package that is missing in, the extra of this suite that brings it out."""

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "cuda-gains"


def cure(extra: str, more: str = "") -> str:
    """What installs an extra and `more` packages, in words: from a checkout, else for the wheel."""
    also = f" {more}" if more else ""
    if (Path(__file__).parents[1] / "pyproject.toml").is_file():
        return f"`pip install -e '.[{extra}]'{also}` in the suite's folder"
    return f"`pip install '{DISTRIBUTION}[{extra}]'{also}`"


def of(module: str) -> str:
    """The first extra that requires the package of a module; "" where none does, or nothing is installed."""
    # An image asks for a stack's pins before anything is installed.
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    package = canonicalize_name(module.partition(".")[0])
    try:
        lines = metadata.requires(DISTRIBUTION) or ()
        extras = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ()
    except metadata.PackageNotFoundError:  # a checkout that was never installed
        return ""
    needs = [need for need in map(Requirement, lines) if canonicalize_name(need.name) == package]
    return next((extra for extra in extras for need in needs if _only_with(need, extra)), "")


def _only_with(need: "Requirement", extra: str) -> bool:
    marker = need.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})
