import json
import shutil

import numpy as np
import pytest
import synthetic
from synthetic import Machine, Noise, SyntheticCase

from bench_lib.comparing import sides
from bench_lib.comparing.changes import Change
from bench_lib.comparing.contrast import contrast
from bench_lib.errors import UsageError
from bench_lib.model import Case, Status
from bench_lib.pages import asked

RNG = np.random.default_rng(6)
RUNTIMES = {"11.8": 1.0, "11.8#2": 1.0, "12.4": 1.03, "driver": 0.9}


def ladder_case(runtime, burst=100, margin=0.01, **quantities):
    case = Case("ladder", "launch", {"runtime": runtime, "burst": burst, "metric": "submit"})
    return SyntheticCase(case, 3e-6, margin, calls=burst, quantities=quantities)


def ladder_run(
    results, factors=RUNTIMES, *, turns=200, shared=True, arm="here", complete=True, bursts=(1, 100)
):
    """One process of the ladder: all runtimes feel the same turn, each has its own factor."""
    rows = []
    for burst in bursts:
        pace = np.exp(np.cumsum(RNG.normal(0, 0.05, turns)))  # the machine wanders far within a run
        for runtime, factor in factors.items():
            own = np.exp(RNG.normal(0, 0.004, turns)) * np.exp(RNG.normal(0, 0.001))
            seconds = 3e-6 * factor * pace * own
            name = f"ladder-{burst}" if shared else ""
            rows.append(synthetic.measurement(ladder_case(runtime, burst), seconds, turns=name))
    info = synthetic.run_info("demo", arm)
    known = synthetic.identity(Machine())
    synthetic.write_run(results, info, known, rows, complete=complete, finish=complete)


def read(results, parameter="runtime", baseline="11.8", candidate="12.4", stack=None):
    return contrast(sides.whole_stack(stack, "demo", results), parameter, baseline, candidate)


@pytest.fixture(scope="module")
def ladder(tmp_path_factory):
    results = tmp_path_factory.mktemp("ladder")
    for number in range(10):
        ladder_run(results, arm="here#2" if number % 2 else "here")
    return results


def test_one_row_a_combination_of_the_other_parameters(ladder):
    comparison = read(ladder)
    assert {row.case_id for row in comparison.cases} == {
        "ladder/launch[burst=1,metric=submit]",
        "ladder/launch[burst=100,metric=submit]",
    }
    for row in comparison.cases:
        assert (row.change, row.n) == (Change.SLOWER, 10)
        assert row.low < 1.03 < row.high
        assert "runtime" not in row.params
    assert (comparison.pairing, comparison.interleaved) == ("runs", True)
    assert (comparison.baseline, comparison.candidate) == ("runtime=11.8", "runtime=12.4")
    assert comparison.attribution == "runtime 11.8 -> 12.4, inside each run of here"
    assert comparison.left_out == ()


def test_the_null_is_the_same(ladder):
    assert {row.change for row in read(ladder, candidate="11.8#2").cases} == {Change.SAME}


def test_turns_take_out_what_the_machine_does_within_a_run(ladder):
    for row in read(ladder).cases:
        assert row.sd < 0.005  # the machine wandered by far more within each run


def test_the_log_ratio_of_a_run_is_the_median_over_its_turns(tmp_path):
    rows = [
        synthetic.measurement(ladder_case("11.8"), [1e-6, 2e-6, 4e-6], turns="t"),
        synthetic.measurement(ladder_case("12.4"), [2e-6, 2e-6, 2e-6], turns="t"),
    ]
    synthetic.write_run(tmp_path, synthetic.run_info("demo", "here"), synthetic.identity(Machine()), rows)
    row = read(tmp_path).cases[0]
    assert row.log_ratios == pytest.approx([0.0])  # of 2, 1 and 1/2; the medians alone would say the same
    rows[1] = synthetic.measurement(ladder_case("12.4"), [2e-6, 6e-6, 4.4e-6], turns="t")
    synthetic.write_run(
        tmp_path / "b", synthetic.run_info("demo", "here"), synthetic.identity(Machine()), rows
    )
    row = read(tmp_path / "b").cases[0]
    assert row.log_ratios == pytest.approx([np.log(2)])  # of 2, 3 and 1.1; the medians say 2.2
    assert "the ratio is taken within turns, not of the two columns (those divide to 2.200)" in row.reason
    assert "within turns" not in read(tmp_path).cases[0].reason


def test_columns_that_divide_to_a_number_outside_the_interval_are_told(tmp_path):
    """Every run has the ratio 1.01 within its turns, and its medians say 1.00: less apart than the margin."""
    for number in range(3):
        rows = [
            synthetic.measurement(ladder_case("11.8"), [1e-6, 2e-6, 4e-6], turns="t"),
            synthetic.measurement(ladder_case("12.4"), [1.009e-6, 2.02e-6, 4.042e-6], turns="t"),
        ]
        if number:
            rows[1] = synthetic.measurement(ladder_case("12.4"), [1.0101e-6, 2e-6, 4.0402e-6], turns="t")
        info = synthetic.run_info("demo", "here", started_at=synthetic.EPOCH + number)
        synthetic.write_run(tmp_path, info, synthetic.identity(Machine()), rows)
    row = read(tmp_path).cases[0]
    quotient = row.candidate / row.baseline
    assert not row.low <= quotient <= row.high
    assert abs(quotient / row.ratio - 1) < row.margin
    assert "the ratio is taken within turns" in row.reason


