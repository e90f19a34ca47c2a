import math
import re
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import synthetic
from synthetic import Machine, Noise, SyntheticCase

from bench_lib.comparing import compare, sides, verdicts
from bench_lib.comparing.changes import Change, Difference
from bench_lib.comparing.differences import attribution
from bench_lib.comparing.matching import Row
from bench_lib.comparing.pairing import Values
from bench_lib.errors import UsageError
from bench_lib.journaling import journal
from bench_lib.layout import CampaignFolder
from bench_lib.model import Case, Status, Timing
from bench_lib.schema import SCHEMAS
from bench_lib.sections import answer

STACKS = {"old": 1.0, "new": 0.97}
CASE = SyntheticCase(Case("launch", "op", {"metric": "submit"}))
RNG = np.random.default_rng(5)
MACHINE = Machine()
OTHER_MACHINE = Machine("boot-2", "node-2", "GPU-00000000-0000-0000-0000-000000000002")


def compared(results, a="old", b="new", campaign="demo"):
    return compare.compare(*sides.pair(a, b, campaign, results))


def one_run(results, arm, round_id="", *, measured=(CASE,), machine=MACHINE, factor=1.0, stack=None, **more):
    """One run by hand; `measured` holds cases, or measurements as they are to be."""
    fields = {key: more.pop(key) for key in ("device", "policy", "run_id", "started_at") if key in more}
    rows = [
        synthetic.measurement(one, synthetic.times(RNG, one.seconds * factor, Noise(), 20))
        if isinstance(one, SyntheticCase)
        else one
        for one in measured
    ]
    info = synthetic.run_info(more.pop("campaign", "demo"), arm, round=round_id, **fields)
    known = stack or synthetic.cudart("11.8" if arm.startswith("old") else "12.4")
    return synthetic.write_run(results, info, synthetic.identity(machine, known), rows, **more)


def rounds(results, count=5, old=None, new=None, **more):
    """Rounds of `old` and `new`, with options of `one_run` for one of them."""
    for number in range(count):
        one_run(results, "old", f"round-{number}", **{**more, **(old or {})})
        one_run(results, "new", f"round-{number}", **{**more, **(new or {})})


def the_case(comparison):
    assert len(comparison.cases) == 1
    return comparison.cases[0]


def reasons(comparison, name):
    return [why for case, why in comparison.left_out if case == name]


# --- what was put in is found -----------------------------------------------------------------------


def test_each_change_is_found_with_its_ratio(tmp_path):
    truth = {"faster": 0.9, "slower": 1.1, "same": 1.0}
    measured = [
        SyntheticCase(Case("launch", name), scale={"old": 1.0, "new": factor})
        for name, factor in truth.items()
    ]
    synthetic.write_campaign(tmp_path, "demo", STACKS, measured=[*synthetic.canaries(), *measured])
    comparison = compared(tmp_path)
    assert [row.op for row in comparison.cases] == ["faster", "same", "slower"]
    for row in comparison.cases:
        assert row.change == row.op
        assert row.low < truth[row.op] < row.high
        assert row.ratio == pytest.approx(row.candidate / row.baseline)
        assert (row.n, len(row.log_ratios)) == (10, 10)
    assert comparison.counts() == {
        Change.FASTER: 1,
        Change.SLOWER: 1,
        Change.SAME: 1,
        Change.UNCLEAR: 0,
        Change.NOT_COMPARABLE: 0,
    }
    assert (comparison.pairing, comparison.interleaved) == ("rounds", True)
    assert comparison.left_out == ()


def test_a_stack_against_itself_shows_no_change(tmp_path):
    synthetic.write_campaign(tmp_path, "demo", STACKS, measured=synthetic.cases(20))
    comparison = compared(tmp_path, "old", "old#2")
    assert not {Change.FASTER, Change.SLOWER} & {row.change for row in comparison.cases}
    assert comparison.attribution == "nothing differs"
    assert any(note.startswith("A/A") for note in comparison.notes)


def test_drift_over_the_campaign_does_not_move_interleaved_rounds(tmp_path):
    noise = Noise(drift=0.3)
    synthetic.write_campaign(tmp_path, "demo", {"old": 1.0, "new": 1.0}, noise=noise)
    assert {row.change for row in compared(tmp_path).cases} <= {Change.SAME, Change.UNCLEAR}


def test_an_unclear_case_leans_and_says_how_many_rounds(tmp_path):
    noise = Noise(process_sd=0.015)
    synthetic.write_campaign(tmp_path, "demo", {"old": 1.0, "new": 0.975}, measured=[CASE], noise=noise)
    row = the_case(compared(tmp_path))
    assert row.change is Change.UNCLEAR
    assert row.high < 1
    assert row.reason.startswith("leans faster, size not resolved: ")
    assert "the interval reaches across the margin of 2 %" in row.reason
    assert row.next_step.startswith("about ")
    assert row.next_step.endswith(" more rounds should settle it")


def test_a_coarse_clock_gives_no_nan(tmp_path):
    case = synthetic.replace(CASE, seconds=3e-6, timing=Timing.BATCH)
    noise = Noise(process_sd=0.0, sample_sd=0.001, step_seconds=0.5e-6)
    synthetic.write_campaign(tmp_path, "demo", {"old": 1.0, "new": 1.0}, measured=[case], noise=noise)
    row = the_case(compared(tmp_path))
    assert row.ratio == 1.0
    assert row.sd == pytest.approx(0.5 / 3 / 6**0.5)
    assert row.change is Change.UNCLEAR  # a step of 17 % cannot show a margin of 2 %


