"""Where the minutes of the default suite go, as docs/default-suite.md says, is what the shipped runs say."""

import re
from pathlib import Path

import pandas as pd
import pytest

from bench_lib.comparing.store import load

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/default-suite.md").read_text()
WORDS = " ".join(PAGE.split())
RESULTS = ROOT / "results"
PARTS = ["forward", "backward", "optimizer", "exchange"]  # of a step


class Profile:
    """One run of the default policy: seconds of its cases by family, and of the run."""

    def __init__(self, campaign: str) -> None:
        data = load(RESULTS, [campaign])
        (run,) = data.runs[data.runs["policy"] == "default"].itertuples()
        cases = data.cases[data.cases["run_id"] == run.run_id].set_index("case_id")
        samples = data.samples.to_pandas()
        seconds = samples[samples["run_id"] == run.run_id].groupby("case_id", observed=True)["seconds"]
        cases["timed"] = (seconds.sum() * cases["calls"]).reindex(cases.index).fillna(0.0)
        cases["warm"] = (seconds.median() * cases["warmup_calls"]).reindex(cases.index).fillna(0.0)
        # What is inside another case's samples has been counted there.
        cases.loc[cases["metric"].isin(PARTS), ["timed", "warm"]] = 0.0
        self.run_seconds = (run.ended_at - run.started_at).total_seconds()
        self.cases = cases
        columns = {"n": ("wall_seconds", "size"), "seconds": ("wall_seconds", "sum")}
        columns |= {"timed": ("timed", "sum"), "warm": ("warm", "sum")}
        self.families: pd.DataFrame = cases.groupby("family").agg(**columns)

    @property
    def measuring(self) -> float:
        return float(self.families["timed"].sum() + self.families["warm"].sum())


@pytest.fixture(scope="module")
def profile() -> Profile:
    return Profile("h200-default-suite")


def test_the_table_of_families(profile: Profile) -> None:
    rows = re.findall(r"\| `(\w+)` \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", PAGE)
    assert {name for name, *_ in rows} == {*profile.families.index} - {"ladder"}
    for name, n, *seconds in rows:
        own = profile.families.loc[name]
        other = own["seconds"] - own["timed"] - own["warm"]
        assert int(n) == own["n"]
        expected = [own["seconds"], own["timed"], own["warm"], other]
        assert [float(one) for one in seconds] == pytest.approx(expected, abs=0.051)


def test_the_sums_of_the_page(profile: Profile) -> None:
    between = profile.run_seconds - profile.families["seconds"].sum()
    n = len(profile.cases)
    whole = f"{n} cases in {profile.run_seconds:.0f} s, of which {profile.measuring:.0f} s timed or warm-up"
    assert whole in WORDS
    assert f"Between the cases lie {between:.1f} s, {1e3 * between / n:.0f} ms a case" in WORDS
    first = profile.cases["wall_seconds"].max()
    assert f"with empty caches, {first:.0f} s" in WORDS
    earlier = [Profile("h200-convolutions"), Profile("h200-memory-compile")]
    seconds, measuring = (sum(getattr(one, name) for one in earlier) for name in ("run_seconds", "measuring"))
    assert f"took {seconds:.0f} s, of which {measuring:.0f} s were timed or warm-up" in WORDS
    before, now = seconds - measuring, profile.run_seconds - profile.measuring
    known = sum(len(one.cases) for one in earlier)
    more = len(profile.cases[profile.cases["family"] != "ladder"]) - known
    assert f"{before:.0f} s were not, against {now:.0f} s here, with {more} cases more" in WORDS


def test_how_long_they_took_stands_in_the_readme(profile: Profile) -> None:
    runs = load(RESULTS, ["h200-default-suite"]).runs
    (quick,) = runs[runs["policy"] == "quick"].itertuples()
    took = (quick.ended_at - quick.started_at).total_seconds()
    assert f"`--quick` took {took:.0f} s" in WORDS
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"took {profile.run_seconds:.0f} s with filled compile caches, `--quick` {took:.0f} s" in readme


def test_how_long_the_first_runs_took_with_empty_caches() -> None:
    runs = load(RESULTS, ["h200-memory-compile"]).runs
    quick = runs[runs["policy"] == "quick"].sort_values("started_at")
    took = (quick["ended_at"] - quick["started_at"]).dt.total_seconds()
    first = [seconds.iloc[0] for _, seconds in took.groupby(quick["gpu_uuid"], sort=False)]
    later = [one for _, seconds in took.groupby(quick["gpu_uuid"]) for one in seconds.iloc[1:]]
    assert f"took {first[0]:.0f} s on one machine and {first[1]:.0f} s on the other" in WORDS
    assert f"those after it {min(later):.0f} to {max(later):.0f} s" in WORDS
