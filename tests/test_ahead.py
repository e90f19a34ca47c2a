"""What is left to measure after a comparison, and what it takes: nothing where it is settled."""

import dataclasses
import json
import re
from pathlib import Path

import pandas as pd
import pytest
import synthetic
from synthetic import Noise
from typer.testing import CliRunner

from bench_lib.cli import app
from bench_lib.comparing import ahead, compare, sides
from bench_lib.comparing.changes import Change
from bench_lib.comparing.store import opened
from bench_lib.model import Case
from bench_lib.pages import asked
from bench_lib.units import duration_text

CASES = [*synthetic.canaries(), *synthetic.cases(2)]
COMMAND = "cuda-gains run --stack old --stack new --rounds 4 --campaign c --quick"
QUIET, NOISY = Noise(), Noise(process_sd=0.03)


def campaign(folder, factor, noise=QUIET, rounds=4, **fields):
    """Rounds of `old` and `new` that took 50 s each, with the plan they followed."""
    known = {"measured": CASES, "samples": 5, "noise": noise, "rounds": rounds, **fields}
    ids = synthetic.write_campaign(folder, "c", {"old": 1.0, "new": factor}, **known)
    plan = {"stacks": ["old", "new"], "null": True, "rounds": rounds, "command": COMMAND}
    (folder / "c/plan.json").write_text(json.dumps(plan))
    (folder / "c/rounds").mkdir()
    for number in range(rounds):
        record = {"round": f"r{number}", "runs": ids[:1], "started_at": 100.0, "ended_at": 150.0}
        (folder / f"c/rounds/{number}.json").write_text(json.dumps(record))


def compared(folder, *names):
    return asked.compared(names or ("old", "new"), "c", folder, None)[0]


def test_where_the_slower_cases_are_settled_nothing_is_left_to_measure(tmp_path):
    campaign(tmp_path, 1.2)
    found = compared(tmp_path)
    assert {row.change for row in found.cases} == {Change.SLOWER}
    assert found.next_step == "none: settled, the 2 slower cases need no more rounds"
    assert {row.next_step for row in found.cases} == {"none: settled"}
    (one, other) = found.cases
    open_ = dataclasses.replace(found, cases=(one, dataclasses.replace(other, change=Change.UNCLEAR)))
    pair = sides.pair("old", "new", "c", tmp_path)
    assert ahead.told(open_, pair, tmp_path).next_step == (
        "none: settled, the slower case needs no more rounds; what would settle the unclear one stands "
        "beside it"
    )


def test_one_slower_case_settles_nothing_where_most_are_unclear(tmp_path):
    """The whole cannot be said yet: what is left is named, not that the slower one needs no more."""
    campaign(tmp_path, 1.2)
    found = compared(tmp_path)
    one = found.cases[0]
    unclear = dataclasses.replace(one, change=Change.UNCLEAR, lacking=5)
    pair = sides.pair("old", "new", "c", tmp_path)
    most = dataclasses.replace(found, cases=(one, unclear, unclear))
    assert most.mostly_unclear
    assert ahead.told(most, pair, tmp_path).next_step.startswith(
        f"{COMMAND.replace('--rounds 4', '--rounds 9')}  # about 5 more rounds should settle 2 unclear cases"
    )
    half = dataclasses.replace(found, cases=(one, unclear))
    assert not half.mostly_unclear
    assert ahead.told(half, pair, tmp_path).next_step.startswith("none: settled")


def test_more_rounds_are_a_command_with_its_price(tmp_path):
    campaign(tmp_path, 1.0, NOISY)
    found = compared(tmp_path)
    lacking = [row.lacking for row in found.cases if row.lacking]
    assert lacking
    command, _, why = found.next_step.partition("  # ")
    assert command == COMMAND.replace("--rounds 4", f"--rounds {4 + max(lacking)}")
    takes = duration_text(50 * max(lacking))
    assert why == (
        f"about {max(lacking)} more rounds should settle {len(lacking)} unclear "
        f"case{'s' * (len(lacking) > 1)}, about {takes}"
    )
    for row in found.cases:
        if row.lacking:
            price = duration_text(50 * row.lacking)
            assert row.next_step.endswith(f" should settle it (about {price})")


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("--campaign c", "--campaign moved"),
        ("--campaign c --results .scratch/results", "--campaign moved --results {results}"),
        ("--campaign c --results s3://bucket/x", "--campaign moved --results s3://bucket/x"),
    ],
)
def test_the_command_is_for_the_folder_that_was_read(tmp_path, stored, told):
    """Of another name than it was measured under, or in another place."""
    campaign(tmp_path, 1.2, rounds=1)
    (tmp_path / "c").rename(tmp_path / "moved")
    plan = json.loads((tmp_path / "moved/plan.json").read_text())
    plan["command"] = COMMAND.replace("--campaign c", stored)
    (tmp_path / "moved/plan.json").write_text(json.dumps(plan))
    found = asked.compared(("old", "new"), "moved", tmp_path, None)[0]
    command = found.next_step.partition("  # ")[0]
    expected = COMMAND.replace("--rounds 4", "--rounds 3")
    assert command == expected.replace("--campaign c", told.format(results=tmp_path))