@pytest.mark.parametrize(
    ("timing", "device", "step"),
    [(Timing.NATIVE, "cuda", 1e-9), (Timing.HOST, "cpu", 1e-9), (Timing.COLD, "cuda", 0.5e-6)],
)
def test_the_floor_is_the_timers_step_divided_by_the_calls(tmp_path, timing, device, step):
    case = synthetic.replace(CASE, timing=timing, calls=4)
    rounds(tmp_path, measured=[synthetic.measurement(case, [100e-6] * 5)], device=device)
    assert the_case(compared(tmp_path)).sd == pytest.approx(step / 4 / 100e-6 / 6**0.5)


def test_without_a_known_step_the_least_gap_of_samples_counts(tmp_path):
    case = synthetic.replace(CASE, timing=Timing.FAKE)
    rounds(tmp_path, measured=[synthetic.measurement(case, [100e-6, 100e-6, 101e-6, 99.5e-6])])
    assert the_case(compared(tmp_path)).sd == pytest.approx(0.5e-6 / 100e-6 / 6**0.5)


# --- pairs ------------------------------------------------------------------------------------------


def test_the_pairs_are_those_of_the_rounds(tmp_path):
    pace = [1.0, 1.5, 0.7, 2.0, 1.2]  # the machine's, different in each round
    for number, factor in enumerate(pace):
        one_run(tmp_path, "new", f"round-{number}", factor=factor * 0.9)
        one_run(tmp_path, "old", f"round-{number}", factor=factor)
    row = the_case(compared(tmp_path))
    assert row.change is Change.FASTER
    assert row.sd < 0.02


@pytest.mark.parametrize(
    "machine", [Machine(boot_id="boot-2"), Machine(gpu_uuid="GPU-00000000-0000-0000-0000-000000000002")]
)
def test_runs_of_other_boots_or_gpus_are_no_pair(tmp_path, machine):
    rounds(tmp_path, 4)
    one_run(tmp_path, "old", "round-9")
    one_run(tmp_path, "new", "round-9", machine=machine)
    comparison = compared(tmp_path)
    row = the_case(comparison)
    assert row.n == 4
    assert "1 round gave no pair" in row.reason
    assert "different boots or GPUs" in reasons(comparison, "round round-9")[0]


def test_cloned_machines_with_one_host_name_are_never_paired(tmp_path):
    clone = Machine(boot_id="boot-2", host="node-1", gpu_uuid="GPU-00000000-0000-0000-0000-000000000002")
    rounds(tmp_path, 4, new={"machine": clone})
    comparison = compared(tmp_path)
    assert comparison.pairing == "unpaired"
    assert the_case(comparison).log_ratios == ()


def test_rounds_of_several_machines_of_one_model_count_together(tmp_path):
    rounds(tmp_path, 3)
    for number in range(10, 13):
        one_run(tmp_path, "old", f"round-{number}", machine=OTHER_MACHINE, factor=2.0)
        one_run(tmp_path, "new", f"round-{number}", machine=OTHER_MACHINE, factor=2.0)
    comparison = compared(tmp_path)
    assert the_case(comparison).n == 6
    assert [one.axis for one in comparison.differences] == ["stack"]


def test_a_run_without_its_partner_is_named(tmp_path):
    rounds(tmp_path, 3)
    one_run(tmp_path, "old", "round-9", run_id="alone")
    one_run(tmp_path, "new", "", run_id="plain")
    comparison = compared(tmp_path)
    assert the_case(comparison).n == 3
    assert "its round holds no run of the other side" in reasons(comparison, "run alone")[0]
    assert reasons(comparison, "run plain")[0].startswith("new: ")


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_pairs_show_the_ratio_and_are_unclear(tmp_path, count):
    rounds(tmp_path, count, new={"factor": 0.5})
    row = the_case(compared(tmp_path))
    assert row.change is Change.UNCLEAR
    assert row.ratio == pytest.approx(0.5, rel=0.1)
    assert (row.n, row.low, row.high, row.q_change) == (count, None, None, None)
    assert row.reason.endswith(f"n is {count}, a verdict needs 3")
    more = ("2 more rounds", "1 more round")[count - 1]
    assert row.next_step == f"measure at least {more} (cuda-gains run: raise --rounds by {3 - count})"


def test_values_that_never_meet_in_a_round_are_unclear(tmp_path):
    other = SyntheticCase(Case("launch", "other"))
    for number in range(4):
        ok, failed = (CASE, other), (synthetic.measurement(CASE, [], status=Status.FAILED), other)
        one_run(tmp_path, "old", f"round-{number}", measured=ok if number % 2 else failed)
        one_run(tmp_path, "new", f"round-{number}", measured=failed if number % 2 else ok)
    row = next(row for row in compared(tmp_path).cases if row.op == "op")
    assert (row.change, row.ratio) == (Change.UNCLEAR, None)
    assert "no round holds a usable value of both sides; 4 rounds gave no pair" in row.reason


def test_a_round_in_two_processes_is_one_pair_a_case(tmp_path):
    """After a crash the rest of the cases run in a new process of the same round and arm."""
    other = SyntheticCase(Case("launch", "other"))
    crashed = synthetic.measurement(CASE, [], status=Status.CRASHED, reason="signal 11")
    for number in range(3):
        one_run(tmp_path, "old", f"round-{number}", measured=(CASE, other))
        one_run(tmp_path, "new", f"round-{number}", measured=(crashed,))
        one_run(tmp_path, "new", f"round-{number}", measured=(other,))
    found = {row.op: row for row in compared(tmp_path).cases}
    assert found["other"].n == 3
    assert found["op"].change is Change.NOT_COMPARABLE
    assert found["op"].reason == "new: crashed: signal 11 (3 runs)"


