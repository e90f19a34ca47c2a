"""Whether everything that claims name exists: families, ops, parameters and components; the nearest if not.

A name is an error where all names are known: its benchmark file is at hand, or the results hold it almost
so. Otherwise it may be of a file that lies elsewhere; the claim is then not measured, and says so.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bench_lib import suite_files
from bench_lib.claims.functions import Names, of_families
from bench_lib.claims.measured import Measured
from bench_lib.claims.reading import Claims
from bench_lib.claims.words import Claim
from bench_lib.comparing import sides
from bench_lib.comparing.replicates import params_of
from bench_lib.stacking import families, stacks

_ALIKE = 0.75  # of difflib: `ad` and `add` are, `moe` and `mode` too, two names of their own seldom
_MACHINE = ("driver", "driver.cuda", "gpu.name", "gpu.sm", "gpu.uuid", "host")  # besides what stacks declare
_OF_CHECKS = ("of", "is", "absent")


@dataclass(frozen=True)
class _Known:
    """Names by family: of the benchmark files at hand, of the results that were read."""

    declared: frozenset[str]
    files: Mapping[str, Names]
    seen: Mapping[str, Names]
    planned: frozenset[str]
    all_read: bool  # whether every campaign was read, so that what is not seen was never measured

    def ops(self, family: str) -> list[str]:
        return sorted({name for names in self._of(family) for name in names.ops})

    def parameters(self, family: str) -> list[str]:
        return sorted({name for names in self._of(family) for name in names.parameters})

    def _of(self, family: str) -> list[Names]:
        return [held[family] for held in (self.seen, self.files) if family in held]

    def is_wrong(self, name: str, known: Collection[str], at_hand: bool) -> bool:
        """Whether a name that is not known has to be a mistake."""
        near = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
        return at_hand or (self.all_read and bool(near))


def unseen(read: Claims, measured: Measured, all_read: bool) -> dict[str, str]:
    """By claim, what it names that nobody has ever seen, in words. Raises UsageError for a mistake."""
    known = _known(read, measured, all_read)
    _check_components(read, measured)
    found = {}
    for claim in read.claims:
        if strange := list(_strange(claim, known)):
            found[claim.id] = "; ".join(strange)
    return found


def _known(read: Claims, measured: Measured, all_read: bool) -> _Known:
    folders = suite_files.folders()
    declared = frozenset(name for folder in folders for name in families.declared(folder).values())
    seen: dict[str, tuple[set[str], set[str]]] = {}
    for family, op, text in {case for arm in measured.stacks for case in arm.cases}:
        ops, parameters = seen.setdefault(family, (set(), set()))
        ops.add(op)
        parameters.update(params_of(text))
    held = {family: Names(frozenset(a), frozenset(b)) for family, (a, b) in seen.items()}
    return _Known(declared, of_families(folders), held, frozenset(read.planned), all_read)


def _strange(claim: Claim, known: _Known) -> Iterator[str]:
    where = f", which claim {claim.id!r} selects cases of"
    there = sorted(known.declared | known.seen.keys() | known.planned)
    for family in claim.families:
        if family not in there:
            if difflib.get_close_matches(family, there, n=1):
                raise sides.unknown("family", family, there, where)
            yield f"nothing of the family {family!r} was ever seen, in a benchmark file here or in a result"
    for scope in claim.cases:
        ops = known.ops(scope.family)
        if ops and not any(fnmatchcase(op, scope.op) for op in ops):
            yield from _missing("op", scope.op, ops, claim, known, (scope.family,))
        for name in scope.params:
            yield from _parameter(name, claim, known, (scope.family,))
    for name in (*(one.parameter for one in claim.contrasts), *claim.groups):
        if name not in ("op", "family"):
            yield from _parameter(name, claim, known, claim.families)


def _parameter(name: str, claim: Claim, known: _Known, of: tuple[str, ...]) -> Iterator[str]:
    there = sorted({one for family in of for one in known.parameters(family)})
    complete = all(known.ops(family) for family in of)  # of each something is known
    if complete and name not in there:
        yield from _missing("parameter", name, there, claim, known, of)


def _missing(
    kind: str, name: str, there: Collection[str], claim: Claim, known: _Known, of: tuple[str, ...]
) -> Iterator[str]:
    family = " or ".join(of)
    at_hand = all(one in known.files for one in of)
    if known.is_wrong(name, there, at_hand):
        raise sides.unknown(kind, name, there, f" in family {family}, which claim {claim.id!r} names")
    near = difflib.get_close_matches(name, there, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    yield f"no {kind} {name!r} of the family {family} is in the results that were read{hint}"


def _check_components(read: Claims, measured: Measured) -> None:
    """Raise UsageError for a component that no stack can declare and no run stored."""
    keys = {key for arm in measured.stacks for key in arm.held}
    told = dict.fromkeys([*stacks.COMPONENTS, *_MACHINE, *sorted(keys)])
    for claim in read.claims:
        for name in _components(claim):
            if not told.keys() & {name, f"{name}.version", name.removesuffix(".version")}:
                shown = [one for one in told if not one.endswith((".version", ".path", ".sha256"))]
                where = f" by which claim {claim.id!r} could choose stacks"
                more = " (campaigns are chosen with --campaign)" if name == "campaign" else ""
                error = sides.unknown("component", name, shown, where)
                raise type(error)(f"{error}{more}")


def _components(claim: Claim) -> Iterator[str]:
    for side in (claim.baseline, claim.candidate, claim.inside):
        yield from side
    for check in claim.checks:
        if check.name == "version":
            yield check.given["of"]
            yield from (key for key in check.given if key not in _OF_CHECKS)
