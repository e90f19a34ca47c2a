"""A claims file in, claims out; strict: what is not known, missing or of a wrong type is an error by name.

docs/claims.md describes the format; a user's own claim is one entry of ten lines.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_lib import suite_files
from bench_lib.claims import checks
from bench_lib.claims.entry import Entry
from bench_lib.claims.words import (
    AT_MOST,
    OPEN,
    Check,
    Claim,
    Contrast,
    Effect,
    Kind,
    Scope,
    Verdict,
    is_time,
)
from bench_lib.errors import UsageError, nearest

FILE = "claims.toml"
NEEDS = (
    *("no GPU", "1 GPU", "1 Hopper GPU", "2 GPUs", "8 GPUs"),
    *("two drivers", "Docker", "beyond a benchmark"),
)
LIVES_IN = ("", "driver", "GPU", "PyTorch", "cuDNN", "NCCL")
RECORD_SAYS = (*map(str, (Verdict.SUPPORTED, Verdict.REFUTED, Verdict.MIXED)), OPEN)
TOLERANCE = 0.02

_KEYS = (
    *("id", "claim", "source", "figure", "kind", "effect", "value", "range", "tolerance", "unit", "cost"),
    *("cases", "baseline", "candidate", "contrast", "inside", "groups", "needs", "lives_in", "note"),
    *("check", "record", "record_says"),
)
_TOP = ("planned", "sources", "claim")


@dataclass(frozen=True)
class Claims:
    """What a claims file holds: the claims in its order, and families that no benchmark file has yet."""

    claims: tuple[Claim, ...]
    planned: tuple[str, ...] = ()


def read(path: Path | None = None) -> Claims:
    """The claims of a file, by default of benchmarks/claims.toml here or in the checkout.

    Raises UsageError, naming the file and the entry, for anything that is wrong in it.
    """
    found = path or _default_file()
    content = suite_files.content(found, "claims")
    for key in content:
        if key not in _TOP:
            raise UsageError(f"{found} has the unknown key {key!r}; {nearest(key, _TOP)}")
    top = Entry(str(found), content)
    sources = {name: str(table["title"]) for name, table in _sources(found, content).items()}
    tables = content.get("claim", [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise UsageError(f"{found}: 'claim' is not a list of claims; begin each with [[claim]]")
    claims = tuple(_claim(found, number, table, sources) for number, table in enumerate(tables, 1))
    _unique(found, [claim.id for claim in claims])
    if path:
        _not_published(path, claims)
    return Claims(claims, top.texts("planned"))


def _not_published(path: Path, claims: Sequence[Claim]) -> None:
    """Raise where a file of one's own gives the id of a published claim to another one; a copy may stay."""
    published = suite_files.find(FILE)
    if published is None or published.samefile(path):
        return
    known = {claim.id: claim for claim in read().claims}
    for claim in claims:
        if claim != known.get(claim.id, claim):
            raise UsageError(
                f"{path}: claim {claim.id!r} has the id of another claim in {published}; give it its own"
            )


def _default_file() -> Path:
    if found := suite_files.find(FILE):
        return found
    raise UsageError(f"there is no {Path(suite_files.NAME, FILE)} here; name a claims file with --claims")


def _sources(path: Path, content: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    sources = content.get("sources", {})
    good = isinstance(sources, dict) and all(
        isinstance(one, dict) and one.keys() == {"title"} and isinstance(one["title"], str)
        for one in sources.values()
    )
    if not good:
        raise UsageError(f'{path}: a source is a table with its title: [sources.slides] title = "..."')
    return dict(sources)


def _claim(path: Path, number: int, table: Mapping[str, Any], sources: Mapping[str, str]) -> Claim:
    name = table.get("id")
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"{path}: claim number {number} has the id {name!r}, expected a name as text")
    entry = Entry(f"{path}: claim {name!r}", table)
    for key in table:
        if key not in _KEYS:
            raise entry.error(f"has the unknown key {key!r}; {nearest(key, _KEYS)}")
    said = entry.one_of("kind", [*map(str, Kind), AT_MOST])
    kind = Kind.UP_TO if said == AT_MOST else Kind(said)
    effect = Effect(entry.one_of("effect", [str(effect) for effect in Effect], Effect.LESS))
    unit = entry.text("unit", "seconds")
    low, high = _bound(entry, kind)
    source = entry.needed("source")
    claim = Claim(
        id=name,
        text=entry.needed("claim"),
        source=sources.get(source, source),
        figure=entry.text("figure"),
        kind=kind,
        effect=effect,
        low=low,
        high=high,
        tolerance=entry.number("tolerance", TOLERANCE, least=0.0),
        unit=unit,
        cost=_cost(entry, kind, said == AT_MOST, effect is Effect.VALUE and is_time(unit)),
        cases=tuple(_scope(entry, one) for one in entry.tables("cases")),
        baseline=entry.versions("baseline"),
        candidate=entry.versions("candidate"),
        contrasts=tuple(_contrast(entry, text) for text in entry.texts("contrast")),
        inside=entry.versions("inside"),
        groups=entry.texts("groups"),
        needs=entry.one_of("needs", NEEDS, "1 GPU"),
        lives_in=entry.one_of("lives_in", LIVES_IN, ""),
        note=entry.text("note"),
        checks=tuple(_check(entry, one) for one in entry.tables("check")),
        record=entry.text("record"),
        record_says=entry.one_of("record_says", RECORD_SAYS, OPEN),
    )
    _whole(entry, claim)
    return claim