def test_of_two_values_in_one_round_the_later_counts(tmp_path):
    rounds(tmp_path, 3)
    one_run(tmp_path, "new", "round-0", factor=5.0, started_at=synthetic.EPOCH + 99)
    comparison = compared(tmp_path)
    row = the_case(comparison)
    assert row.n == 3
    assert max(row.log_ratios) == pytest.approx(np.log(5), rel=0.1)
    assert "measured twice in one round" in reasons(comparison, row.case_id)[0]


# --- unpaired ---------------------------------------------------------------------------------------


def test_plain_runs_are_compared_and_called_not_interleaved(tmp_path):
    plain = {"interleaved": False, "null": False, "measured": [CASE], "rounds": 6}
    synthetic.write_campaign(tmp_path, "before", {"here": 1.0}, **plain)
    synthetic.write_campaign(tmp_path, "after", {"here": 0.8}, seed=1, **plain)
    comparison = compared(tmp_path, "before", "after", None)
    row = the_case(comparison)
    assert (comparison.pairing, comparison.interleaved) == ("unpaired", False)
    assert comparison.campaign == "before / after"
    assert (row.change, row.n, row.log_ratios) == (Change.FASTER, 6, ())
    assert row.low < 0.8 < row.high
    assert row.reason.endswith("not interleaved: confounded with the session")
    assert "not interleaved: confounded with the session" in comparison.notes


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 8), (8, 2)])
def test_fewer_than_three_runs_on_a_side_are_unclear(tmp_path, before, after):
    for _ in range(before):
        one_run(tmp_path, "old")
    for _ in range(after):
        one_run(tmp_path, "new", factor=0.5)
    row = the_case(compared(tmp_path))
    assert row.change is Change.UNCLEAR
    assert row.ratio == pytest.approx(0.5, rel=0.1)
    assert (row.n, row.low) == (min(before, after), None)
    more = "2 more runs" if row.n == 1 else "1 more run"
    assert row.next_step.startswith(
        f"measure at least {more} on each side (cuda-gains run: raise --rounds by "
    )


def test_two_json_files(tmp_path):
    files = []
    for arm, factor in (("old", 1.0), ("new", 0.5)):
        path = one_run(tmp_path, arm, factor=factor, finish=False)
        files.append(str(synthetic.write_json(tmp_path / f"{arm}.json", path)))
    comparison = compared(tmp_path, *files, None)
    row = the_case(comparison)
    assert (comparison.baseline, comparison.candidate) == ("old.json", "new.json")
    assert (row.change, row.n) == (Change.UNCLEAR, 1)
    assert row.ratio == pytest.approx(0.5, rel=0.1)


def test_a_side_is_never_compared_with_itself(tmp_path):
    rounds(tmp_path, 3)
    with pytest.raises(UsageError, match=r"'old' and 'demo/old' name the same runs; .*NAME#2"):
        compared(tmp_path, "old", "demo/old")


# --- what may not be compared -----------------------------------------------------------------------

OTHER_GPU = Machine(gpu_name="NVIDIA A100", gpu_uuid="GPU-a")
SLICE = Machine(mig="1g.18gb")


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ({"machine": OTHER_GPU}, "GPU NVIDIA H200 against NVIDIA A100"),
        ({"machine": SLICE}, "MIG slice none against 1g.18gb"),
        ({"device": "cpu"}, "device cuda against cpu, GPU NVIDIA H200 against none"),
        ({"policy": "quick"}, "policy default against quick"),
        ({"measured": [synthetic.replace(CASE, timing=Timing.HOST)]}, "timing native against host"),
        ({"measured": [synthetic.replace(CASE, calls=100)]}, "calls a sample 1 against 100"),
        (
            {"measured": [synthetic.replace(CASE, facts={"precision.matmul": "tf32", "kernels": "k"})]},
            "precision in effect none against matmul tf32",
        ),
    ],
)
@pytest.mark.parametrize("paired", [True, False])
def test_values_measured_differently_are_not_comparable(tmp_path, new, reason, paired):
    for number in range(4):
        name = f"round-{number}" if paired else ""
        one_run(tmp_path, "old", name)
        one_run(tmp_path, "new", name, factor=0.5, **new)
    row = the_case(compared(tmp_path))
    assert (row.change, row.reason, row.ratio) == (Change.NOT_COMPARABLE, reason, None)
    assert row.next_step == "measure both sides in the same way"


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ({"n": 1}, {"n": "1"}, 'parameters {"n":1} against {"n":"1"}'),
        ({"n": True}, {"n": "true"}, 'parameters {"n":true} against {"n":"true"}'),
        ({"a": "1,b=2"}, {"a": 1, "b": 2}, 'parameters {"a":"1,b=2"} against {"a":1,"b":2}'),
    ],
)
def test_parameters_that_look_alike_are_not_the_same(tmp_path, old, new, reason, paired):
    """Their case ids are equal, and they are other questions."""
    cases = [SyntheticCase(Case("launch", "op", params)) for params in (old, new)]
    assert cases[0].case.case_id == cases[1].case.case_id
    for number in range(4):
        name = f"round-{number}" if paired else ""
        one_run(tmp_path, "old", name, measured=cases[:1])
        one_run(tmp_path, "new", name, measured=cases[1:], factor=0.5)
    row = the_case(compared(tmp_path))
    assert (row.change, row.reason) == (Change.NOT_COMPARABLE, reason)


def test_precision_in_effect_decides_under_one_name(tmp_path):
    """Both call it fp32; torch computed the candidate in TF32."""
    ieee = {"precision.matmul": "ieee", "precision.convolution": "ieee"}
    facts = [ieee, {**ieee, "precision.convolution": "tf32"}, {**ieee, "algorithm": "other"}]
    wide, fast, same = (synthetic.replace(CASE, facts=one) for one in facts)
    rounds(tmp_path, 4, old={"measured": [wide]}, new={"measured": [fast], "factor": 0.4})
    row = the_case(compared(tmp_path))
    assert row.change is Change.NOT_COMPARABLE
    assert row.reason == (
        "precision in effect convolution ieee, matmul ieee against convolution tf32, matmul ieee"
    )
    rounds(tmp_path, 4, {"measured": [wide]}, {"measured": [same]}, campaign="algorithms")
    assert the_case(compared(tmp_path, campaign="algorithms")).change is not Change.NOT_COMPARABLE


