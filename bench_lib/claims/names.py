"""Whether all that claims name exists: families, ops, parameters, values, components; the nearest if not.

A name is an error where all names are known: its benchmark file is at hand, or the family is the user's own
and the results hold it. Otherwise it may be of a file that lies elsewhere; the claim is then not measured,
and says so.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bench_lib import suite_files
from bench_lib.claims import reading
from bench_lib.claims.functions import of_families
from bench_lib.claims.known import Known
from bench_lib.claims.measured import Measured
from bench_lib.claims.reading import Claims
from bench_lib.claims.words import Claim, Scope
from bench_lib.comparing import sides
from bench_lib.errors import UsageError
from bench_lib.stacking import families, stacks
from bench_lib.units import names_text

_ALIKE = 0.75  # of difflib: `ad` and `add` are, `moe` and `mode` too, two names of their own seldom
_SHOWN = 12
_MACHINE = ("driver", "driver.cuda", "gpu.name", "gpu.sm", "gpu.uuid", "host")  # besides what stacks declare
_OF_CHECKS = ("of", "is", "absent")


def unseen(read: Claims, measured: Measured, known: Known) -> dict[str, str]:
    """By claim, what it names that nobody has ever seen, in words. Raises UsageError for a mistake."""
    _check_components(read, measured)
    found = {}
    for claim in read.claims:
        if strange := list(dict.fromkeys(_strange(claim, known))):
            found[claim.id] = "; ".join(strange)
    return found


def known(read: Claims, measured: Measured, all_read: bool, own: Sequence[Path] = ()) -> Known:
    """What there is of each family; `own` are folders of benchmark files besides those of the suite.

    Raises UsageError for a folder that is not there, or that holds no benchmark file.
    """
    for folder in own:
        if not families.named(folder):
            raise UsageError(f"--benchmarks {folder} holds no bench_NAME.py; name the folder of your files")
    folders = [*own, *suite_files.folders()]
    declared = frozenset(name for folder in folders for name in families.named(folder).values())
    homes = {name: str(folder) for folder in own for name in families.named(folder).values()}
    cases = {case for arm in measured.stacks for case in arm.cases}
    file = suite_files.find(reading.FILE)
    suite = reading.read(file) if file else Claims(())
    listed = frozenset(family for claim in suite.claims for family in claim.families)
    return Known(declared, of_families(folders), cases, listed, frozenset(read.planned), all_read, homes)


def _strange(claim: Claim, known: Known) -> Iterator[str]:
    where = f", which claim {claim.id!r} selects cases of"
    for family in claim.families:
        if family not in known.families:
            if difflib.get_close_matches(family, known.families, n=1):
                raise sides.unknown("family", family, known.families, where)
            yield f"nothing of the family {family!r} was ever seen, in a benchmark file here or in a result"
    taken = [contrast.parameter for contrast in claim.contrasts]
    for scope in claim.cases:
        yield from _of_scope(scope, taken, claim, known)
    for name in (*taken, *claim.groups):
        if name not in ("op", "family"):
            yield from _parameter(name, claim, known, claim.families)
    for contrast in claim.contrasts:
        for value in (contrast.baseline, contrast.candidate):
            yield from _values(contrast.parameter, (value,), claim.cases, claim, known)


def _of_scope(scope: Scope, taken: Collection[str], claim: Claim, known: Known) -> Iterator[str]:
    """What a scope names that is not there: the op, a parameter, a value, or all of them in one case."""
    told: list[str] = []
    ops = known.ops(scope.family)
    if ops and not any(fnmatchcase(op, scope.op) for op in ops):
        told += _missing("op", scope.op, ops, claim, known, (scope.family,))
    for name, globs in scope.params.items():
        told += _parameter(name, claim, known, (scope.family,))
        if not told and name not in taken:
            told += _values(name, globs, (scope,), claim, known)
    if ops and not told and not known.selects(scope, taken):
        asked = ", ".join(f"{name} = {' or '.join(globs)}" for name, globs in scope.params.items())
        raise UsageError(
            f"no case of family {scope.family} has op {scope.op!r} together with {asked}, which claim "
            f"{claim.id!r} selects; each is in some case: write one table of cases for each"
        )
    yield from told


def _parameter(name: str, claim: Claim, known: Known, of: tuple[str, ...]) -> Iterator[str]:
    there = sorted({one for family in of for one in known.parameters(family)})
    complete = all(known.ops(family) for family in of)  # of each something is known
    if complete and name not in there:
        yield from _missing("parameter", name, there, claim, known, of)


def _values(
    name: str, globs: Sequence[str], scopes: Sequence[Scope], claim: Claim, known: Known
) -> Iterator[str]:
    """The values that no case of the scopes has, of a parameter that some case can have."""
    found = [known.values(scope, name) for scope in scopes]
    there = sorted({value for values, _ in found for value in values})
    for glob in globs if there else ():
        if not any(fnmatchcase(value, glob) for value in there):
            of = tuple(dict.fromkeys(scope.family for scope in scopes))
            if all(complete for _, complete in found):
                raise _mistake(f"value of {name}", glob, there, claim, known, of)
            near = _nearest(glob, there)
            where = f"of the family {' or '.join(of)}"
            yield f"no case with {name} = {glob} {where} is known; the nearest is {near}"


def _missing(
    kind: str, name: str, there: Collection[str], claim: Claim, known: Known, of: tuple[str, ...]
) -> Iterator[str]:
    alike = known.all_read and bool(difflib.get_close_matches(name, there, n=1, cutoff=_ALIKE))
    if alike or all(map(known.decides, of)):
        raise _mistake(kind, name, there, claim, known, of)
    near = difflib.get_close_matches(name, there, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    yield f"no {kind} {name!r} of the family {' or '.join(of)} is in the results that were read{hint}"


def _mistake(
    kind: str, name: str, there: Collection[str], claim: Claim, known: Known, of: Sequence[str]
) -> UsageError:
    near = _nearest(name, there)
    listed = [near, *(one for one in there if one != near)] if near else []
    at_hand = all(family in known.files for family in of)
    how = "" if at_hand else " (what is not measured yet: name the folder of its file with --benchmarks)"
    hint = f"; did you mean {near!r}?" if _is_near(name, near) else ""
    return UsageError(
        f"no {kind} {name!r} in family {' or '.join(of)}, which claim {claim.id!r} names; "
        f"there: {names_text(listed, _SHOWN) or 'none'}{how}{hint}"
    )


def _nearest(name: str, there: Iterable[str]) -> str:
    """Of numbers the nearest number, else the name most alike; "" where there is none."""
    listed = list(there)
    try:
        wanted = float(name)
        return min(listed, key=lambda one: abs(float(one) - wanted), default="")
    except ValueError:
        return next(iter(difflib.get_close_matches(name, listed, n=1, cutoff=0.0)), "")


def _is_near(name: str, near: str) -> bool:
    """Whether somebody who wrote `name` may have meant `near`."""
    numbers = name.replace(".", "").isdigit() and near.replace(".", "").isdigit()
    return numbers or bool(difflib.get_close_matches(name, [near], cutoff=0.5))


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
