"""Facts looked up in the real thing where it is at hand; the public record of the entry otherwise.

A check is a table with a `look`:

    version     component `of` `is` this version in every stack that holds the other components named: what
                the stacks file declares, and what stored runs had loaded
    installed   the installed `package` (of this `version`) requires something that `requires` matches
    file        a file `path` (glob) of the installed `package` holds something that `contains` matches
    stored      the fact `named` so of stored cases of `family` (and `op`) is something `contains` matches,
                in stacks that had loaded the `torch`, `cudart` or `driver` named

Patterns are regular expressions. With `absent = "yes"` the claim is that nothing of the kind is there. What
agrees with a claim and what contradicts it are gathered over all its checks: both together are `mixed`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import metadata

from bench_lib.claims.measured import Measured
from bench_lib.claims.words import OPEN, Check, Claim, Finding, Judged, Verdict
from bench_lib.stacking import stacks
from bench_lib.stacking.stacks import StackEntry
from bench_lib.units import names_text

_FILE_BYTES = 4_000_000  # of a text file that is read; larger ones are data
_NAMES = 3
_HELD = ("torch", "cudart", "driver")  # by which stored cases are chosen


@dataclass(frozen=True)
class World:
    """What checks may look at: stored campaigns and the stacks file."""

    measured: Measured
    entries: Mapping[str, StackEntry]


Look = Callable[[Mapping[str, str], World], tuple[list[str], list[str]]]  # agrees with it, contradicts it


def judged(claim: Claim, world: World, missing: str) -> Judged:
    """The verdict on a fact."""
    looked = [CHECKS[check.name][0](check.given, world) for check in claim.checks]
    agree, against = ([told for pair in looked for told in pair[side]] for side in (0, 1))
    if not agree and not against:
        return _by_record(claim, missing)
    verdict = Verdict.MIXED if agree and against else Verdict.SUPPORTED if agree else Verdict.REFUTED
    reason = "; ".join(_short(found) for found in (agree, against) if found)
    finding = Finding(verdict, reason, n_cases=len(agree) + len(against), stacks="looked up")
    return Judged(claim, verdict, reason, findings=(finding,))


def wrong(check: Check) -> str:
    """What is wrong with a check as it stands in a claims file; "" when nothing is."""
    if check.name not in CHECKS:
        return f"looks at {check.name!r}, expected one of {', '.join(CHECKS)}"
    _, needed, free = CHECKS[check.name]
    for key in needed:
        if key not in check.given:
            return f"has a check {check.name!r} that lacks {key!r}"
    for key in check.given:
        if free is not None and key not in (*needed, *free):
            return f"has a check {check.name!r} with {key!r}, expected {', '.join((*needed, *free))}"
    for key in sorted({"requires", "contains"} & check.given.keys()):
        try:
            re.compile(check.given[key])
        except re.error as error:
            return f"has a check whose {key} {check.given[key]!r} is no pattern: {error}"
    return ""


def _by_record(claim: Claim, missing: str) -> Judged:
    """What the public record says, where nothing could be looked at."""
    if claim.record_says == OPEN or not claim.record:
        return Judged(
            claim, Verdict.NOT_MEASURED, claim.record or "nothing was found to look at", takes=missing
        )
    reason = f"public record: {claim.record}"
    verdict = Verdict(claim.record_says)
    return Judged(claim, verdict, reason, findings=(Finding(verdict, reason, stacks="public record"),))


def _short(found: list[str]) -> str:
    return names_text(list(dict.fromkeys(found)), _NAMES, "; ")


def _version(given: Mapping[str, str], world: World) -> tuple[list[str], list[str]]:
    component, wanted = given["of"], given["is"]
    holding = {key: value for key, value in given.items() if key not in ("of", "is", "absent")}
    found: list[tuple[str, str]] = []
    for entry in world.entries.values():
        declared = stacks.declared(entry)
        if component in declared and stacks.promises(entry, holding):
            found.append(
                (declared[component], f"stack {entry.name} declares {component} {declared[component]}")
            )
    key = component if "." in component else f"{component}.version"
    for arm in world.measured.arms:
        seen = arm.told(key)
        if seen and arm.holds(holding):
            beside = ", ".join(f"{name} {version}" for name, version in holding.items())
            told = f"{arm.side.campaign}/{arm.side.label} loaded {component} {seen}, beside {beside}"
            found.append((seen, told))
    agree = [told for seen, told in found if stacks.agrees(wanted, seen)]
    if given.get("absent") == "yes":  # the claim is that nothing of the kind is there
        return [], agree
    return agree, [told for seen, told in found if not stacks.agrees(wanted, seen)]


def _installed(given: Mapping[str, str], _: World) -> tuple[list[str], list[str]]:
    package = given["package"]
    try:
        version, needed = metadata.version(package), metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return [], []
    if "version" in given and not stacks.agrees(given["version"], version):
        return [], []
    matching = [one for one in needed if re.search(given["requires"], one)]
    there = f"{package} {version} requires {matching[0]}" if matching else ""
    return _turned(given, there, f"{package} {version} requires nothing like {given['requires']}")


def _file(given: Mapping[str, str], _: World) -> tuple[list[str], list[str]]:
    package, path, pattern = given["package"], given["path"], given["contains"]
    holding = _holding(package, path, pattern)
    if holding is None:
        return [], []
    of = f"of {package} {metadata.version(package)}"
    there = f"{holding} {of} holds {pattern!r}" if holding else ""
    return _turned(given, there, f"no {path} {of} holds {pattern!r}")


@cache
def _holding(package: str, path: str, pattern: str) -> str | None:
    """The first file so named of a package that holds the pattern, "" where none does; None without any."""
    named = [file for file in _files(package) if fnmatchcase(str(file), path)]
    holding = next((str(file) for file in named if re.search(pattern, _text(file))), "")
    return holding if named else None


@cache
def _files(package: str) -> tuple[metadata.PackagePath, ...]:
    """The files that an installed package lists, none where it is not installed; a big one takes a while."""
    try:
        return tuple(metadata.files(package) or ())
    except metadata.PackageNotFoundError:
        return ()


def _text(file: metadata.PackagePath) -> str:
    """A file's name and its text; one that cannot be read has its name alone."""
    try:
        with open(file.locate(), "rb") as opened:  # noqa: PTH123 (Python 3.11 types it as no Path)
            return f"{file}\n{opened.read(_FILE_BYTES).decode(errors='replace')}"
    except OSError:
        return str(file)


