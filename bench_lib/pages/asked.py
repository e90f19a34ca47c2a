"""What a command line asked for in, comparisons, bridges and calibrations out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench_lib.comparing import ahead, calibrate, compare, sides, store
from bench_lib.comparing.bridge import Bridge, bridge
from bench_lib.comparing.calibrate import Calibration
from bench_lib.comparing.changes import Comparison
from bench_lib.comparing.replicates import params_of
from bench_lib.comparing.store import Data, Results, opened
from bench_lib.errors import UsageError
from bench_lib.layout import LOCAL
from bench_lib.model import NULL_SUFFIX
from bench_lib.places import reading
from bench_lib.units import names_text

_NAMES = 5


def folder(
    results: str,
    names: Sequence[str],
    campaign: str | None,
    contrast: str | None = None,
    check: str | None = None,
) -> Path:
    """The folder to read; of a place elsewhere, with the campaigns that are asked for fetched into it.

    A side is a campaign, or a stack or an arm: where it may be either, it is fetched if it is there.
    Raises UsageError for a campaign that is not there, and Unreachable.
    """
    sides_named = {name for name in names if not name.endswith(".json")}
    certain = {name.rpartition("/")[0] for name in sides_named if "/" in name}
    perhaps = {name for name in sides_named if "/" not in name}
    certain |= {name for name in (campaign, check) if name}
    perhaps |= {LOCAL} if contrast and not campaign else set()
    if not (campaign or contrast):
        certain, perhaps = certain | perhaps, set()
    return reading.folder(results, certain, perhaps)


def compared(
    names: Sequence[str], campaign: str | None, results: Path | Results, contrast: str | None
) -> tuple[Comparison, Data]:
    """Two sides, or two values of a parameter inside one stack, compared; and the data of both.

    Raises UsageError for another number of sides, or a contrast that is not P=X:Y.
    """
    if contrast is not None:
        if len(names) > 1:
            raise UsageError(
                f"--contrast compares inside one stack, but {len(names)} sides are named; name one or none"
            )
        results = opened(results)
        side, found = _contrasted(names[0] if names else None, campaign, results, contrast)
        return ahead.told(found, [side], results.folder), side.data
    if len(names) != 2:
        raise UsageError(
            f"compare needs two sides, {len(names)} given: name a baseline and a candidate "
            "(stacks of --campaign, CAMPAIGN/STACK, or --benchmark-json files), more for a bridge, or use "
            "--contrast"
        )
    a, b = sides.pair(names[0], names[1], campaign, results)
    return ahead.told(compare.compare(a, b), [a, b], opened(results).folder), sides.joined(a, b)


def _contrasted(
    name: str | None, campaign: str | None, results: Results, contrast: str
) -> tuple[sides.Side, Comparison]:
    """The side and its contrast; where no campaign is named, an error tells which one was read."""
    parameter, baseline, candidate = parse_contrast(contrast)
    try:
        side = sides.whole_stack(name, campaign or LOCAL, results)
        return side, compare.contrast(side, parameter, baseline, candidate)
    except UsageError as error:
        known = sides.campaigns(results.folder)
        if campaign or (name and ("/" in name or name.endswith(".json") or name in known)):
            raise
        raise UsageError(f"{error}{_not_named(parameter, results.folder)}") from None


def _not_named(parameter: str, results: Path) -> str:
    """That `local` was read by default, and which campaigns hold the parameter."""
    there = sides.campaigns(results)
    holding = [
        name
        for name in there
        if name != LOCAL and any(parameter in params_of(text) for text in store.params(results, name))
    ]
    default = f"; {LOCAL!r} is the default, give --campaign NAME for another" if LOCAL in there else ""
    found = f"; {parameter!r} is in {names_text(holding, _NAMES)}" if holding else ""
    return default + found


def bridged(
    names: Sequence[str], campaign: str | None, results: Path | Results, check: str | None
) -> tuple[Bridge, Data]:
    """Three stacks or more as a bridge, and the data of both its ends.

    `check` is another campaign that holds the ends.
    """
    results = opened(results)
    found = sides.several(names, campaign, results)
    ends = [str(side.data.runs["arm"].iloc[0]) for side in (found[0], found[-1])]
    apart = None if check is None else sides.pair(ends[0], ends[1], check, results)
    made, both = bridge(found, apart), [found[0], found[-1]]
    return replace(made, whole=ahead.told(made.whole, both, results.folder)), sides.joined(*both)


def calibrated(stack: str | None, campaign: str, results: Path, contrast: str | None) -> Calibration:
    """A campaign's baseline against its repeat, or two values of a parameter that are the same thing."""
    if contrast is not None:
        parameter, baseline, repeat = parse_contrast(contrast)
        if not repeat.startswith(f"{baseline}#"):
            raise UsageError(
                f"{baseline!r} and {repeat!r} are two things, and calibrating compares one with itself; name "
                f"{baseline}:{baseline}{NULL_SUFFIX}"
            )
        side = sides.whole_stack(stack, campaign, results)
        found = calibrate.calibrate(compare.contrast(side, parameter, baseline, repeat))
        return replace(found, seconds_each=ahead.seconds_each(found.pairing, [side], results))
    a, b, runs = sides.repeated(stack, campaign, results)
    found = calibrate.calibrate(compare.compare(a, b), runs)
    return replace(found, seconds_each=ahead.seconds_each(found.pairing, [a, b], results))


def parse_contrast(text: str) -> tuple[str, str, str]:
    """Parameter, baseline and candidate of `PARAMETER=BASELINE:CANDIDATE`; else UsageError."""
    parameter, equals, values = text.partition("=")
    baseline, colon, candidate = values.partition(":")
    if not (parameter and equals and baseline and colon and candidate):
        raise UsageError(
            f"--contrast {text!r} is not PARAMETER=BASELINE:CANDIDATE, such as runtime=11.8:12.4"
        )
    return parameter, baseline, candidate
