"""Two drivers that alternated on one machine: installations are the replicates, neighbours a pair."""

import dataclasses

import numpy as np
import pytest
import synthetic
from synthetic import EPOCH, Machine, Noise, SyntheticCase

from bench_lib.comparing import compare, installations, sides
from bench_lib.comparing.changes import Change
from bench_lib.comparing.verdicts import NOT_INTERLEAVED
from bench_lib.drawing import forest_chart
from bench_lib.model import Case
from bench_lib.pages import report

CASE = SyntheticCase(Case("launch", "op"), margin=0.02, quantities={"balance": -1.0})
CANARY = synthetic.canaries()[0]
DRIVERS = {"A": "535.104", "B": "550.54"}


def write(results, order, *, runs=2, sessions=None, factor=1.0, gpu=0, start=0.0, measured=None):
    """Installations in this order ("ABAB"), a boot each, `runs` runs in each; campaigns `A` and `B`.

    `sessions`: what each installation brings with it, as the log of a factor.
    """
    rng = np.random.default_rng(gpu)
    for i, name in enumerate(order):
        machine = Machine(f"boot-{gpu}-{i}", gpu_uuid=f"GPU-{gpu}", driver=DRIVERS[name])
        pace = np.exp(sessions[i]) if sessions else 1.0
        for k in range(runs):
            own = pace * (factor if name == "B" else 1.0)
            rows = [
                synthetic.measurement(one, synthetic.times(rng, one.seconds * scale, Noise(0.001), 10))
                for one, scale in ((CASE, own), (CANARY, pace))
                if measured is None or one.case.op in measured(i)
            ]
            started = EPOCH + start + 86400.0 * i + 60.0 * k
            info = synthetic.run_info(name, "here", started_at=started)
            known = synthetic.identity(machine, synthetic.cudart("12.4"))
            synthetic.write_run(results, info, known, rows)


def compared(results):
    return compare.compare(*sides.pair("A", "B", None, results))


def test_each_installation_is_one_value_and_neighbours_a_pair(tmp_path):
    write(tmp_path, "ABABAB", sessions=[0.0, 0.01, 0.004, 0.0, 0.0, 0.006], factor=1.1)
    comparison = compared(tmp_path)
    assert (comparison.pairing, comparison.interleaved) == ("installations", False)
    (row,) = comparison.cases
    assert (row.n, len(row.log_ratios), row.change) == (3, 3, Change.SLOWER)
    assert row.low < 1.1 < row.high
    assert list(row.pairs) == [f"installations {i} and {i + 1} on GPU-0" for i in (1, 3, 5)]
    assert comparison.attribution == "driver 535.104 -> 550.54; also different: boot_id"
    assert comparison.left_out == ()
    note = next(note for note in comparison.notes if note.startswith("the drivers alternated"))
    assert "6 installations, each one value" in note
    assert "n counts 3 pairs of installations" in note
    assert "a steady drift of the machine would look like an effect" in note
    assert NOT_INTERLEAVED not in comparison.notes


def test_a_value_is_the_mean_over_its_runs_of_log_medians(tmp_path):
    for i, name in enumerate("ABABAB"):
        for k, seconds in enumerate((1e-3, 4e-3)):
            info = synthetic.run_info(name, "here", started_at=EPOCH + 1000 * i + k)
            known = synthetic.identity(Machine(f"boot-{i}", driver=DRIVERS[name]))
            factor = 1.0 if name == "A" else 2.0
            rows = [synthetic.measurement(CASE, [seconds * factor, seconds * factor, 1.0])]
            synthetic.write_run(tmp_path, info, known, rows)
    (row,) = compared(tmp_path).cases
    assert (row.baseline, row.candidate) == (pytest.approx(2e-3), pytest.approx(4e-3))
    assert row.log_ratios == pytest.approx([np.log(2)] * 3)


def test_runs_of_one_installation_are_no_replicates(tmp_path):
    """Sessions that differ by 1 to 2 %, no effect: pooled runs would find one, installations do not."""
    write(tmp_path, "ABABAB", runs=4, sessions=[0.0, 0.03, 0.02, 0.025, -0.01, 0.005])
    a, b = sides.pair("A", "B", None, tmp_path)
    by_installation = compare.compare(a, b).cases[0]
    assert by_installation.low < 1 < by_installation.high
    assert pooled(a, b).low > 1