def test_different_margins_are_said(tmp_path):
    rounds(tmp_path, 4, new={"measured": [synthetic.replace(CASE, margin=0.05)]})
    found = compared(tmp_path)
    note = "1 case was measured with different margins (launch/op[metric=submit]: 2 % and 5 %)"
    assert f"{note}; the larger one counts" in found.notes
    assert the_case(found).margin == 0.05
    rounds(tmp_path, 4, campaign="alike")
    assert not any("margins" in note for note in compared(tmp_path, campaign="alike").notes)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("measure_version", "version of the measuring code 1 against 7"),
        ("world_size", "world size 1 against 7"),
    ],
)
def test_other_code_or_world_is_not_comparable(tmp_path, column, reason):
    rounds(tmp_path, 3)
    data = CampaignFolder(tmp_path, "demo")
    for path in data.parquet_files("cases"):
        table = pq.read_table(path)
        if table["arm"][0].as_py() == "new":
            place = table.column_names.index(column)
            field = table.schema.field(column)
            journal.write_table(path, table.set_column(place, field, pa.array([7], field.type)))
    assert the_case(compared(tmp_path)).reason == reason


def test_of_several_policies_the_one_with_most_pairs_counts(tmp_path):
    rounds(tmp_path, 4)
    for number in range(10, 12):
        one_run(tmp_path, "old", f"round-{number}", policy="quick", factor=9.0)
        one_run(tmp_path, "new", f"round-{number}", policy="quick", factor=9.0)
    comparison = compared(tmp_path)
    row = the_case(comparison)
    assert (row.n, row.change) == (4, Change.SAME)
    assert row.candidate < 2 * CASE.seconds
    assert reasons(comparison, row.case_id) == [
        "2 pairs were measured otherwise (policy quick, timing native, NVIDIA H200)"
    ]


def test_of_several_policies_of_plain_runs_the_one_with_most_runs_counts(tmp_path):
    for policy, count in (("default", 4), ("quick", 3)):
        for _ in range(count):
            one_run(tmp_path, "old", policy=policy)
            one_run(tmp_path, "new", policy=policy)
    comparison = compared(tmp_path)
    assert the_case(comparison).n == 4
    assert [why[:16] for _, why in comparison.left_out] == ["3 runs of old we", "3 runs of new we"]


def test_a_gpu_beside_a_cpu_run_does_not_matter(tmp_path):
    rounds(tmp_path, 3, device="cpu", new={"machine": Machine(gpu_name="")})
    assert the_case(compared(tmp_path)).n == 3


# --- statuses, flags and damage ---------------------------------------------------------------------


def test_a_case_that_fails_on_one_side_is_not_comparable_and_named(tmp_path):
    failed = synthetic.measurement(CASE, [], status=Status.WRONG_RESULT, reason="off by 3")
    rounds(tmp_path, 3, new={"measured": [failed]})
    comparison = compared(tmp_path)
    row = the_case(comparison)
    assert (row.change, row.reason) == (Change.NOT_COMPARABLE, "new: wrong-result: off by 3 (3 runs)")
    assert row.failed == "new"
    assert reasons(comparison, row.case_id) == ["new: wrong-result: off by 3 (3 runs)"]


def test_a_case_without_a_value_anywhere_is_left_out(tmp_path):
    skipped = synthetic.measurement(CASE, [], status=Status.SKIPPED, reason="no GPU here")
    rounds(tmp_path, 2, measured=[skipped])
    comparison = compared(tmp_path)
    assert comparison.cases == ()
    both = "old and new: skipped: no GPU here (2 runs each)"
    assert reasons(comparison, CASE.case.case_id) == [both]


def test_the_quantities_of_a_case_that_one_side_never_measured_are_not_named_again(tmp_path):
    other = SyntheticCase(Case("launch", "other"), quantities={"peak_nbytes": 1e9})
    rounds(tmp_path, 3, old={"measured": [CASE, other]})
    assert compared(tmp_path).left_out == (("launch/other", "new: not measured"),)


def test_a_case_of_one_side_alone_is_left_out(tmp_path):
    other = SyntheticCase(Case("launch", "other"))
    rounds(tmp_path, 3, old={"measured": [CASE, other]})
    comparison = compared(tmp_path)
    assert the_case(comparison).op == "op"
    assert comparison.left_out == (("launch/other", "new: not measured"),)


def test_a_pair_lost_to_a_failure_is_counted(tmp_path):
    rounds(tmp_path, 4)
    one_run(tmp_path, "old", "round-9")
    failed = synthetic.measurement(CASE, [], status=Status.FAILED, reason="boom")
    one_run(tmp_path, "new", "round-9", measured=[failed])
    comparison = compared(tmp_path)
    row = the_case(comparison)
    assert (row.n, row.change) == (4, Change.SAME)
    assert row.reason.endswith("; 1 round gave no pair")
    assert reasons(comparison, row.case_id) == ["new: failed: boom (1 run)"]


@pytest.mark.parametrize(("flagged", "n"), [(2, 4), (3, 3)])
def test_over_ten_percent_flagged_samples_stay_out(tmp_path, flagged, n):
    rounds(tmp_path, 3)
    flags = ["throttled"] * flagged + [""] * (20 - flagged)
    doubted = synthetic.measurement(CASE, [100e-6] * 20, flags=flags)
    one_run(tmp_path, "old", "round-9")
    one_run(tmp_path, "new", "round-9", measured=[doubted])
    comparison = compared(tmp_path)
    assert the_case(comparison).n == n
    if n == 3:
        assert "over 10 % of its samples are flagged throttled" in reasons(comparison, CASE.case.case_id)[0]


