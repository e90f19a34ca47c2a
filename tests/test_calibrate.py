"""A stack against itself: the share of false alarms, what can be seen past the noise, and who is told."""

import dataclasses
import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
from rich.console import Console
from synthetic import Noise
from typer.testing import CliRunner

from bench_lib import cli
from bench_lib.comparing import calibrate, compare, sides, stats
from bench_lib.comparing.changes import Change, Comparison
from bench_lib.comparing.matching import Row
from bench_lib.comparing.pairing import Values
from bench_lib.comparing.verdicts import Pairing, changes
from bench_lib.errors import UsageError
from bench_lib.model import Case
from bench_lib.pages import asked, calibrate_page, page, terminal

RESULTS = Path(__file__).parents[1] / "results"
ROUNDS = "h200-cudart-rounds"


def rows(log_ratios, margin=0.02, step=0.0):
    """Cases with these log ratios, a row each; NaN where a case lacks the round."""
    found = []
    for i, line in enumerate(np.asarray(log_ratios)):
        there = np.isfinite(line)
        ones, others = (1.0,) * int(there.sum()), tuple(np.exp(line[there]))
        names = tuple(f"round-{k}" for k in np.flatnonzero(there))
        values = Values(ones, others, tuple(line[there]), names)
        found.append(Row(f"f/op[i={i}]", "seconds", "f", "op", {"i": i}, "time", margin, step, values))
    return found


def null(log_ratios, pairing=Pairing.ROUNDS, **more):
    """A comparison of `old` with its repeat that found these log ratios, cases x rounds."""
    cases = changes(rows(log_ratios, **more), pairing)
    return Comparison("old", "old#2", "demo", True, pairing, (), "nothing differs", (), False, cases)