@pytest.mark.parametrize("names", [("", ""), ("a", "b"), ("a", "")])
def test_without_shared_turns_it_is_the_ratio_of_medians(tmp_path, names):
    rows = [
        synthetic.measurement(ladder_case("11.8"), [1e-6, 2e-6, 4e-6], turns=names[0]),
        synthetic.measurement(ladder_case("12.4"), [2e-6, 6e-6, 4.4e-6], turns=names[1]),
    ]
    synthetic.write_run(tmp_path, synthetic.run_info("demo", "here"), synthetic.identity(Machine()), rows)
    assert read(tmp_path).cases[0].log_ratios == pytest.approx([np.log(2.2)])


@pytest.mark.parametrize(
    ("parameter", "values", "texts"),
    [
        ("execution", ("eager", "compiled"), ("eager", "compiled")),
        ("benchmark", (False, True), ("false", "true")),
        ("nodes", (1, 10), ("1", "10")),
        ("dtype", ("fp32", "bf16"), ("fp32", "bf16")),
        ("runtime", (11.8, 12.4), ("11.8", "12.4")),
    ],
)
def test_any_parameter_compared_as_text(tmp_path, parameter, values, texts):
    for _ in range(4):
        rows = [
            synthetic.measurement(
                SyntheticCase(Case("family", "op", {parameter: value})),
                synthetic.times(RNG, factor * 1e-3, Noise(), 10),
            )
            for value, factor in zip(values, (1.0, 0.5), strict=True)
        ]
        info = synthetic.run_info("demo", "here")
        synthetic.write_run(tmp_path, info, synthetic.identity(Machine()), rows)
    comparison = read(tmp_path, parameter, *texts)
    assert [(row.case_id, row.change) for row in comparison.cases] == [("family/op", Change.FASTER)]
    assert dict(comparison.cases[0].params) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("runtim", "11.8", "12.4"),
            "no parameter 'runtim' in campaign 'demo'; there: runtime, burst, metric; did you mean",
        ),
        (("runtime", "11.8", "12.5"), "no value of runtime '12.5' in campaign 'demo'; there: 12.4, 11.8"),
        (("runtime", "11.8", "11.8"), "runtime=11.8 is on both sides; name two values"),
    ],
)
def test_an_unknown_name_is_answered_with_what_exists(ladder, given, said):
    with pytest.raises(UsageError) as caught:
        read(ladder, *given)
    assert str(caught.value).startswith(said)


def test_the_campaign_that_nobody_named_is_told(ladder, tmp_path):
    """Which one was read, and where the parameter is; no name is near one that was not typed."""
    shutil.copytree(ladder / "demo", tmp_path / "locale")

    def said(contrast, *names):
        with pytest.raises(UsageError) as caught:
            asked.compared(names, None, tmp_path, contrast)
        return str(caught.value)

    other = "'local' is the default, give --campaign NAME for another; 'runtime' is in locale"
    assert said("runtime=11.8:12.4") == (
        f"no campaign 'local' under {tmp_path}, which is read where none is named; name one with --campaign "
        "(there: locale); 'runtime' is in locale"
    )
    synthetic.write_campaign(tmp_path, "local", {"here": 1.0}, rounds=1, null=False)
    assert said("runtime=11.8:12.4").startswith("no parameter 'runtime' in campaign 'local'; there: ")
    assert said("runtime=11.8:12.4").endswith(other)
    assert "default" not in said("runtime=11.8:12.5", "locale/here")
    found, _ = asked.compared(["locale/here"], None, tmp_path, "runtime=11.8:12.4")
    assert found.campaign == "locale"


def test_a_side_with_its_campaign_needs_no_local_one(ladder):
    found, _ = asked.compared(["demo/here"], None, ladder, "runtime=11.8:12.4")
    assert found.campaign == "demo"


def test_values_that_share_no_other_parameters(tmp_path):
    for case in (ladder_case("11.8", burst=1), ladder_case("12.4", burst=100)):
        info = synthetic.run_info("demo", "here")
        rows = [synthetic.measurement(case, [1e-6] * 5)]
        synthetic.write_run(tmp_path, info, synthetic.identity(Machine()), rows)
    with pytest.raises(UsageError, match="no case was measured both with "):
        read(tmp_path)


def test_fewer_than_three_runs_are_unclear(tmp_path):
    for _ in range(2):
        ladder_run(tmp_path, {"11.8": 1.0, "12.4": 2.0}, bursts=(1,))
    row = read(tmp_path).cases[0]
    assert (row.change, row.n, row.low) == (Change.UNCLEAR, 2, None)
    assert row.ratio == pytest.approx(2.0, rel=0.05)
    assert row.next_step == "measure at least 1 more run (cuda-gains run: raise --rounds by 1)"