def test_a_json_file_and_its_campaign_say_the_same_of_flagged_samples(tmp_path):
    flags = ["preempted"] * 3 + [""] * 17
    paths = [
        one_run(
            tmp_path, arm, measured=[synthetic.measurement(CASE, [100e-6] * 20, flags=flags)], finish=False
        )
        for arm in ("old", "new")
    ]
    files = [
        synthetic.write_json(tmp_path / f"{arm}.json", path)
        for arm, path in zip(("old", "new"), paths, strict=True)
    ]
    said = "old{} and new{}: over 10 % of its samples are flagged preempted (1 run each)"
    assert reasons(compared(tmp_path), CASE.case.case_id) == [said.format("", "")]
    of_files = compare.compare(*(sides.resolve(str(path), None, tmp_path) for path in files))
    assert reasons(of_files, CASE.case.case_id) == [said.format(".json", ".json")]


def test_a_canary_that_was_preempted_names_the_load(tmp_path):
    canary = synthetic.canaries()[0]
    flags = ["preempted"] * 3 + [""] * 17
    for arm in ("old", "new"):
        one_run(tmp_path, arm, measured=[synthetic.measurement(canary, [1e-3] * 20, flags=flags)])
    note = compared(tmp_path).notes[0]
    assert note == (
        "canaries were measured, but flagged: over 10 % of their samples are preempted, so nothing "
        "shows that the machine stayed the same; end the load that takes the cores away (other programs, "
        "too few cores) and measure again"
    )
    short = answer.short(compared(tmp_path))
    assert short[-1].startswith("Canaries were measured, but flagged: ")

    doubted = synthetic.measurement(canary, [1e-3] * 20, flags=flags)
    one_run(tmp_path, "with", campaign="one-side", measured=[doubted])
    one_run(tmp_path, "without", campaign="one-side", measured=[CASE])
    assert compared(tmp_path, "with", "without", "one-side").notes[0].startswith("no canary was measured on")

    one_run(tmp_path, "fast", campaign="other", measured=[canary, CASE])
    one_run(tmp_path, "slow", campaign="other", measured=[doubted, CASE])
    (row,) = compared(tmp_path, "fast", "slow", "other").canaries
    assert row.next_step.startswith("end the load that takes the cores away")
    assert row.next_step.endswith("on slow and measure again")


def test_an_incomplete_run_is_used_and_noted(tmp_path):
    rounds(tmp_path, 3)
    one_run(tmp_path, "old", "round-9")
    one_run(tmp_path, "new", "round-9", complete=False, finish=False)
    comparison = compared(tmp_path)
    assert the_case(comparison).n == 4
    assert "new: 1 run is incomplete; the cases finished in them are used" in comparison.notes


@pytest.mark.parametrize("bad", [float("nan"), 0.0, -1e-6])
def test_a_bad_sample_drops_its_pair(tmp_path, bad):
    rounds(tmp_path, 3)
    one_run(tmp_path, "old", "round-9")
    one_run(tmp_path, "new", "round-9", measured=[synthetic.measurement(CASE, [100e-6, bad, 100e-6])])
    comparison = compared(tmp_path)
    assert the_case(comparison).n == 3
    assert "not positive numbers" in reasons(comparison, CASE.case.case_id)[0]


def test_a_damaged_samples_file_drops_its_pair_by_name(tmp_path):
    rounds(tmp_path, 4)
    path = CampaignFolder(tmp_path, "demo").parquet_files("samples")[0]
    path.write_bytes(path.read_bytes()[:50])
    comparison = compared(tmp_path)
    assert the_case(comparison).n == 3
    assert reasons(comparison, str(path))
    assert "not all of its samples could be read" in reasons(comparison, CASE.case.case_id)[0]


def test_a_case_twice_in_one_run_is_left_out(tmp_path):
    rounds(tmp_path, 3)
    one_run(tmp_path, "old", "round-9", measured=[CASE, CASE])
    one_run(tmp_path, "new", "round-9")
    comparison = compared(tmp_path)
    assert the_case(comparison).n == 3
    assert reasons(comparison, CASE.case.case_id) == ["old: measured twice in one run (2 runs)"]


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("samples", ["run_id"]),
        ("samples", ["case_id"]),
        ("samples", ["seconds"]),
        ("samples", ["sample", "flags"]),
        ("cases", ["status"]),
        ("cases", ["params", "family", "op", "metric"]),
        ("cases", ["margin"]),
        ("cases", ["n_samples", "n_flagged", "calls", "policy", "timing", "quantities", "started_at"]),
        ("runs", ["round"]),
        ("runs", [name for name in SCHEMAS["runs"].names if name not in ("run_id", "arm", "stack")]),
    ],
)
def test_columns_that_are_empty_are_no_traceback(tmp_path, table, columns):
    rounds(tmp_path, 3)
    for path in CampaignFolder(tmp_path, "demo").parquet_files(table):
        data = pq.read_table(path)
        for column in columns:
            place, field = data.column_names.index(column), data.schema.field(column)
            data = data.set_column(place, field, pa.nulls(data.num_rows, field.type))
        journal.write_table(path, data)
    comparison = compared(tmp_path)
    assert comparison.cases or comparison.left_out
    assert {row.change for row in comparison.cases} <= {Change.SAME, Change.UNCLEAR}