def noise(cases=200, n=10, sd=0.01, seed=0, shared=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(0, sd, (cases, n)) + rng.normal(0, shared, n)


def detections(effect, sd, n, runs=4000):
    log_ratios = np.random.default_rng(3).normal(effect, sd, (runs, n))
    return stats.paired(log_ratios, np.zeros(runs)).differs().mean()


# --- false alarms -----------------------------------------------------------------------------------


def test_one_case_in_twenty_differs_from_itself_and_none_beyond_the_margin():
    found = calibrate.calibrate(null(noise(2000)))
    assert found.differing / 2000 == pytest.approx(0.05, abs=0.012)
    assert found.swapped_share == pytest.approx(0.05, abs=0.005)
    assert (found.beyond, found.pairs, found.doubts) == (0, 10, ())


@pytest.mark.parametrize(("n", "swaps"), [(3, 4), (10, 512), (12, 2048), (13, stats.SOME_SWAPS), (40, 2048)])
def test_all_swaps_are_tried_up_to_twelve_rounds_and_a_seeded_sample_beyond(n, swaps):
    found = calibrate.calibrate(null(noise(300, n=n)))
    assert found.swaps == swaps
    assert found.swapped_share == pytest.approx(0.05, abs=0.015)
    assert found == calibrate.calibrate(null(noise(300, n=n)))


def test_swaps_are_those_of_a_plain_loop():
    log_ratios = noise(7, n=5, sd=0.5) + 0.3
    log_ratios[2, 1] = log_ratios[3, [0, 4]] = np.nan
    floor = np.full(7, 0.01)
    found = stats.swapped(log_ratios, floor)
    assert found.shape == (7, 16)
    for column in range(16):
        signs = [1, *(-1 if column >> bit & 1 else 1 for bit in range(4))]
        expected = stats.paired(log_ratios * np.array(signs), floor).differs()
        assert found[:, column].tolist() == expected.tolist()
    assert 0 < found.mean() < 1


def test_a_repeat_that_is_not_alike_is_doubted():
    found = calibrate.calibrate(null(noise() + 0.004))
    assert found.as_far < 0.01
    assert found.beyond == 0
    assert "the repeat is not like the baseline" in found.doubts[0]
    assert found.swapped_share == pytest.approx(0.05, abs=0.02)  # swaps take the difference out


@pytest.mark.parametrize("n", [6, 8, 10])
def test_a_difference_beyond_the_margin_is_doubted(n):
    found = calibrate.calibrate(null(noise(n=n) + 0.05))
    assert found.beyond == 200
    assert found.as_far == 1 / found.swaps  # no swap sets the two further apart
    assert "200 of 200 cases differ from themselves beyond the margin" in found.doubts[0]


def test_cases_that_share_their_runs_are_no_more_often_doubted():
    """A shared round effect makes cases differ together; the swaps know it, counting cases would not."""
    found = [calibrate.calibrate(null(noise(40, 8, 0.003, seed, shared=0.01))) for seed in range(80)]
    assert np.mean([one.as_far < 0.05 for one in found]) < 0.12
    assert np.mean([one.differing > 0.15 * 40 for one in found]) > 0.04  # clumps do occur


def test_intervals_that_are_too_narrow_are_doubted_where_many_cases_show_it():
    """Values that differ in sign alone: each case differs from itself in 1 of 8 swaps, 5 % are expected."""
    signs = np.sign(noise(60, 4))
    many, few = (calibrate.calibrate(null(0.005 * signs[:n])) for n in (60, 3))
    assert many.swapped_share == few.swapped_share == 1 / 8
    assert many.doubts[-1] == (
        "over all swaps 12.5 % of the cases differ, more than 8 %, so the intervals are too narrow here"
    )
    assert not [doubt for doubt in few.doubts if "narrow" in doubt]
    scattered = dataclasses.replace(many, swapped_low=0.04)
    assert not [doubt for doubt in scattered.doubts if "narrow" in doubt]


def test_a_machine_that_supports_few_margins_is_too_noisy_for_a_verdict():
    """Whatever else is well: none of five cases supported is no machine to compare on."""
    supported = calibrate.calibrate(null(noise(5, sd=0.001)))
    noisy = calibrate.calibrate(null(noise(5, sd=3.0)))
    half = dataclasses.replace(supported, cases=supported.cases[:3] + noisy.cases[:3])
    assert (supported.too_noisy, half.too_noisy, noisy.doubts) == ("", "", ())
    less = dataclasses.replace(supported, cases=supported.cases[:2] + noisy.cases[:3])
    assert "with 10 rounds: they are supported in 2 of 5 cases; quiet the machine " in less.too_noisy
    assert noisy.too_noisy.endswith(
        "supported in none of 5 cases; quiet the machine "
        "(cuda-gains doctor names what disturbs it) or measure more rounds"
    )
    said, well = (page.markdown("", calibrate_page.sections(one)) for one in (noisy, supported))
    assert noisy.too_noisy in said
    assert "too noisy" in json.loads(calibrate_page.json(noisy))["too_noisy"]
    assert ("Nothing here speaks against" in well, "Nothing here speaks against" in said) == (True, False)
    assert "> 1000 %, half of the cases" in said.replace("\\", "")
    assert max(int(number) for number in re.findall(r"(\d+) %", said)) <= 1000


def test_identical_medians_on_a_coarse_clock_do_not_differ():
    found = calibrate.calibrate(null(np.zeros((5, 4)), step=0.01))
    assert (found.differing, found.swapped_share, found.doubts) == (0, 0.0, ())
    assert found.cases[0].sd == pytest.approx(0.01 / math.sqrt(6))


# --- what can be seen -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 10, 20])
def test_the_smallest_effect_is_found_four_times_in_five(n):
    effect = float(stats.resolved(np.array([0.01]), np.array([n]))[0])
    assert detections(effect, 0.01, n) == pytest.approx(stats.POWER, abs=0.03)


@pytest.mark.parametrize("effect", calibrate.EFFECTS)
def test_the_rounds_for_an_effect_are_the_fewest_that_resolve_it(effect):
    sd, size = np.array([0.001, 0.01, 0.05]), math.log1p(effect)
    n = stats.rounds_to_resolve(sd, size)
    assert (stats.resolved(sd, n) <= size).all()
    more = n > stats.FEWEST
    assert (stats.resolved(sd[more], n[more] - 1) > size).all()
    assert more.any()


def test_no_number_of_rounds_is_advice_for_a_case_that_is_all_noise():
    assert stats.rounds_to_resolve(np.array([3.0]), 0.01)[0] > stats.MOST_ROUNDS


def test_each_case_tells_its_noise():
    found = calibrate.calibrate(null(noise(1, 10, 0.02)))
    case = found.cases[0]
    half = math.log(case.high / case.low) / 2
    assert case.run_sd == pytest.approx(case.sd / math.sqrt(2))
    assert case.supports == pytest.approx(math.exp(2 * half) - 1)
    assert case.resolves == pytest.approx(math.expm1(stats.resolved(np.array([case.sd]), np.array([10]))[0]))
    assert case.rounds[0] > case.rounds[1] > case.rounds[2]
    inside = calibrate.calibrate(null(noise(1, 10, 0.02), Pairing.RUNS)).cases[0]
    assert inside.run_sd == inside.sd


def test_cases_with_too_few_rounds_are_named():
    log_ratios = noise(3, 6)
    log_ratios[1, 2:] = np.nan
    found = calibrate.calibrate(null(log_ratios))
    assert len(found.cases) == 2
    assert found.left_out == (("f/op[i=1]", "2 pairs, 3 needed"),)


@pytest.mark.parametrize(
    ("comparison", "said"),
    [
        (null(noise(3, 2)), "no case has 3 pairs"),
        (dataclasses.replace(null(noise(3, 5)), pairing=Pairing.UNPAIRED), "no round holds both"),
    ],
)
def test_nothing_to_calibrate_by(comparison, said):
    with pytest.raises(UsageError, match=said):
        calibrate.calibrate(comparison)
    assert calibrate.quoted(comparison) == ""


# --- by place in the round --------------------------------------------------------------------------


def runs(places):
    """Runs of rounds in which `old` and `old#2` stood at these places, three places a round."""
    found = [
        (f"round-{i}", arm, at)
        for i, pair in enumerate(places)
        for arm, at in zip(("old", "old#2"), pair, strict=True)
    ]
    return pd.DataFrame(found, columns=["round", "arm", "position"])


def test_what_runs_first_and_is_slower_for_it_is_found():
    places = [(0, 1), (1, 0), (2, 0), (0, 2), (1, 2), (2, 1)] * 2
    first = np.array([{0: -1, 1: 1}.get(pair.index(0), 0) if 0 in pair else 0 for pair in places])
    log_ratios = noise(100, 12, 0.005) + 0.05 * first
    found = calibrate.calibrate(null(log_ratios), runs(places))
    place = {one.part: one for one in found.places}
    assert list(place) == ["first", "middle", "last"]
    assert (place["first"].pairs, place["first"].differing) == (8, 100)
    assert place["first"].ratio == pytest.approx(1.05, abs=0.005)
    assert place["first"].as_far < 0.05
    assert found.differing < 20  # over all rounds it falls on both alike


def test_two_places_are_first_and_last():
    found = calibrate.calibrate(null(noise(20, 6)), runs([(0, 1), (1, 0)] * 3))
    assert [(one.part, one.pairs) for one in found.places] == [("first", 6), ("last", 6)]
    assert found.places[0].ratio == pytest.approx(1 / found.places[1].ratio)


def test_a_part_with_too_few_rounds_is_left_out():
    found = calibrate.calibrate(null(noise(20, 5)), runs([(0, 1), (0, 1), (1, 2), (1, 2), (1, 2)]))
    assert [one.part for one in found.places] == ["middle", "last"]


def test_runs_that_do_not_say_their_place_have_no_parts():
    unknown = runs([(0, 1), (1, 0)] * 3).assign(position=None)
    assert calibrate.calibrate(null(noise(20, 6)), unknown).places == ()


# --- campaigns on disk ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """`planted`: half of the cases of `new` take twice the margin and a point more, half of it the others."""
    folder = tmp_path_factory.mktemp("results")
    measured = [
        synthetic.replace(case, scale={"new": 1.05 if i % 2 else 1.01})
        for i, case in enumerate(synthetic.cases(10, margin=0.02))
    ]
    stacks = {"old": 1.0, "new": 1.0}
    synthetic.write_campaign(
        folder, "planted", stacks, measured=[*synthetic.canaries(), *measured], samples=10
    )
    bare = {"null": False, "measured": synthetic.cases(1), "samples": 3, "rounds": 3}
    synthetic.write_campaign(folder, "bare", stacks, **bare)
    for number in range(4):
        series = [
            synthetic.measurement(
                synthetic.SyntheticCase(Case("ladder", "launch", {"runtime": runtime}), margin=0.01),
                synthetic.times(np.random.default_rng(10 * number + i), 1e-6, Noise(), 5),
            )
            for i, runtime in enumerate(("11.8", "11.8#2", "12.4"))
        ]
        info = synthetic.run_info("ladder", "here")
        synthetic.write_run(folder, info, synthetic.identity(synthetic.Machine()), series)
    return folder


def test_a_slow_down_beyond_the_margin_is_found_in_ten_rounds_and_one_of_half_of_it_is_not(results):
    found = asked.calibrated(None, "planted", results, None)
    assert found.beyond == 0
    assert all(case.supports <= case.margin for case in found.cases)  # so ten rounds must do
    comparison, _ = asked.compared(["old", "new"], "planted", results, None)
    by_size = {row.params["size"]: row.change for row in comparison.cases}
    planted = {2**i: i % 2 for i in range(10)}
    assert {size for size, change in by_size.items() if change is Change.SLOWER} == {
        size for size, slow in planted.items() if slow
    }
    assert Change.FASTER not in by_size.values()


def test_a_comparison_quotes_it_in_one_line(results):
    notes = asked.compared(["old", "new"], "planted", results, None)[0].notes
    quotes = [note for note in notes if note.startswith("A/A: ")]
    assert len(quotes) == 1
    assert "old and its repeat differ in " in quotes[0]
    assert " of 12 cases (5 % expected), beyond the margin in none; " in quotes[0]
    assert quotes[0].endswith("over all swaps of the two (see cuda-gains calibrate)")


def test_a_doubt_is_quoted_in_capitals():
    assert "DOUBT THE CHANGES BELOW: 200 of 200 cases" in calibrate.quoted(null(noise() + 0.05))
    assert "DOUBT" not in calibrate.quoted(null(noise() + 0.05), moved=False)


@pytest.mark.parametrize(
    ("names", "campaign"),
    [(["old", "old#2"], "planted"), (["new", "old"], "planted"), (["old", "new"], "bare")],
)
def test_no_quote_where_there_is_no_repeat_or_it_is_a_side_itself(results, names, campaign):
    notes = asked.compared(names, campaign, results, None)[0].notes
    assert not [note for note in notes if "its repeat" in note]


def test_a_contrast_quotes_the_second_copy_of_its_baseline(results):
    comparison, _ = asked.compared([], "ladder", results, "runtime=11.8:12.4")
    assert any(note.startswith("A/A: runtime=11.8 and its repeat differ in ") for note in comparison.notes)
    itself, _ = asked.compared([], "ladder", results, "runtime=11.8:11.8#2")
    assert not any("A/A" in note for note in itself.notes)


def test_a_contrast_is_calibrated_over_its_runs(results):
    found = asked.calibrated(None, "ladder", results, "runtime=11.8:11.8#2")
    assert (found.pairing, found.pairs, found.swaps, found.places) == ("runs", 4, 8, ())
    assert [case.case_id for case in found.cases] == ["ladder/launch"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((None, "bare", None), "campaign 'bare' holds no stack twice"),
        (("new", "planted", None), "no stack 'new' that was measured twice a round in campaign 'planted'"),
        ((None, "ladder", "runtime=11.8:12.4"), "name 11.8:11.8#2"),
        ((None, "ladder", "runtime=11.8"), "is not PARAMETER=BASELINE:CANDIDATE"),
        ((None, "nothing", None), "no campaign 'nothing'"),
    ],
)
def test_wrong_use_says_what_there_is(results, arguments, said):
    stack, campaign, contrast = arguments
    with pytest.raises(UsageError, match=said):
        asked.calibrated(stack, campaign, results, contrast)


