"""What Prometheus and a CI system read: valid by their own parsers, and with the right states."""

import xml.etree.ElementTree as ET
from collections import Counter

import pytest
import synthetic
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families
from typer.testing import CliRunner

from bench_lib import cli
from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.formats import junit, openmetrics

HOSTILE = 'a "quoted" \\back\\slash\nnew line <b>&amp;\x00\x1b[31m{x="y"} é'


def row(change=Change.SAME, **fields):
    known = {
        "case_id": "launch/op[size=1]",
        "family": "launch",
        "op": "op",
        "params": {"size": 1},
        "metric": "submit",
        "change": change,
        "reason": "2 % less time, within the margin of 5 %",
        "next_step": "none: settled",
        "n": 10,
        "baseline": 3.1e-6,
        "candidate": 3.0e-6,
        "ratio": 0.98,
        "low": 0.97,
        "high": 0.99,
    }
    return CaseChange(**{**known, **fields})


def comparison(**fields):
    known = {
        "baseline": "old",
        "candidate": "new",
        "campaign": "demo",
        "interleaved": True,
        "pairing": "rounds",
        "differences": (),
        "attribution": "cudart 11.8 -> 12.4",
        "canaries": (row(family="canary", case_id="canary/spin"),),
        "canaries_moved": False,
        "cases": (row(Change.FASTER, case_id="launch/a"), row(Change.SLOWER, case_id="launch/b")),
        "quantities": (row(unit="peak_nbytes", baseline=1e9, candidate=9e8),),
        "left_out": (("launch/z", "new: not measured"),),
    }
    return Comparison(**{**known, **fields})


def samples(text: str) -> list:
    """Every sample, read by the strict parser of OpenMetrics and by that of the older text form."""
    strict = [sample for family in openmetrics_families(text) for sample in family.samples]
    older = [sample for family in text_families(text) for sample in family.samples]
    assert [(s.name, s.labels, s.value) for s in strict] == [(s.name, s.labels, s.value) for s in older]
    return strict


def named(text: str, name: str, **labels: str) -> list:
    found = [sample for sample in samples(text) if sample.name == f"cuda_gains_{name}"]
    return [sample for sample in found if labels.items() <= sample.labels.items()]


def test_ratio_interval_and_seconds_are_samples_with_labels():
    text = openmetrics.text({"": comparison()})
    assert text.endswith("# EOF\n")
    (ratio,) = named(text, "ratio", case="launch/a")
    assert ratio.value == 0.98
    assert ratio.labels["baseline"] == "old"
    assert ratio.labels["metric"] == "submit"
    assert [named(text, f"ratio_{end}", case="launch/a")[0].value for end in ("low", "high")] == [0.97, 0.99]
    seconds = {sample.labels["side"]: sample.value for sample in named(text, "seconds", case="launch/a")}
    assert seconds == {"baseline": 3.1e-6, "candidate": 3.0e-6}
    assert {sample.labels["unit"] for sample in named(text, "quantity")} == {"peak_nbytes"}


def test_one_state_of_a_change_holds():
    text = openmetrics.text({"": comparison()})
    states = {sample.labels["change"]: sample.value for sample in named(text, "change", case="launch/b")}
    assert states == {**dict.fromkeys(map(str, Change), 0), "slower": 1}
    counts = {sample.labels["change"]: sample.value for sample in named(text, "cases")}
    assert counts == {"faster": 1, "slower": 1, "same": 0, "unclear": 0, "not comparable": 0}
    assert [sample.value for sample in named(text, "canaries_moved")] == [0]


def test_a_case_without_a_ratio_has_its_state_and_no_other_number():
    empty = row(Change.NOT_COMPARABLE, ratio=None, low=None, high=None, baseline=None, candidate=None, n=0)
    text = openmetrics.text({"": comparison(cases=(empty,))})
    assert not named(text, "ratio", kind="case")
    assert not named(text, "seconds", kind="case")
    (state,) = named(text, "change", kind="case", change="not comparable")
    assert state.value == 1


def test_labels_keep_their_letters_and_end_no_line():
    text = openmetrics.text({"": comparison(baseline=HOSTILE, cases=(row(case_id=HOSTILE),))})
    (ratio,) = named(text, "ratio", kind="case")
    shown = HOSTILE.replace("\n", " ").replace("\x00", "\ufffd").replace("\x1b", "\ufffd")
    assert ratio.labels["case"] == ratio.labels["baseline"] == shown