def test_flags_count_also_where_the_case_does_not_say_how_many(tmp_path):
    flags = ["throttled"] * 10 + [""] * 10
    rounds(tmp_path, 3, old={"measured": [synthetic.measurement(CASE, [1e-4] * 20, flags=flags)]})
    for path in CampaignFolder(tmp_path, "demo").parquet_files("cases"):
        data = pq.read_table(path)
        place, field = data.column_names.index("n_flagged"), data.schema.field("n_flagged")
        journal.write_table(path, data.set_column(place, field, pa.nulls(data.num_rows, field.type)))
    said = reasons(compared(tmp_path), CASE.case.case_id)
    assert said == ["old: over 10 % of its samples are flagged throttled (3 runs)"]


@pytest.mark.filterwarnings("error")
def test_a_quantity_that_is_no_number_is_told_and_warns_nobody(tmp_path):
    odd = synthetic.replace(CASE, quantities={"hits": math.inf, "misses": 2.0})
    rounds(tmp_path, 3, measured=[odd])
    for path in CampaignFolder(tmp_path, "demo").parquet_files("cases"):
        data = pq.read_table(path)
        place, field = data.column_names.index("quantities"), data.schema.field("quantities")
        rows = [[("hits", math.inf), ("misses", 2.0)]] * data.num_rows
        journal.write_table(path, data.set_column(place, field, pa.array(rows, field.type)))
    told = {row.unit: (row.change, row.reason) for row in compared(tmp_path).quantities}
    assert told["hits"][0] is Change.NOT_COMPARABLE
    assert "6 of its values are not positive" in told["hits"][1]
    assert told["misses"][0] is Change.SAME


@pytest.mark.parametrize("margin", [float("nan"), -2.0])
def test_a_case_without_a_margin_is_left_out(tmp_path, margin):
    rounds(tmp_path, 3, measured=[synthetic.replace(CASE, margin=margin)])
    comparison = compared(tmp_path)
    assert comparison.cases == ()
    assert "holds no margin" in reasons(comparison, CASE.case.case_id)[0]


def test_a_margin_without_an_end_makes_nothing_the_same(tmp_path):
    rounds(tmp_path, 3)
    for path in CampaignFolder(tmp_path, "demo").parquet_files("cases"):
        data = pq.read_table(path)
        place, field = data.column_names.index("margin"), data.schema.field("margin")
        endless = pa.array([math.inf] * data.num_rows, field.type)
        journal.write_table(path, data.set_column(place, field, endless))
    comparison = compared(tmp_path)
    assert comparison.cases == ()
    assert "holds no margin" in reasons(comparison, CASE.case.case_id)[0]


def test_a_margin_of_nothing_is_never_the_same(tmp_path):
    rounds(tmp_path, 3, measured=[synthetic.replace(CASE, margin=0.0)])
    assert the_case(compared(tmp_path)).change is Change.UNCLEAR


# --- canaries and quantities ------------------------------------------------------------------------


def test_canaries_stand_apart_and_quiet_ones_say_nothing(tmp_path):
    synthetic.write_campaign(tmp_path, "demo", STACKS)
    comparison = compared(tmp_path)
    assert {row.family for row in comparison.canaries} == {"canary"}
    assert {row.family for row in comparison.cases} == {"launch"}
    assert sum(comparison.counts().values()) == 6
    assert not comparison.canaries_moved
    assert [note for note in comparison.notes if not note.startswith("A/A: ")] == []


def test_a_canary_that_moves_is_said_first(tmp_path):
    moved = [synthetic.replace(case, scale={"old": 1.0, "new": 1.1}) for case in synthetic.canaries()]
    synthetic.write_campaign(tmp_path, "demo", STACKS, measured=[*moved, CASE])
    comparison = compared(tmp_path)
    assert comparison.canaries_moved
    assert comparison.notes[0].startswith("THE MACHINE CHANGED between the sides: 2 of 2 canaries moved")


def test_no_canary_is_said(tmp_path):
    rounds(tmp_path, 3)
    assert "no canary was measured on both sides" in compared(tmp_path).notes[0]


def test_quantities_are_rows_of_their_own(tmp_path):
    def case(**quantities):
        return synthetic.replace(CASE, quantities=quantities)

    old = case(peak_nbytes=1000.0, max_abs_error=0.0, only_old=1.0)
    new = case(peak_nbytes=1200.0, max_abs_error=0.0)
    rounds(tmp_path, 4, old={"measured": [old]}, new={"measured": [new]})
    comparison = compared(tmp_path)
    assert the_case(comparison).unit == "seconds"
    found = {row.unit: row for row in comparison.quantities}
    assert set(found) == {"peak_nbytes", "max_abs_error"}
    peak = found["peak_nbytes"]
    assert (peak.change, peak.n, peak.baseline, peak.candidate) == (
        Change.SLOWER,
        4,
        pytest.approx(1000),
        pytest.approx(1200),
    )
    assert peak.reason == "20 % higher, beyond the margin of 2 %"
    assert found["max_abs_error"].change is Change.NOT_COMPARABLE
    assert "8 of its values are not positive" in found["max_abs_error"].reason
    assert sum(comparison.counts().values()) == 1
    assert reasons(comparison, CASE.case.case_id) == ["new: quantity only_old not measured"]


# --- what differs -----------------------------------------------------------------------------------

