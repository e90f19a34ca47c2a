"""Results and claims in, a verdict a claim out: the one function that commands and pages call."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_lib.claims import checks, combining, findings, names, reading
from bench_lib.claims.known import Known
from bench_lib.claims.measured import Arms, Measured
from bench_lib.claims.words import Claim, Judged, Kind, Verdict
from bench_lib.comparing import sides
from bench_lib.comparing.store import Results, opened
from bench_lib.stacking import stacks


@dataclass(frozen=True)
class Verdicts:
    """Every claim judged, on which campaigns, and what of them could not be read."""

    claims: tuple[Judged, ...]
    campaigns: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    def counts(self) -> dict[Verdict, int]:
        """Claims by verdict."""
        return {verdict: sum(one.verdict is verdict for one in self.claims) for verdict in Verdict}


def judged(
    results: Path, campaigns: Sequence[str] | None = None, path: Path | None = None
) -> tuple[Judged, ...]:
    """Every claim of a claims file judged on some campaigns under `results` (all of them by default).

    Without `path` the claims are those of claims.toml as `suite_files` finds it. Raises UsageError for a
    claims file that is wrong in any way and for a campaign that is not there.
    """
    return verdicts(results, campaigns, path).claims


def verdicts(
    results: Path | Results | Arms,
    campaigns: Sequence[str] | None = None,
    path: Path | None = None,
    benchmarks: Sequence[Path] = (),
) -> Verdicts:
    """As `judged`, with the campaigns that were read and what was left out of them.

    `results` as `Arms` keeps what was read and compared for the next call.
    `benchmarks` are folders of benchmark files of families of your own: what their cases can be.
    """
    read = reading.read(path)
    arms = results if isinstance(results, Arms) else Arms(opened(results))
    folder = arms.results.folder
    there = sides.campaigns(folder)
    for name in campaigns or ():
        if name not in there:
            raise sides.unknown("campaign", name, there, f" under {folder}")
    chosen = there if campaigns is None else list(dict.fromkeys(campaigns))
    measured = Measured(arms, chosen)
    known = names.known(read, measured, set(chosen) == set(there), benchmarks)
    strange = names.unseen(read, measured, known)
    world = checks.World(measured, stacks.load_stacks())
    claims = tuple(_judged(claim, world, known, strange.get(claim.id, "")) for claim in read.claims)
    return Verdicts(claims, tuple(chosen), tuple(dict.fromkeys(measured.left_out)))


def _judged(claim: Claim, world: checks.World, known: Known, strange: str) -> Judged:
    takes = combining.takes(claim, known.planned, world.entries, known.folder(claim.families))
    if claim.kind is Kind.FACT:
        return checks.judged(claim, world, "; ".join(filter(None, [strange, takes])))
    found = findings.findings(claim, world.measured)
    why = strange or ("" if found else findings.unmeasured(claim, world.measured))
    return combining.combined(claim, found, "; ".join(filter(None, [why, takes])), why)
