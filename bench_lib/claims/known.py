"""What can be measured of each family: by the benchmark files at hand, and by the results that were read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from bench_lib.claims.functions import Names
from bench_lib.claims.selecting import CaseKey, matches
from bench_lib.claims.words import Scope
from bench_lib.comparing.replicates import params_of
from bench_lib.model import Scalar, scalar_text


@dataclass(frozen=True)
class Known:
    """Names by family, and how much they say: whether what is not among them cannot be."""

    declared: frozenset[str]  # families of the benchmark files
    files: Mapping[str, Names]
    cases: Iterable[CaseKey]  # of the results that were read
    listed: frozenset[str]  # families of the suite's own list of claims
    planned: frozenset[str]
    all_read: bool  # whether every campaign was read, so that what is not seen was never measured
    homes: Mapping[str, str]  # the folder of each family that is not the suite's, where it was named

    @cached_property
    def seen(self) -> Mapping[str, list[tuple[str, Mapping[str, Scalar]]]]:
        """Op and parameters of the cases that were read, by family."""
        found: dict[str, list[tuple[str, Mapping[str, Scalar]]]] = {}
        for family, op, text in sorted(self.cases):
            found.setdefault(family, []).append((op, params_of(text)))
        return found

    @property
    def families(self) -> list[str]:
        """Every family that there is, or is to be."""
        return sorted(self.declared | self.seen.keys() | self.planned)

    def folder(self, of: Iterable[str]) -> str:
        """What --benchmarks needs for these families: "" for the suite's own, FOLDER where nobody said."""
        for family in of:
            if family in self.homes:
                return self.homes[family]
            if family not in self.declared | self.listed | self.planned:
                return "FOLDER"
        return ""

    def decides(self, family: str) -> bool:
        """Whether a name that is not known of a family has to be a mistake.

        Of a family of the user's own all results tell, where its file is not at hand; of the suite's
        families they may hold a part.
        """
        own = self.all_read and family in self.seen and family not in self.declared | self.listed
        return family in self.files or own

    def ops(self, family: str) -> list[str]:
        """The ops of a family; none where nothing is known of it."""
        held = self.files[family].ops if family in self.files else frozenset()
        return sorted(held | {op for op, _ in self.seen.get(family, ())})

    def parameters(self, family: str) -> list[str]:
        """The names that its parameters can have."""
        held = self.files[family].parameters if family in self.files else frozenset()
        return sorted(held | {name for _, params in self.seen.get(family, ()) for name in params})

    def values(self, scope: Scope, parameter: str) -> tuple[list[str], bool]:
        """The known values of a parameter in the ops of a scope, and whether there can be no others."""
        found = {
            scalar_text(params[parameter])
            for op, params in self.seen.get(scope.family, ())
            if parameter in params and fnmatchcase(op, scope.op)
        }
        complete = self.decides(scope.family)
        if names := self.files.get(scope.family):
            for op in (one for one in names.ops if fnmatchcase(one, scope.op)):
                possible = names.possible(op, parameter)
                complete = complete and possible is not None
                found |= possible or frozenset()
        return sorted(found), complete

    def selects(self, scope: Scope, ignoring: Iterable[str]) -> bool:
        """Whether a case can be in a scope, whatever the parameters that contrasts take out of it."""
        wanted = {name: globs for name, globs in scope.params.items() if name not in set(ignoring)}
        kept = Scope(scope.family, scope.op, wanted)
        if any(matches(kept, scope.family, op, params) for op, params in self.seen.get(scope.family, ())):
            return True
        names = self.files.get(scope.family)
        if names is None:
            return not self.decides(scope.family)
        return any(
            fnmatchcase(op, scope.op) and all(_can_be(names, op, *one) for one in wanted.items())
            for op in names.ops
        )


def _can_be(names: Names, op: str, parameter: str, globs: Iterable[str]) -> bool:
    possible = names.possible(op, parameter)
    return possible is None or any(fnmatchcase(value, glob) for value in possible for glob in globs)