def _cost(entry: Entry, kind: Kind, at_most: bool, a_time: bool) -> bool:
    """Whether more than claimed is worse: so of `at most`, and unless said of the length of a time."""
    cost = entry.flag("cost", at_most or (a_time and kind in (Kind.UP_TO, Kind.ABOUT, Kind.RANGE)))
    if at_most and not cost:
        raise entry.error(f"has kind = {AT_MOST!r} and cost = false; leave one of them out")
    return cost


def _bound(entry: Entry, kind: Kind) -> tuple[float | None, float | None]:
    if kind is Kind.RANGE:
        low, high = entry.pair("range")
        return low, high
    if kind in (Kind.EXISTS, Kind.FACT):
        entry.without("value", "range", because=f"kind {str(kind)!r} has no number")
        return None, None
    entry.without("range", because=f"kind {str(kind)!r} has one number, 'value'")
    value = entry.number("value")
    return (None if kind is Kind.UP_TO else value), (None if kind is Kind.AT_LEAST else value)


def _scope(entry: Entry, table: Mapping[str, Any]) -> Scope:
    family = table.get("family")
    if not isinstance(family, str) or not family:
        raise entry.error(f"selects cases with family {family!r}, expected the name of a family")
    wanted = {str(key): _globs(entry, key, value) for key, value in table.items() if key != "family"}
    op = wanted.pop("op", ("*",))
    if len(op) != 1:
        raise entry.error("selects several ops at once; write one table of cases for each")
    return Scope(family, op[0], wanted)


def _globs(entry: Entry, key: str, value: Any) -> tuple[str, ...]:
    """Values of a parameter as globs, written as cases write them: true, 64, fp32."""
    listed = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(one, str | int | float) for one in listed):
        raise entry.error(f"selects cases by {key!r} = {value!r}, expected text, a number or a list of them")
    return tuple(str(one).lower() if isinstance(one, bool) else str(one) for one in listed)


def _contrast(entry: Entry, text: str) -> Contrast:
    parameter, equals, values = text.partition("=")
    baseline, colon, candidate = values.partition(":")
    if not (parameter and equals and baseline and colon and candidate) or baseline == candidate:
        raise entry.error(
            f"has the contrast {text!r}, expected PARAMETER=BASELINE:CANDIDATE, "
            "such as execution=eager:compiled"
        )
    return Contrast(parameter, baseline, candidate)


def _check(entry: Entry, table: Mapping[str, Any]) -> Check:
    given = Entry(entry.where, {"check": table}).versions("check")
    check = Check(given.pop("look", ""), given)
    if problem := checks.wrong(check):
        raise entry.error(problem)
    return check


def _whole(entry: Entry, claim: Claim) -> None:
    """What the keys of a claim must be together."""
    compared = bool(claim.baseline or claim.candidate or claim.contrasts)
    if claim.kind is Kind.FACT:
        if not (claim.checks or claim.record or claim.note):
            raise entry.error("is a fact without a check, a record or a note; say how it could be known")
        entry.without("baseline", "candidate", "contrast", because="a fact compares nothing")
        return
    if claim.checks:
        raise entry.error("has a check, which only a claim of kind 'fact' has")
    if not claim.cases:
        raise entry.error('selects no cases; write cases = [{ family = "launch", metric = "submit" }]')
    if bool(claim.baseline) != bool(claim.candidate):
        raise entry.error("names one side of stacks; name both, baseline and candidate")
    if claim.effect is Effect.VALUE and (compared or claim.kind is Kind.EXISTS):
        raise entry.error("is about a value itself, which needs a number and no sides")
    if claim.effect is not Effect.VALUE and not compared:
        raise entry.error("has no sides; name baseline and candidate, or a contrast")
    if claim.inside and not (claim.contrasts or claim.effect is Effect.VALUE):
        raise entry.error(
            "has 'inside', which narrows a contrast or a value; say it in baseline and candidate"
        )
    if claim.cost and claim.kind in (Kind.AT_LEAST, Kind.EXISTS):
        raise entry.error(f"is a cost of kind {str(claim.kind)!r}; a cost is 'up to', 'about' or a range")
    _possible(entry, claim)


def _possible(entry: Entry, claim: Claim) -> None:
    """Whether the bound can be a share (or a value) at all."""
    for number in (claim.low, claim.high):
        if number is None:
            continue
        if claim.effect is Effect.VALUE and number <= 0:
            raise entry.error(f"has the value {number:g}, expected one above 0")
        if claim.effect is Effect.LESS and not -10 < number < 1:
            raise entry.error(f"has {number:g} less, expected a share below 1: 0.30 is 30 %")
        if claim.effect in (Effect.MORE, Effect.SPEED) and not -1 < number < math.inf:
            raise entry.error(f"has {number:g} more, expected a share above -1: 0.30 is 30 %")


def _unique(path: Path, ids: list[str]) -> None:
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise UsageError(f"{path}: two claims have the id {one!r}; give each its own")
        seen.add(one)