TRITON = {"triton.version": "3.2"}
BOTH = {"cudart.version": "11.8.89", "cudart.sha256": "a", "cudart.path": "/a", "torch.version": "2.6"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cudart.path": "/b"}, "nothing differs"),
        ({"cudart.version": "12.4.127", "cudart.sha256": "b"}, "cudart 11.8.89 -> 12.4.127"),
        ({"cudart.sha256": "b"}, "cudart 11.8.89 (sha256 a) -> 11.8.89 (sha256 b)"),
        ({"torch.git": "b"}, "nothing differs"),
        ({"triton.version": "3.2"}, "no component of the stack differs; loaded on one side only: triton"),
        (
            {"cudart.version": "12.4.127", "torch.version": "2.9"},
            "confounded: cudart 11.8.89 -> 12.4.127, torch 2.6 -> 2.9",
        ),
    ],
)
def test_one_component_is_named_and_several_are_confounded(tmp_path, change, said):
    rounds(tmp_path, 3, old={"stack": BOTH}, new={"stack": BOTH | change})
    assert compared(tmp_path).attribution == said


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            True,
            "nothing differs; families measured differ: compile_resnet50 on new only (what is loaded there "
            "alone: triton)",
        ),
        (False, "no component of the stack differs; loaded on one side only: triton"),
    ],
)
def test_what_another_family_loaded_is_no_difference_of_the_stacks(tmp_path, other, said):
    """`other`: the side that loaded it measured a family which the other side did not."""
    more = SyntheticCase(Case("compile_resnet50", "op", {}))
    measured = [CASE, more] if other else [CASE]
    rounds(tmp_path, 3, old={"stack": BOTH}, new={"stack": BOTH | TRITON, "measured": measured})
    found = compared(tmp_path)
    assert found.attribution == said
    assert [one.component for one in found.differences if one.axis == "stack"] == ["triton"] * (not other)


def test_a_run_of_the_same_families_tells_what_a_stack_lacks(tmp_path):
    more = SyntheticCase(Case("compile_resnet50", "op", {}))
    for number, measured in enumerate(([CASE], [CASE, more])):
        one_run(tmp_path, "old", f"round-{number}", stack=BOTH)
        one_run(tmp_path, "new", f"round-{number}", stack=BOTH | TRITON, measured=measured)
    assert compared(tmp_path).attribution.endswith("; loaded on one side only: triton")


def test_a_library_that_tells_no_version_is_named_by_the_beginning_of_its_hash(tmp_path):
    """As a stand-in for NCCL has none: 64 digits would hide the versions beside them."""
    of_stub = {"nccl.sha256": "cc945aa37576" + 52 * "0"}
    rounds(tmp_path, 3, old={"stack": BOTH | of_stub}, new={"stack": BOTH | {"nccl.version": "2.28.9"}})
    assert compared(tmp_path).attribution == "nccl (sha256 cc945aa37576) -> 2.28.9"


@pytest.mark.parametrize(
    ("unknown", "differs", "said"),
    [
        (("stack", "driver"), False, "nothing is known of what differs"),
        (("stack",), False, "nothing is known of what differs in the stack"),
        (("driver",), False, "no component of the stack differs; nothing is known of the driver"),
        (("driver",), True, "nccl 2.18 -> 2.21; nothing is known of the driver"),
        ((), False, "nothing differs"),
    ],
)
def test_what_is_not_known_is_not_said_to_be_the_same(unknown, differs, said):
    found = [Difference("stack", "nccl", "2.18", "2.21")] if differs else []
    assert attribution(found, unknown) == said


def test_the_driver_is_an_axis_of_its_own(tmp_path):
    after = Machine(boot_id="boot-2", driver="590.1")
    for _ in range(3):
        one_run(tmp_path, "old", stack=BOTH)
        one_run(tmp_path, "new", stack=BOTH, machine=after)
    comparison = compared(tmp_path)
    assert comparison.attribution == "driver 580.159 -> 590.1; also different: boot_id"
    assert [(one.axis, one.component) for one in comparison.differences] == [
        ("driver", "driver"),
        ("machine", "boot_id"),
    ]


def test_settings_and_machine_are_listed_and_never_the_cause(tmp_path):
    for number in range(3):
        for arm, value in (("old", "LAZY"), ("new", "EAGER")):
            info = synthetic.run_info("demo", arm, round=f"round-{number}")
            settings = {"env.CUDA_MODULE_LOADING": value}
            known = synthetic.identity(Machine(), BOTH, **settings)
            rows = [synthetic.measurement(CASE, [100e-6] * 5)]
            synthetic.write_run(tmp_path, info, known, rows)
    comparison = compared(tmp_path)
    assert comparison.attribution == "no component of the stack differs; also different: CUDA_MODULE_LOADING"
    only = comparison.differences[0]
    assert (only.axis, only.baseline, only.candidate) == ("settings", "LAZY", "EAGER")


def test_a_side_of_several_stacks_is_confounded(tmp_path):
    for version in ("11.8.89", "12.4.127", "12.4.127"):
        one_run(tmp_path, "old", stack=BOTH | {"cudart.version": version})
        one_run(tmp_path, "new", stack=BOTH | {"cudart.version": "12.4.127"})
    said = compared(tmp_path).attribution
    assert said.startswith("confounded: the runs of one side differ among themselves (cudart 11.8.89 / 12.4")


# --- invariances ------------------------------------------------------------------------------------


def rewritten(results, name, change):
    """The campaign with every samples table changed, as another one."""
    source, target = CampaignFolder(results, "demo"), CampaignFolder(results, name)
    for table in ("samples", "cases", "runs"):
        for path in source.parquet_files(table):
            data = pq.read_table(path)
            journal.write_table(target.table(table, path.stem), change(table, data))


def numbers(comparison):
    names = ("case_id", "change", "n", "ratio", "low", "high", "q_change", "q_same")
    return {row.case_id: [getattr(row, name) for name in names] for row in comparison.cases}


@pytest.fixture
def demo(tmp_path):
    measured = [
        SyntheticCase(Case("launch", f"op{i}"), scale={"old": 1.0, "new": factor})
        for i, factor in enumerate((0.9, 0.97, 1.0, 1.02, 1.1))
    ]
    synthetic.write_campaign(tmp_path, "demo", STACKS, rounds=5, null=False, measured=measured)
    return tmp_path