def test_what_lies_in_results_is_measured_there(tmp_path, monkeypatch):
    campaign(tmp_path / "results", 1.2, rounds=1)
    plan = tmp_path / "results/c/plan.json"
    plan.write_text(plan.read_text().replace("--campaign c", "--campaign c --results elsewhere"))
    monkeypatch.chdir(tmp_path)
    found = asked.compared(("old", "new"), "c", Path("results"), None)[0]
    assert found.next_step.startswith(COMMAND.replace("--rounds 4", "--rounds 3") + "  # ")


def test_too_few_rounds_say_what_a_verdict_takes(tmp_path):
    campaign(tmp_path, 1.2, rounds=1)
    found = compared(tmp_path)
    assert found.next_step == (
        f"{COMMAND.replace('--rounds 4', '--rounds 3')}  # 2 more rounds, which a verdict needs, about 100 s"
    )
    assert found.cases[0].next_step == (
        "measure at least 2 more rounds (cuda-gains run: raise --rounds by 2; about 100 s)"
    )


def test_the_command_ends_with_the_answer_and_a_line_that_can_be_pasted(tmp_path):
    campaign(tmp_path, 1.0, NOISY)
    words = ["compare", "old", "new", "--campaign", "c", "--results", str(tmp_path)]
    *lines, last = CliRunner().invoke(app, words, env={"COLUMNS": "60"}).stdout.splitlines()
    answer = " ".join(map(str.strip, lines[-3:]))
    assert "Should we upgrade? That cannot be said yet: 2 of 2 cases are unclear." in answer
    assert last == f"next: {compared(tmp_path).next_step}"
    page = CliRunner().invoke(app, [*words, "--format", "md"]).stdout
    assert page.splitlines()[-3].startswith("Should we upgrade? ")
    assert page.splitlines()[-1].startswith(f"next: `{last.removeprefix('next: ').partition('  # ')[0]}` (")
    document = json.loads(CliRunner().invoke(app, [*words, "--format", "json"]).stdout)
    assert document["upgrade"] in answer
    assert document["next_step"] == compared(tmp_path).next_step


def test_without_a_plan_or_a_record_there_is_no_price(tmp_path):
    campaign(tmp_path, 1.0, NOISY)
    for path in (tmp_path / "c/rounds").iterdir():
        path.write_text("{")
    assert "about" not in compared(tmp_path).next_step.rpartition(" case")[2]
    (tmp_path / "c/plan.json").unlink()
    found = compared(tmp_path)
    assert re.fullmatch(r"about \d+ more rounds? should settle \d unclear cases?", found.next_step)


def test_more_runs_of_a_contrast_are_the_command_that_made_the_others(tmp_path):
    arms = [synthetic.SyntheticCase(Case("conv", "op", {"mode": mode})) for mode in ("off", "on")]
    known = {"interleaved": False, "null": False, "measured": arms, "samples": 5, "rounds": 1}
    synthetic.write_campaign(tmp_path, "local", {"here": 1.0}, **known)
    (side,) = sides.several(["here"], "local", tmp_path)
    runs = side.data.runs

    def step(*commands):
        runs["command"] = list(commands)
        runs["ended_at"] = runs["started_at"] + pd.Timedelta(60, "s")
        found = compare.contrast(side, "mode", "off", "on")
        return ahead.told(found, (side,), tmp_path).next_step

    why = "2 more runs, which a verdict needs, about 2 min"
    assert step("pytest benchmarks --quick") == f"pytest benchmarks --quick  # {why}"
    assert step("imported by nccl-tests") == why
    runs["round"] = "r0"
    assert step("pytest benchmarks --quick").startswith("2 more runs, which a verdict needs")