@pytest.mark.parametrize("flag", ["", "preempted"])
def test_too_few_pairs_say_how_many_there_are_what_was_left_out_and_what_to_do(tmp_path, flag):
    case, rounds = synthetic.SyntheticCase(Case("f", "op")), 2 if not flag else 3
    for number in range(rounds):
        for arm in ("here", "here#2"):
            bad = flag and number and arm == "here"
            info = synthetic.run_info("c", arm, stack="here", round=f"r{number}")
            row = synthetic.measurement(case, [1e-3] * 10, flags=[flag] * 10 if bad else ())
            synthetic.write_run(tmp_path, info, synthetic.identity(synthetic.Machine()), [row])
    with pytest.raises(UsageError) as caught:
        asked.calibrated(None, "c", tmp_path, None)
    flagged = (
        "(the most are 1); runs of 1 case are left out, over 10 % of their samples are flagged; end the load "
        "that takes the cores away (other programs, too few cores), then measure at least 2 more rounds "
        "(cuda-gains run: raise --rounds by 2)"
    )
    plain = "(the most are 2); measure at least 1 more round (cuda-gains run: raise --rounds by 1)"
    assert str(caught.value) == f"no case has 3 pairs of 'here' and 'here#2' {flagged if flag else plain}"


@pytest.mark.parametrize("form", ["table", "json", "md"])
def test_the_command_prints_it(results, form):
    arguments = ["calibrate", "--campaign", "planted", "--results", str(results), "--format", form]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.output
    if form == "json":
        document = json.loads(done.output)
        assert document["cases"][0]["rounds"].keys() == {"0.01", "0.02", "0.05"}
        assert (document["beyond"], document["doubts"]) == (0, [])
    else:
        for word in ("By family", "By place in the round", "launch/op", "of 12 cases", "How to read this"):
            assert word in done.output