def pooled(a, b):
    """The same runs with the driver's name taken away: plain unpaired runs."""
    nameless = [
        dataclasses.replace(
            side,
            data=dataclasses.replace(
                side.data, runs=side.data.runs.assign(driver_identity=[{}] * len(side.data.runs))
            ),
        )
        for side in (a, b)
    ]
    comparison = compare.compare(*nameless)
    assert comparison.pairing == "unpaired"
    return comparison.cases[0]


@pytest.mark.parametrize("order", ["AB", "AAABBB", "ABABA"])
def test_fewer_alternations_are_not_interleaved_and_it_is_said_what_would_help(tmp_path, order):
    write(tmp_path, order)
    comparison = compared(tmp_path)
    assert comparison.pairing == "unpaired"
    assert NOT_INTERLEAVED in comparison.notes
    assert compare.ALTERNATE in comparison.notes


def test_plain_runs_on_one_driver_are_told_nothing_about_drivers(tmp_path):
    plain = {"interleaved": False, "null": False, "measured": [CASE], "rounds": 3, "samples": 3}
    synthetic.write_campaign(tmp_path, "demo", {"old": 1.0, "new": 1.0}, **plain)
    notes = compare.compare(*sides.pair("old", "new", "demo", tmp_path)).notes
    assert NOT_INTERLEAVED in notes
    assert compare.ALTERNATE not in notes


def test_an_installation_without_a_neighbour_is_named(tmp_path):
    write(tmp_path, "BABABAB", runs=2)
    comparison = compared(tmp_path)
    assert comparison.cases[0].n == 3
    assert len(comparison.left_out) == 2
    assert {why for _, why in comparison.left_out} == {"its installation has no neighbour"}


def test_a_reboot_without_the_other_driver_is_no_new_installation(tmp_path):
    write(tmp_path, "AABBAABBAABB", runs=1)
    comparison = compared(tmp_path)
    assert (comparison.pairing, comparison.cases[0].n) == ("installations", 3)


def test_installations_of_different_machines_are_never_a_pair(tmp_path):
    write(tmp_path, "ABABAB", gpu=0)
    write(tmp_path, "ABABAB", gpu=1, start=3600)
    write(tmp_path, "AB", gpu=2, start=7200)  # alternated too little to count
    (row,) = compared(tmp_path).cases
    assert row.n == 6
    assert {name.partition(" on ")[2] for name in row.pairs} == {"GPU-0", "GPU-1"}


def test_a_case_that_an_installation_lacks_costs_its_pair(tmp_path):
    write(tmp_path, "ABABABAB", measured=lambda i: ("sm_spin",) if i == 3 else ("op", "sm_spin"))
    (row,) = compared(tmp_path).cases
    assert row.n == 3
    assert row.reason.endswith("; 1 pair of installations gave no pair")


def test_canaries_and_quantities_come_along(tmp_path):
    write(tmp_path, "ABABAB", runs=2)
    comparison = compared(tmp_path)
    assert [(row.op, row.n, row.change) for row in comparison.canaries] == [("sm_spin", 3, Change.SAME)]
    assert not comparison.canaries_moved
    (quantity,) = comparison.quantities
    assert quantity.reason.startswith("6 of its values are not positive")


def test_the_report_says_what_n_counts(tmp_path):
    write(tmp_path, "ABABAB")
    a, b = sides.pair("A", "B", None, tmp_path)
    comparison = compare.compare(a, b)
    text = report.write(report.Subject(comparison, sides.joined(a, b)), tmp_path / "out").read_text()
    assert "the drivers alternated: 6 installations" in text
    drawn = " ".join(forest_chart.forest(comparison).axes[0].get_title(loc="left").split())
    assert "3 pairs of installations, neighbours in time." in drawn


def test_drivers_differ_only_where_each_side_has_one(tmp_path):
    write(tmp_path, "AB")
    a, b = (side.data.runs for side in sides.pair("A", "B", None, tmp_path))
    assert installations.drivers_differ(a, b)
    assert not installations.drivers_differ(a, a)
    mixed = b.assign(driver_identity=[{"driver.version": str(i)} for i in range(len(b))])
    assert not installations.drivers_differ(a, mixed)
    assert not installations.drivers_differ(a, b.assign(driver_identity=[{}] * len(b)))