def plain(folder, names=("before", "after"), stacks=("here", "here"), rounds=6, measured=CASES):
    known = {"interleaved": False, "null": False, "measured": measured, "samples": 5, "rounds": rounds}
    for seed, (name, stack) in enumerate(zip(names, stacks, strict=True)):
        synthetic.write_campaign(
            folder, name, {stack: 1.0}, seed=seed, policy="quick", noise=Noise(process_sd=0.02), **known
        )
    pair = sides.several(names, None, folder)
    for side in pair:  # a made-up run has no end
        side.data.runs["ended_at"] = side.data.runs["started_at"] + pd.Timedelta(60, "s")
    return ahead.told(compare.compare(*pair), pair, opened(folder).folder)


def test_more_runs_do_not_mend_what_was_not_interleaved(tmp_path):
    found = plain(tmp_path, ("first", "second"), ("cu124", "here"))
    assert found.next_step == (
        "cuda-gains run --stack cu124 --stack here --rounds 10 --family canary --family launch --quick "
        "--campaign cu124-vs-here  # more runs do not mend what was not interleaved, rounds of both do, "
        "about 30 min"
    )
    (row, *_) = [row for row in (*found.canaries, *found.cases) if row.lacking]
    more = f"{row.lacking} more run{'s' * (row.lacking > 1)} on each side"
    assert row.next_step == (
        f"about {more} should settle its size, not its cause: measure both in interleaved rounds to tell the "
        f"stack from the session (about {duration_text(120 * row.lacking)})"
    )


def test_the_rounds_proposed_hold_canaries_where_the_runs_held_none(tmp_path):
    found = plain(tmp_path, ("first", "second"), ("cu124", "here"), 3, synthetic.cases(1))
    assert " --family canary --family launch " in found.next_step


def test_the_price_is_of_the_families_that_are_asked_for(tmp_path):
    """A run of 60 s on each side, in 45 s of which one side measured a family that the other did not."""
    other = [dataclasses.replace(one, case=Case("ladder", "op", {"i": i})) for i, one in enumerate(CASES)]
    known = {"interleaved": False, "null": False, "samples": 5, "rounds": 6}
    synthetic.write_campaign(tmp_path, "first", {"here": 1.0}, measured=CASES, **known)
    synthetic.write_campaign(tmp_path, "second", {"here": 1.0}, measured=[*CASES, *other], **known)
    pair = sides.several(["first", "second"], None, tmp_path)
    for side in pair:
        runs, cases = side.data.runs, side.data.cases
        runs["ended_at"] = runs["started_at"] + pd.Timedelta(60, "s")
        began = cases["run_id"].map(runs.set_index("run_id")["started_at"])
        late = (cases["family"] == "ladder").map({True: 5, False: 50})  # it is measured from 5 s to 50 s
        cases["started_at"] = began + pd.to_timedelta(late, "s")
    found = ahead.told(compare.compare(*pair), pair, opened(tmp_path).folder)
    assert " --family ladder" not in found.next_step
    takes = duration_text(10 * (2 * 60 + 15))  # the newer environment is the one that measured more
    assert f"rounds of both do, about {takes};" in found.next_step


def test_one_environment_before_and_after_has_to_be_kept_to_be_interleaved(tmp_path):
    found = plain(tmp_path, rounds=1)
    command, _, why = found.next_step.partition("  # ")
    assert command.startswith("cuda-gains run --stack OLDER --stack here --rounds 10 ")
    assert why == (
        "more runs do not mend what was not interleaved, rounds of both do, about 30 min; a verdict without "
        "them needs 2 more runs on each side; OLDER is the earlier environment, kept as a stack "
        "(docs/stacks-and-campaigns.md)"
    )


def test_a_machine_that_changed_is_not_mended_by_rounds(tmp_path):
    moving = [dataclasses.replace(one, scale={}) for one in CASES]
    campaign(tmp_path, 1.3, measured=moving)
    assert compared(tmp_path).next_step.startswith(
        "cuda-gains doctor  # no rounds mend a machine that changed"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (119, "119 s"), (120, "2 min"), (840, "14 min"), (5400, "1.5 h"), (4e5, "5 days")],
)
def test_a_duration_is_rough(seconds, text):
    assert duration_text(seconds) == text
