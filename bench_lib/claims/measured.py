"""Campaigns in, comparisons out: each campaign is read once and each comparison made once, for all claims."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench_lib.claims.selecting import CaseKey
from bench_lib.claims.words import Contrast
from bench_lib.comparing import compare, differences, loaded
from bench_lib.comparing.changes import Comparison
from bench_lib.comparing.replicates import Replicates, replicates
from bench_lib.comparing.sides import Side
from bench_lib.comparing.store import Data, Results
from bench_lib.layout import CampaignFolder
from bench_lib.model import NULL_SUFFIX
from bench_lib.stacking import stacks

_IDENTITIES = ("stack_identity", "driver_identity", "machine_identity")


@dataclass(frozen=True)
class Arm:
    """The runs of one arm of a campaign (of a whole stack for a contrast), and what they held."""

    side: Side
    held: Mapping[str, frozenset[str]]  # dotted key -> the values of its runs

    @cached_property
    def cases(self) -> Mapping[CaseKey, int]:
        """Family, op and parameters of everything that was measured, and with how many ranks at least."""
        found: dict[CaseKey, int] = {}
        columns = ["family", "op", "params", "world_size"]
        for family, op, params, ranks in self.side.data.cases[columns].itertuples(index=False):
            key, known = (family, op, params), 1 if pd.isna(ranks) else int(ranks)
            found[key] = min(known, found.get(key, known))
        return found

    @cached_property
    def on_gpu(self) -> bool:
        """Whether all of its runs measured on a GPU."""
        return bool((self.side.data.runs["device"] == "cuda").all())

    @cached_property
    def replicates(self) -> Replicates:
        """Its cases as values."""
        return replicates(self.side.data)

    @cached_property
    def facts(self) -> Mapping[str, list[tuple[str, Mapping[str, str]]]]:
        """By family: of each case of each run its op and the facts stored with it."""
        found: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
        for family, op, facts in self.side.data.cases[["family", "op", "facts"]].itertuples(index=False):
            if isinstance(facts, Mapping):
                found.setdefault(family, []).append((op, facts))
        return found

    def holds(self, wanted: Mapping[str, str]) -> bool:
        """Whether every wanted component has that version in every run; `driver = "580"` too."""
        return all(self._has(component, version) for component, version in wanted.items())

    def _has(self, component: str, version: str) -> bool:
        found = self.held.get(component if "." in component else f"{component}.version", frozenset())
        return bool(found) and all(stacks.agrees(version, one) for one in found)

    def told(self, key: str) -> str:
        """What its runs say of one key."""
        return differences.SEVERAL.join(sorted(self.held.get(key, ())))


@dataclass(frozen=True)
class Compared:
    """One comparison and the arms that it is of; `parameter` is the one that a contrast took."""

    comparison: Comparison
    arms: tuple[Arm, ...]
    parameter: str = ""


class Arms:
    """The arms of a folder's campaigns: each made once, as is each comparison, however many ask."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.compared: dict[tuple[object, ...], Compared] = {}
        self._known: dict[tuple[str, str], list[Arm]] = {}

    def of(self, campaign: str, column: str) -> list[Arm]:
        """Those of one campaign, by its arms or, for contrasts, its stacks."""
        key = (campaign, column)
        if key not in self._known:
            data = self.results.campaign(campaign)
            self._known[key] = [_arm(campaign, data, column, name) for name in sorted(set(data.runs[column]))]
        return self._known[key]


class Measured:
    """Some campaigns of a results folder; what could not be read is named in `left_out`."""

    def __init__(self, arms: Arms, campaigns: Sequence[str]) -> None:
        self.left_out: list[tuple[str, str]] = []
        for name in campaigns:
            self._read(arms.results, name)
        self._compared = arms.compared
        self.folder = arms.results.folder
        self.arms = [arm for name in campaigns for arm in arms.of(name, "arm")]
        self.stacks = [arm for name in campaigns for arm in arms.of(name, "stack")]

    @property
    def once(self) -> list[Arm]:
        """The arms without those that measured a stack a second time, as in a comparison of stacks."""
        return [arm for arm in self.arms if not arm.side.label.endswith(NULL_SUFFIX)]

    def pairs(
        self, baseline: Mapping[str, str], candidate: Mapping[str, str], usable: Callable[[Arm], bool]
    ) -> Iterator[Compared]:
        """Comparisons of usable arms that hold what the sides ask for, inside campaigns, else across them.

        Of several candidates for a baseline the one that differs from it in the fewest components.
        """
        able = [arm for arm in self.once if usable(arm)]
        first = [arm for arm in able if arm.holds(baseline)]
        second = [arm for arm in able if arm.holds(candidate)]
        inside = [(a, b) for a in first for b in second if a.side.campaign == b.side.campaign]
        every = inside or [(a, b) for a in first for b in second]
        nearest: dict[int, tuple[Arm, Arm]] = {}
        for a, b in every:
            if a is not b and (id(a) not in nearest or _apart(a, b) < _apart(*nearest[id(a)])):
                nearest[id(a)] = (a, b)
        for a, b in nearest.values():
            yield self._compare(a, b)

    def contrast(self, arm: Arm, asked: Contrast) -> Compared:
        """The contrast inside the runs of one stack; its cases must hold both values."""
        key = (id(arm), asked)
        if key not in self._compared:
            sides = (asked.parameter, asked.baseline, asked.candidate)
            found = compare.contrast(arm.side, *sides, arm.replicates)
            self._compared[key] = Compared(found, (arm,), asked.parameter)
        return self._compared[key]

    def _read(self, results: Results, name: str) -> None:
        data = results.campaign(name)
        self.left_out += data.skipped
        if data.runs.empty:
            folder = str(CampaignFolder(results.folder, name).path)
            self.left_out.append((folder, "holds no run that can be read"))

    def _compare(self, a: Arm, b: Arm) -> Compared:
        key = (id(a), id(b))
        if key not in self._compared:
            found = compare.compare(a.side, b.side, (a.replicates, b.replicates))
            self._compared[key] = Compared(found, (a, b))
        return self._compared[key]


def _arm(campaign: str, data: Data, column: str, name: str) -> Arm:
    own = data.of_runs(set(data.runs.loc[data.runs[column] == name, "run_id"]))
    again = set(data.runs.loc[data.runs["arm"] == name + NULL_SUFFIX, "run_id"])
    repeat = data.of_runs(again) if again and column == "arm" else None
    return Arm(Side(name, campaign, own, repeat), _held(own))


def _apart(a: Arm, b: Arm) -> int:
    """In how many components they differ, without what one loaded because it measured other families."""
    found = differences.differences(a.side.data.runs, b.side.data.runs)
    kept, _ = loaded.without_other_families(found, a.side, b.side)
    return sum(one.axis == "stack" for one in kept)


def _held(data: Data) -> dict[str, frozenset[str]]:
    values: dict[str, set[str]] = {}
    for column in _IDENTITIES:
        for identity in data.runs[column]:
            for key, value in identity.items() if isinstance(identity, Mapping) else ():
                values.setdefault(str(key), set()).add(str(value))
    return {key: frozenset(found) for key, found in values.items()}