def test_a_hostile_name_steers_neither_terminal_nor_markup(capsys):
    name = "\x1b[31m[bold]|<b>`x`"
    found = dataclasses.replace(calibrate.calibrate(null(noise(2, 4))), baseline=name)
    calibrate_page.show(found, "table")
    assert "\x1b[31m" not in capsys.readouterr().out
    assert "<b>" not in page.markdown(calibrate_page.title(found), calibrate_page.sections(found))


def test_the_shipped_campaign_is_calibrated():
    a, b, every = sides.repeated(None, ROUNDS, RESULTS)
    found = calibrate.calibrate(compare.compare(a, b), every)
    assert (found.baseline, found.pairs, found.swaps, len(found.cases)) == ("cudart-11.8", 10, 512, 16)
    assert found.doubts == ()
    assert found.swapped_share == pytest.approx(0.05, abs=0.015)
    assert [place.part for place in found.places] == ["first", "middle", "last"]
    supported = {case.case_id for case in found.cases if case.supports <= case.margin}
    assert "canary/sm_spin" in supported
    assert not any("metric=submit" in name for name in supported)


def test_a_narrow_terminal_wraps_names_and_loses_nothing():
    found = calibrate.calibrate(null(noise(2, 4)))
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, no_color=True)
    terminal.show(calibrate_page.title(found), calibrate_page.sections(found), console)
    letters = re.sub(r"\x1b\[[0-9;]*m|\s", "", out.getvalue())
    for text in (f"{found.cases[0].high:.3f}]", "for5%", "f/op", "HowtoreadThis".lower()):
        assert text.lower() in letters.lower()