def assert_same_numbers(one, other):
    assert one.keys() == other.keys()
    for case in one:
        assert one[case][:3] == other[case][:3]
        assert one[case][3:] == pytest.approx(other[case][3:], rel=1e-9)


def test_swapping_the_sides_inverts_ratios_and_changes(demo):
    there, back = numbers(compared(demo)), numbers(compared(demo, "new", "old"))
    inverse = {Change.FASTER: Change.SLOWER, Change.SLOWER: Change.FASTER}
    for case, (_, change, n, ratio, low, high, *q) in there.items():
        _, change_b, n_b, ratio_b, low_b, high_b, *q_b = back[case]
        assert (change_b, n_b) == (inverse.get(change, change), n)
        assert [ratio_b, low_b, high_b] == pytest.approx([1 / ratio, 1 / high, 1 / low])
        assert q_b == pytest.approx(q)


def test_the_order_of_samples_does_not_matter(demo):
    rng = np.random.default_rng(0)

    def shuffle(table, data):
        return data.take(rng.permutation(data.num_rows)) if table == "samples" else data

    rewritten(demo, "shuffled", shuffle)
    assert_same_numbers(numbers(compared(demo)), numbers(compared(demo, campaign="shuffled")))


def test_duplicated_samples_do_not_matter(demo):
    def double(table, data):
        if table == "samples":
            return pa.concat_tables([data, data])
        if table == "cases":
            place = data.column_names.index("n_samples")
            return data.set_column(
                place, data.schema.field(place), pc.add(data["n_samples"], data["n_samples"])
            )
        return data

    rewritten(demo, "doubled", double)
    assert_same_numbers(numbers(compared(demo)), numbers(compared(demo, campaign="doubled")))


def test_the_unit_of_all_times_does_not_matter(demo):
    def scale(table, data):
        if table != "samples":
            return data
        place = data.column_names.index("seconds")
        return data.set_column(place, data.schema.field(place), pc.multiply(data["seconds"], 1000.0))

    rewritten(demo, "scaled", scale)
    assert_same_numbers(numbers(compared(demo)), numbers(compared(demo, campaign="scaled")))


def test_sides_may_have_unequal_numbers_of_samples(tmp_path):
    few = [synthetic.measurement(CASE, [100e-6] * 5)]
    many = [synthetic.measurement(CASE, [90e-6] * 50)]
    rounds(tmp_path, 3, old={"measured": few}, new={"measured": many})
    row = the_case(compared(tmp_path))
    assert (row.change, row.ratio) == (Change.FASTER, pytest.approx(0.9))


# --- speed ------------------------------------------------------------------------------------------


def test_two_stacks_of_200_cases_20_runs_and_100_samples_take_under_two_seconds(tmp_path):
    measured = synthetic.cases(200)
    made = synthetic.write_campaign(
        tmp_path, "one", {"old": 1.0}, rounds=1, null=False, measured=measured, samples=100
    )
    source = CampaignFolder(tmp_path, "one")
    tables = {name: pq.read_table(source.table(name, made[0])) for name in ("samples", "cases", "runs")}
    rng = np.random.default_rng(0)
    for number in range(20):
        for arm, factor in (("old", 1.0), ("new", 0.95)):
            fields = {"run_id": f"{arm}-{number}", "stack": arm, "arm": arm, "round": f"round-{number}"}
            for name, table in tables.items():
                changed = _with(table, fields)
                if name == "samples":
                    seconds = pc.multiply(table["seconds"], factor * float(np.exp(rng.normal(0, 0.005))))
                    place = table.column_names.index("seconds")
                    changed = changed.set_column(place, table.schema.field(place), seconds)
                journal.write_table(CampaignFolder(tmp_path, "demo").table(name, fields["run_id"]), changed)
    compared(tmp_path)  # imports and first calls
    start = time.process_time()  # of this process, whatever else the machine does
    comparison = compared(tmp_path)
    assert time.process_time() - start < 2.0
    assert comparison.counts()[Change.FASTER] == 200


def _with(table, fields):
    for name, value in fields.items():
        place = table.column_names.index(name)
        column = pa.DictionaryArray.from_arrays(np.zeros(table.num_rows, np.int32), [value])
        table = table.set_column(place, table.schema.field(place), column)
    return table


# --- what an unclear case needs


def advice(log_ratios):
    values = Values((1.0,) * len(log_ratios), tuple(map(math.exp, log_ratios)), tuple(log_ratios))
    row = Row("f/op", "seconds", "f", "op", {}, "time", 0.05, 0.0, values)
    (change,) = verdicts.changes([row], verdicts.Pairing.ROUNDS)
    assert change.change is Change.UNCLEAR
    return change.next_step


def test_an_effect_at_the_margin_is_told_from_scatter_that_hides_it():
    at = math.log(1.05)
    assert advice([at + 0.01, at - 0.01, at]).endswith("hardly settle it: the effect lies at the margin")
    noisy = advice([0.2, -0.2, 0.25, -0.25, 0.22, -0.22])
    assert re.fullmatch(
        r"more rounds will hardly settle it \(\d{3} would be needed\): its values scatter by 28 %, .*",
        noisy,
    )
    assert re.fullmatch(r"about \d{1,2} more rounds should settle it", advice([0.08, -0.05, 0.02]))
    wide = advice([at + 0.4, at - 0.4, at])
    assert wide.endswith("hardly settle it: its values scatter by 49 %, find what disturbs them first")
    for scale, said in ((1.7, "447 %"), (0.7, "101 %"), (5.0, "> 1000 %")):  # and no exponent
        far = advice([at + scale, at - scale, at])
        assert f"its values scatter by {said}, find" in far