def outcomes(text: str) -> dict[str, str]:
    """By case, the element that says how its test ended; "" for one that passed."""
    kinds = ("failure", "error", "skipped")
    return {
        case.get("name"): next((kind for kind in kinds if case.find(kind) is not None), "")
        for case in ET.fromstring(text).iter("testcase")
    }


def test_slower_fails_a_crash_is_an_error_and_what_is_not_shown_is_skipped():
    rows = {
        "faster": row(Change.FASTER),
        "same": row(Change.SAME),
        "slower": row(Change.SLOWER, reason="11 % more time, beyond the margin of 5 %"),
        "unclear": row(Change.UNCLEAR, next_step="about 7 more rounds should settle it"),
        "other policy": row(Change.NOT_COMPARABLE, ratio=None, reason="policy quick against default"),
        "crashed": row(Change.NOT_COMPARABLE, ratio=None, reason="new: crashed", failed="new"),
        "crashed before": row(Change.NOT_COMPARABLE, ratio=None, reason="old: crashed", failed="old"),
    }
    cases = tuple(CaseChange(**{**vars(one), "case_id": name}) for name, one in rows.items())
    text = junit.text({"": comparison(cases=cases)})
    assert outcomes(text) == {
        "canary/spin": "",
        "faster": "",
        "same": "",
        "slower": "failure",
        "unclear": "skipped",
        "other policy": "skipped",
        "crashed": "error",
        "crashed before": "skipped",
    }
    root = ET.fromstring(text)
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["8", "1", "1", "3"]
    assert root.find(".//failure").get("message").startswith("slower: 11 % more time, beyond the margin")
    assert "about 7 more rounds" in root.find(".//skipped").get("message")
    assert "launch/z: new: not measured" in root.findall("testsuite")[-1].find("system-out").text
    assert Counter(case.get("classname") for case in root.iter("testcase")) == {"launch": 7, "canary": 1}


def test_a_canary_that_moved_is_an_error():
    moved = row(Change.FASTER, family="canary", case_id="canary/spin")
    assert outcomes(junit.text({"": comparison(canaries=(moved,), cases=())})) == {"canary/spin": "error"}


def test_text_of_results_is_no_xml():
    hostile = row(Change.SLOWER, case_id=HOSTILE, reason=HOSTILE, next_step=HOSTILE, family=HOSTILE)
    text = junit.text({"": comparison(baseline=HOSTILE, cases=(hostile,), notes=(HOSTILE,))})
    (name,) = [name for name in outcomes(text) if name != "canary/spin"]
    assert "<b>&amp;" in name
    assert "\x00" not in text


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    stacks = {"one": 1.0, "two": 1.2, "three": 1.2}
    measured = [*synthetic.canaries(), *synthetic.cases(2)]
    synthetic.write_campaign(folder, "demo", stacks, rounds=4, measured=measured, samples=5)
    return folder


@pytest.mark.parametrize("names", [["one", "two"], ["one", "two", "three"]])
def test_the_command_prints_both_of_a_comparison_and_of_a_bridge(results, names):
    def printed(form):
        asked = ["compare", *names, "--campaign", "demo", "--results", str(results), "--format", form]
        done = CliRunner().invoke(cli.app, asked, catch_exceptions=False)
        assert done.exit_code == 0
        return done.stdout

    steps = {sample.labels.get("step", "") for sample in named(printed("openmetrics"), "ratio")}
    suites = [suite.get("name") for suite in ET.fromstring(printed("junit").encode()).iter("testsuite")]
    if len(names) == 2:
        assert steps == {""}
        assert suites == ["two against one: canaries", "two against one: cases"]
    else:
        assert steps == {"step 1", "step 2", "whole"}
        ways = ["step 1 two against one", "step 2 three against two", "whole three against one"]
        assert suites[1::2] == [f"{way}: cases" for way in ways]


def test_a_case_that_the_candidate_crashes_on_is_an_error_from_the_results_on(tmp_path):
    case = synthetic.write_crashing(tmp_path)
    asked = ["compare", "old", "new", "--campaign", "demo", "--results", str(tmp_path), "--format", "junit"]
    done = CliRunner().invoke(cli.app, asked, catch_exceptions=False)
    assert outcomes(done.stdout) == {case.case.case_id: "error"}
