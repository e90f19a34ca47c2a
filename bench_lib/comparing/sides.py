"""What a user calls a side of a comparison, resolved to the runs that it means."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa

from bench_lib import next_step
from bench_lib.comparing import store
from bench_lib.comparing.sampled import Samples
from bench_lib.comparing.store import Data, Results
from bench_lib.errors import UsageError
from bench_lib.errors import unknown as unknown
from bench_lib.journaling import planned
from bench_lib.journaling.planned import Planned
from bench_lib.layout import LOCAL, CampaignFolder
from bench_lib.model import NULL_SUFFIX
from bench_lib.units import names_text

_NAMES_SHOWN = 12


@dataclass(frozen=True)
class Side:
    """The runs on one side of a comparison, under the name it was asked for."""

    label: str
    campaign: str
    data: Data  # of this side's runs only
    repeat: Data | None = None  # of the second arm that the same stack has in the campaign


def resolve(text: str, campaign: str | None, results: Path | Results) -> Side:
    """The side that `text` names.

    `text` is a stack or arm (`cudart-11.8#2`) of `campaign`, CAMPAIGN/STACK, a campaign that holds one
    stack, or the path of a `--benchmark-json` file. Raises UsageError naming what exists, DataError
    for a file that cannot be read.
    """
    return _Resolver(campaign, results).side(text)


def whole_stack(text: str | None, campaign: str | None, results: Path | Results) -> Side:
    """The side of a contrast: as `resolve`, but a stack means all its arms, None the one stack there is."""
    return _Resolver(campaign, results, all_arms=True).side(text)


def pair(baseline: str, candidate: str, campaign: str | None, results: Path | Results) -> tuple[Side, Side]:
    """Both sides of a comparison, each campaign read once; see `resolve`."""
    a, b = several([baseline, candidate], campaign, results)
    return a, b


def several(names: Sequence[str], campaign: str | None, results: Path | Results) -> list[Side]:
    """The sides of a comparison or of a bridge, each campaign read once; see `resolve`."""
    resolver = _Resolver(campaign, results, together=names)
    found = [resolver.side(name) for name in names]
    if len({side.label for side in found}) < len(found):  # before.json of two folders
        found = [replace(side, label=name) for side, name in zip(found, names, strict=True)]
    return found


def repeated(
    stack: str | None, campaign: str | None, results: Path | Results
) -> tuple[Side, Side, pd.DataFrame]:
    """A stack's two arms in a campaign, the baseline's by default, and all runs of the campaign.

    Raises UsageError where no stack, or not this one, was measured twice a round.
    """
    return _Resolver(campaign, results).repeated(stack)


def joined(a: Side, b: Side) -> Data:
    """The data of both sides as one; a column `side` of runs and cases tells which."""
    runs, cases = (
        [frame.assign(side=one.label) for frame, one in zip(frames, (a, b), strict=True)]
        for frames in ((a.data.runs, b.data.runs), (a.data.cases, b.data.cases))
    )
    return Data(
        pd.concat(runs, ignore_index=True),
        pd.concat(cases, ignore_index=True),
        _measured(a.data, b.data),
        tuple(dict.fromkeys([*a.data.skipped, *b.data.skipped])),
    )


def _measured(a: Data, b: Data) -> Samples:
    """The samples of both, once where both are parts of one campaign."""
    if a.measured is b.measured:
        return a.measured
    return Samples(pa.concat_tables([a.samples, b.samples]))


def campaigns(results: Path) -> list[str]:
    """The campaigns under `results` that hold anything, by name."""
    folders = sorted(results.iterdir()) if results.is_dir() else []
    return [path.name for path in folders if path.is_dir() and _holds_runs(results, path.name)]


class _Resolver:
    """Names to sides."""

    def __init__(
        self,
        campaign: str | None,
        results: Path | Results,
        all_arms: bool = False,
        together: Sequence[str] = (),
    ) -> None:
        self._campaign = campaign
        self._all_arms = all_arms
        self._together = together  # all names of one comparison
        self._opened = store.opened(results)
        self._results = self._opened.folder

    def side(self, text: str | None) -> Side:
        if text is None:
            return self._the_stack()
        if text.endswith(".json") or Path(text).is_file():
            return _from_json(Path(text))
        name, slash, arm = text.rpartition("/")
        asked = self._campaign
        # CAMPAIGN/STACK needs no campaign of its own, but an arm may have a slash in its name.
        read = asked is not None and (not slash or _holds_runs(self._results, asked))
        if asked is not None and read and text in _arms(self._load(asked)):
            return self._arm(asked, text, text)
        if slash:
            return self._arm(name, arm, text)
        if text in campaigns(self._results) or _begun(self._results, text):
            return self._arm(text, self._only_stack(text), text)
        raise self._not_found(text)

    def repeated(self, stack: str | None) -> tuple[Side, Side, pd.DataFrame]:
        """See `repeated` of this module."""
        if self._campaign is None:
            raise self._no_campaign()
        data = self._load(self._campaign)
        twice = [arm for arm in _arms(data) if arm + NULL_SUFFIX in _arms(data)]
        if not twice:
            if (begun := self._planned(self._campaign)) and begun.null and not begun.finished:
                raise UsageError(_unfinished(self._campaign, begun))
            raise UsageError(
                f"campaign {self._campaign!r} holds no stack twice (NAME{NULL_SUFFIX}); measure it without "
                f"--no-null, or name a null value with --contrast, such as runtime=11.8:11.8{NULL_SUFFIX}"
            )
        where = f" that was measured twice a round in campaign {self._campaign!r}"
        if stack is None and len(twice) > 1:
            raise UsageError(f"{len(twice)} stacks were measured twice; name one of {', '.join(twice)}")
        if stack is not None and stack not in twice:
            raise unknown("stack", stack, twice, where)
        a = self.side(stack or twice[0])
        return a, self.side(a.label + NULL_SUFFIX), data.runs

    def _planned(self, name: str) -> Planned | None:
        return planned.of(CampaignFolder(self._results, name))

    def _no_arm(self, campaign: str, arm: str) -> UsageError:
        arms = _arms(self._load(campaign))
        if (begun := self._planned(campaign)) and arm in begun.arms and not begun.finished:
            return UsageError(_unfinished(campaign, begun))
        return unknown("stack or arm", arm, arms, f" in campaign {campaign!r}")

    def _load(self, name: str) -> Data:
        if not CampaignFolder(self._results, name).exists():
            if begun := self._planned(name):
                raise UsageError(_unfinished(name, begun))
            there = campaigns(self._results)
            if name == LOCAL:  # which hardly anybody typed: none is near it
                raise UsageError(
                    f"no campaign {name!r} under {self._results}, which is read where none is named; name "
                    f"one with --campaign (there: {names_text(there, _NAMES_SHOWN) or 'none'})"
                )
            raise unknown("campaign", name, there, f" under {self._results}")
        return _not_empty(name, self._opened.campaign(name))

    def _arm(self, campaign: str, arm: str, label: str) -> Side:
        arms = _arms(self._load(campaign))
        if arm not in arms:
            raise self._no_arm(campaign, arm)
        data = self._load(campaign)
        runs = data.runs
        own = runs["stack" if self._all_arms and arm in set(runs["stack"]) else "arm"] == arm
        again = set(runs.loc[runs["arm"] == arm + NULL_SUFFIX, "run_id"])
        repeat = data.of_runs(again) if again and not self._all_arms else None
        return Side(label, campaign, data.of_runs(set(runs.loc[own, "run_id"])), repeat)

    def _no_campaign(self) -> UsageError:
        there = ", ".join(campaigns(self._results)) or "none"
        return UsageError(f"no campaign is named; name one with --campaign (there: {there})")

    def _the_stack(self) -> Side:
        if self._campaign is None:
            raise self._no_campaign()
        stack = self._only_stack(self._campaign)
        return self._arm(self._campaign, stack, stack)

    def _only_stack(self, campaign: str) -> str:
        stacks = sorted(set(self._load(campaign).runs["stack"]))
        if len(stacks) > 1:
            raise UsageError(
                f"campaign {campaign!r} holds {len(stacks)} stacks; name one of them, such as "
                f"{campaign}/{stacks[0]} (there: {', '.join(stacks[:_NAMES_SHOWN])})"
            )
        return str(stacks[0])

    def _campaigns_with(self, arms: set[str]) -> list[str]:
        there = campaigns(self._results)
        return [name for name in there if arms <= store.arms(self._results, name)][:_NAMES_SHOWN]

    def _not_found(self, text: str) -> UsageError:
        if self._campaign is not None:
            return self._no_arm(self._campaign, text)
        names = [name for name in self._together if "/" not in name and not name.endswith(".json")]
        for wanted in (names, [text]):
            if wanted and (holding := self._campaigns_with(set(wanted))):
                return UsageError(
                    f"no campaign is named, and no campaign is called {text!r}; name one that holds "
                    f"{' and '.join(wanted)}: {' or '.join(f'--campaign {name}' for name in holding)}"
                )
        error = unknown("campaign", text, campaigns(self._results), f" under {self._results}")
        return UsageError(f"{error} (a stack needs --campaign NAME, or CAMPAIGN/STACK)")


def _unfinished(name: str, begun: Planned) -> str:
    return (
        f"campaign {name!r} has 0 finished rounds of {begun.rounds}, and only finished ones are sure to hold "
        f"all stacks; go on with it: {next_step.typed(begun.command())}"
    )


def _begun(results: Path, name: str) -> bool:
    try:
        return planned.of(CampaignFolder(results, name)) is not None
    except UsageError:  # a path, say
        return False


def _holds_runs(results: Path, name: str) -> bool:
    try:
        return CampaignFolder(results, name).exists()
    except UsageError:  # a folder whose name cannot be a campaign's
        return False


def _not_empty(name: str, data: Data) -> Data:
    if data.runs.empty:
        why = "; ".join(f"{file}: {reason}" for file, reason in data.skipped[:3])
        raise UsageError(f"campaign {name!r} holds no run that can be read ({why}); measure it again")
    return data


def _arms(data: Data) -> list[str]:
    return sorted(set(data.runs["arm"]))


def _from_json(path: Path) -> Side:
    data = store.load_json(path)
    if data.runs.empty:
        raise UsageError(f"{path} holds no run; measure again with --benchmark-json={path}")
    return Side(path.name, str(data.runs["campaign"].iloc[0]), data)
