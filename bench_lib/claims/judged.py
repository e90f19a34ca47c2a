"""Results and claims in, a verdict a claim out: the one function that commands and pages call."""

from collections.abc import Sequence
from pathlib import Path

from bench_lib.claims.words import Judged


def judged(
    results: Path, campaigns: Sequence[str] | None = None, path: Path | None = None
) -> tuple[Judged, ...]:
    """Every claim of a claims file judged on some campaigns under `results` (all of them by default).

    Without `path` the claims are benchmarks/claims.toml of the current folder, else of the checkout that
    this package lies in. Raises UsageError for a claims file that is wrong in any way and for a campaign
    that is not there.
    """
    raise NotImplementedError