def test_values_of_different_runs_are_never_paired(tmp_path):
    for _ in range(4):
        ladder_run(tmp_path, {"11.8": 1.0}, bursts=(1,))
        ladder_run(tmp_path, {"12.4": 1.0}, bursts=(1,))
    row = read(tmp_path).cases[0]
    assert (row.change, row.n, row.ratio) == (Change.UNCLEAR, 0, None)
    assert "no run holds a usable value of both sides" in row.reason


def test_a_value_that_failed_drops_its_run_and_is_named(tmp_path):
    for _ in range(3):
        ladder_run(tmp_path, bursts=(1,))
    rows = [
        synthetic.measurement(ladder_case("11.8", 1), [1e-6] * 5),
        synthetic.measurement(ladder_case("12.4", 1), [], status=Status.FAILED, reason="boom"),
    ]
    synthetic.write_run(tmp_path, synthetic.run_info("demo", "here"), synthetic.identity(Machine()), rows)
    comparison = read(tmp_path)
    row = comparison.cases[0]
    assert row.n == 3
    assert row.reason.endswith("; 1 run gave no pair")
    assert comparison.left_out == ((row.case_id, "runtime=12.4: failed: boom (1 run)"),)


def test_other_calls_a_sample_are_not_comparable(tmp_path):
    for _ in range(3):
        rows = [
            synthetic.measurement(ladder_case("11.8"), [1e-6] * 5),
            synthetic.measurement(synthetic.replace(ladder_case("12.4"), calls=7), [1e-6] * 5),
        ]
        synthetic.write_run(tmp_path, synthetic.run_info("demo", "here"), synthetic.identity(Machine()), rows)
    row = read(tmp_path).cases[0]
    assert (row.change, row.reason) == (Change.NOT_COMPARABLE, "calls a sample 100 against 7")


def test_a_contrast_of_precisions_is_one_and_another_with_other_precisions_is_not(tmp_path):
    facts = {"fp32": {"precision.matmul": "ieee"}, "tf32": {"precision.matmul": "tf32"}}
    for number in range(4):
        rows = [
            synthetic.measurement(
                SyntheticCase(Case("f", "op", {"precision": p, "benchmark": b}), facts=facts[p if b else q]),
                synthetic.times(RNG, 1e-4, Noise(), 5),
                position=number % 2,
            )
            for p, q in (("fp32", "tf32"), ("tf32", "fp32"))
            for b in (True, False)
        ]
        synthetic.write_run(tmp_path, synthetic.run_info("demo", "here"), synthetic.identity(Machine()), rows)
    asked = read(tmp_path, "precision", "fp32", "tf32").cases
    assert {row.change for row in asked} & {Change.NOT_COMPARABLE} == set()
    for row in read(tmp_path, "benchmark", "false", "true").cases:
        assert row.change is Change.NOT_COMPARABLE
        assert row.reason.startswith("precision in effect matmul ")


@pytest.mark.parametrize(("orders", "said"), [([(0, 1)] * 3, True), ([(0, 1), (1, 0), (0, 1)], False)])
def test_one_order_in_every_run_is_said(tmp_path, orders, said):
    for places in orders:
        rows = [
            synthetic.measurement(ladder_case(runtime), [1e-6] * 5, position=place)
            for runtime, place in zip(("11.8", "12.4"), places, strict=True)
        ]
        synthetic.write_run(tmp_path, synthetic.run_info("demo", "here"), synthetic.identity(Machine()), rows)
    notes = read(tmp_path).notes
    assert any("in the same order in every run" in note for note in notes) is said


def test_quantities_are_contrasted_too(tmp_path):
    for _ in range(3):
        rows = [
            synthetic.measurement(ladder_case(runtime, peak_nbytes=nbytes), [1e-6, 2e-6])
            for runtime, nbytes in (("11.8", 100.0), ("12.4", 50.0))
        ]
        synthetic.write_run(tmp_path, synthetic.run_info("demo", "here"), synthetic.identity(Machine()), rows)
    row = read(tmp_path).quantities[0]
    assert (row.unit, row.change, row.ratio) == ("peak_nbytes", Change.FASTER, pytest.approx(0.5))
    assert row.reason == "50 % lower, beyond the margin of 1 %"


def test_an_incomplete_run_is_used_and_noted(tmp_path):
    for complete in (True, True, False):
        ladder_run(tmp_path, bursts=(1,), complete=complete)
    comparison = read(tmp_path)
    assert comparison.cases[0].n == 3
    assert comparison.notes[0] == "here: incomplete runs: 1; the cases finished in them are used"


def test_parameters_that_are_no_json_are_no_traceback(tmp_path):
    ladder_run(tmp_path, bursts=(1,))
    info = synthetic.run_info("demo", "here")
    path = synthetic.write_run(tmp_path, info, synthetic.identity(Machine()), [], finish=False)
    event = {"event": "case", "family": "x", "op": "y", "case_id": "x/y", "params": "[1", "status": "ok"}
    path.write_bytes(path.read_bytes() + json.dumps(event).encode() + b"\n")
    assert read(tmp_path).cases[0].n == 1
