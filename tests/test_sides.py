import json

import pytest
import synthetic

from bench_lib.comparing import sides
from bench_lib.errors import DataError, UsageError

ONE = synthetic.cases(1)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    stacks = {"cudart-11.8": 1.0, "cudart-12.4": 1.0}
    synthetic.write_campaign(folder, "ladder", stacks, rounds=2, measured=ONE, samples=3)
    for name in ("before", "after"):
        plain = {"interleaved": False, "null": False, "measured": ONE, "samples": 3}
        synthetic.write_campaign(folder, name, {"here": 1.0}, rounds=2, **plain)
    synthetic.write_campaign(folder, "null", {"here": 1.0}, rounds=2, measured=ONE, samples=3)
    (folder / ".scratch").mkdir()
    (folder / "empty").mkdir()
    (folder / "README.md").write_text("not a campaign\n")
    return folder


def arms(side):
    return sorted(set(side.data.runs["arm"]))


@pytest.mark.parametrize(
    ("text", "campaign", "expected", "runs"),
    [
        ("cudart-11.8", "ladder", ["cudart-11.8"], 2),
        ("cudart-11.8#2", "ladder", ["cudart-11.8#2"], 2),
        ("ladder/cudart-12.4", None, ["cudart-12.4"], 2),
        ("ladder/cudart-12.4", "before", ["cudart-12.4"], 2),
        ("before", None, ["here"], 2),
        ("before", "ladder", ["here"], 2),
        ("null", None, ["here"], 2),
        ("null/here#2", None, ["here#2"], 2),
    ],
)
def test_a_name_is_resolved_to_runs(results, text, campaign, expected, runs):
    side = sides.resolve(text, campaign, results)
    assert side.label == text
    assert arms(side) == expected
    assert len(side.data.runs) == runs
    assert set(side.data.cases["run_id"]) == set(side.data.runs["run_id"])
    assert set(side.data.samples["run_id"].to_pylist()) == set(side.data.runs["run_id"])


@pytest.mark.parametrize(
    ("text", "campaign", "said"),
    [
        ("cudart-12.5", "ladder", r"no stack or arm 'cudart-12.5' in campaign 'ladder'.*did you mean"),
        ("ladder/cudart-12.5", None, r"no stack or arm 'cudart-12.5'.*'cudart-12.4'"),
        (
            "beforre",
            None,
            r"no campaign 'beforre' under .*there: before, after, ladder, null; did you mean 'before'",
        ),
        ("cudart-11.8", None, r"name one that holds cudart-11.8: --campaign ladder"),
        ("x", "laddder", r"no campaign 'laddder'.*did you mean 'ladder'"),
        ("nowhere/here", None, r"no campaign 'nowhere'"),
        ("ladder", None, r"campaign 'ladder' holds 2 stacks; name one of them, such as ladder/cudart-11.8"),
        ("empty", None, r"no campaign 'empty'"),
        ("../results", None, r"campaign name '..'"),
    ],
)
def test_a_wrong_name_is_answered_with_what_exists(results, text, campaign, said):
    with pytest.raises(UsageError, match=said) as caught:
        sides.resolve(text, campaign, results)
    assert "\n" not in str(caught.value)


def test_a_campaign_without_a_finished_round_says_how_to_go_on(tmp_path):
    """Stopped in the first stack of its first round: nothing is there, or one stack alone."""
    command = "cuda-gains run --stack old --stack new --rounds 5 --campaign begun"
    plan = {"stacks": ["old", "new"], "null": True, "rounds": 5, "command": command}
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/plan.json").write_text(json.dumps(plan))
    said = f"campaign 'begun' has 0 finished rounds of 5, .* go on with it: {command}$"

    def refused(ask, *words):
        with pytest.raises(UsageError, match=said):
            ask(*words, tmp_path)

    refused(sides.pair, "old", "new", "begun")
    refused(sides.pair, "begun", "begun", None)
    refused(sides.repeated, None, "begun")
    synthetic.write_campaign(tmp_path, "begun", {"old": 1.0}, rounds=1, null=False, measured=ONE)
    refused(sides.pair, "old", "new", "begun")
    refused(sides.pair, "begun/old", "begun/new", None)
    refused(sides.repeated, None, "begun")
    with pytest.raises(UsageError, match=r"no stack or arm 'newer' in campaign 'begun'; there: old$"):
        sides.pair("old", "newer", "begun", tmp_path)


def test_no_results_at_all(tmp_path):
    with pytest.raises(UsageError, match="there: none"):
        sides.resolve("before", None, tmp_path / "results")


def test_a_campaign_with_nothing_readable_names_the_file(tmp_path):
    synthetic.write_campaign(tmp_path, "bad", {"here": 1.0}, rounds=1, null=False, measured=ONE)
    for path in (tmp_path / "bad" / "runs").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UsageError, match=r"holds no run that can be read \(.*\.parquet"):
        sides.resolve("bad", None, tmp_path)


def test_a_json_file_is_a_side(results, tmp_path):
    info = synthetic.run_info("local", "here")
    rows = [synthetic.measurement(ONE[0], [1e-6, 2e-6])]
    machine = synthetic.identity(synthetic.Machine())
    journal = synthetic.write_run(tmp_path, info, machine, rows, finish=False)
    path = synthetic.write_json(tmp_path / "before.json", journal)
    side = sides.resolve(str(path), "ladder", results)
    assert (side.label, side.campaign, len(side.data.runs)) == ("before.json", "local", 1)


def test_two_json_files_of_one_name_keep_apart(results, tmp_path):
    paths = []
    for folder in ("a", "b"):
        info = synthetic.run_info("local", "here")
        rows = [synthetic.measurement(ONE[0], [1e-6, 2e-6])]
        machine = synthetic.identity(synthetic.Machine())
        journal = synthetic.write_run(tmp_path / folder, info, machine, rows, finish=False)
        paths.append(str(synthetic.write_json(tmp_path / folder / "run.json", journal)))
    a, b = sides.pair(*paths, None, results)
    assert (a.label, b.label) == tuple(paths)


def test_a_json_file_that_is_not_there(results):
    with pytest.raises(DataError, match=r"absent\.json"):
        sides.resolve("absent.json", None, results)


def test_a_pair_reads_its_campaign_once(results, monkeypatch):
    loads = []
    load = sides.store.load
    monkeypatch.setattr(sides.store, "load", lambda *args: loads.append(args) or load(*args))
    a, b = sides.pair("cudart-11.8", "cudart-12.4", "ladder", results)
    assert (arms(a), arms(b)) == (["cudart-11.8"], ["cudart-12.4"])
    assert len(loads) == 1


def test_the_side_of_a_contrast_is_the_whole_stack(results):
    assert arms(sides.whole_stack(None, "null", results)) == ["here", "here#2"]
    assert arms(sides.whole_stack("here", "null", results)) == ["here", "here#2"]
    assert arms(sides.whole_stack("here#2", "null", results)) == ["here#2"]
    assert arms(sides.whole_stack("null", None, results)) == ["here", "here#2"]


def test_a_contrast_needs_a_campaign_and_one_stack(results):
    with pytest.raises(UsageError, match=r"no campaign is named.*before"):
        sides.whole_stack(None, None, results)
    with pytest.raises(UsageError, match="holds 2 stacks"):
        sides.whole_stack(None, "ladder", results)


def test_both_sides_joined(results):
    a, b = sides.pair("cudart-11.8", "before", "ladder", results)
    data = sides.joined(a, b)
    assert len(data.runs) == len(data.cases) == 4
    assert data.samples.num_rows == 12