def _stored(given: Mapping[str, str], world: World) -> tuple[list[str], list[str]]:
    found: dict[str, bool] = {}
    holding = {name: given[name] for name in _HELD if name in given}
    family = given["family"]
    for arm in world.measured.stacks:
        for op, facts in arm.facts.get(family, ()) if arm.holds(holding) else ():
            if fnmatchcase(op, given.get("op", "*")) and given["named"] in facts:
                where = f"{arm.side.campaign}/{arm.side.label}: {family}/{op}"
                matched = bool(re.search(given["contains"], facts[given["named"]], re.IGNORECASE))
                found[where] = found.get(where, False) or matched
    agree, against = [], []
    for where, matched in found.items():
        there = f"{where} stored {given['named']} with {given['contains']!r}" if matched else ""
        yes, no = _turned(given, there, f"{where} stored no {given['named']} with {given['contains']!r}")
        agree += yes
        against += no
    return agree, against


def _turned(given: Mapping[str, str], there: str, absent: str) -> tuple[list[str], list[str]]:
    """Whether something was found, as agreeing or contradicting, by what the claim says."""
    expects_absence = given.get("absent") == "yes"
    told = there or absent
    return ([told], []) if bool(there) is not expects_absence else ([], [told])


# name -> the check, the keys it needs, and the further keys that it takes (None: any component)
CHECKS: Mapping[str, tuple[Look, tuple[str, ...], tuple[str, ...] | None]] = {
    "version": (_version, ("of", "is"), None),
    "installed": (_installed, ("package", "requires"), ("version", "absent")),
    "file": (_file, ("package", "path", "contains"), ("absent",)),
    "stored": (_stored, ("family", "named", "contains"), ("op", "absent", *_HELD)),
}
