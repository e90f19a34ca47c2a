"""Machines of one GPU model that differ in a ratio are told, and those that do not are not."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic

from bench_lib.comparing import machines
from bench_lib.comparing.changes import CaseChange, Change
from bench_lib.html import asking
from bench_lib.pages import page, report

MARGIN = 0.02


def runs_of(*sizes: int) -> pd.DataFrame:
    """Runs on as many machines as there are sizes, `sizes[i]` of them on machine i."""
    rows = [
        {"run_id": f"{machine}-{i}", "round": "", "gpu_uuid": f"GPU-{machine}", "boot_id": "b"}
        for machine, size in enumerate(sizes)
        for i in range(size)
    ]
    return pd.DataFrame(rows)


def row(name: str, *ratios: list[float], metric: str = "step") -> CaseChange:
    """A case with the ratios of each machine."""
    logs = tuple(math.log(ratio) for of in ratios for ratio in of)
    pairs = tuple(f"{machine}-{i}" for machine, of in enumerate(ratios) for i in range(len(of)))
    change = CaseChange(name, "f", name, {"metric": metric}, metric, Change.FASTER, "faster", "none: settled")
    return replace(change, margin=MARGIN, ratio=0.8, n=len(logs), log_ratios=logs, pairs=pairs, floor=1e-6)


def around(ratio: float, n: int = 5) -> list[float]:
    return [ratio * (1 + 0.004 * (i - (n - 1) / 2)) for i in range(n)]


def test_the_whole_comes_before_its_parts_and_each_machine_has_its_ratio():
    rows = [
        row("part", around(0.5), around(2.0), metric="optimizer"),
        row("whole", around(0.9), around(0.74)),
        row("alike", around(0.9), around(0.91)),
    ]
    found = machines.spreads(rows, runs_of(5, 5))
    assert [one.case_id for one in found] == ["whole", "part"]
    assert (found[0].low, found[0].high) == pytest.approx((0.74, 0.9), rel=1e-3)
    told = machines.told(rows, found)
    assert told[2] == rows[2]
    assert told[1].reason == (
        "faster; the machines differ: 26 % less time on one (n is 5) and 10 % less time on another (n is 5)"
    )
    assert "settled" not in told[1].next_step


@pytest.mark.parametrize(
    ("ratios", "sizes"),
    [
        ((around(0.80), around(0.80 * 1.019)), (5, 5)),  # apart, and by less than the margin
        ((around(0.80), around(0.95, 2)), (5, 2)),  # two pairs are no machine
        (([0.6, 0.8, 1.0, 1.2], [0.7, 0.9, 1.1, 1.3]), (4, 4)),  # by less than they scatter
        ((around(0.80) + around(0.95),), (10,)),  # one machine
    ],
)
def test_what_does_not_show_a_difference_of_machines(ratios, sizes):
    assert machines.spreads([row("case", *ratios)], runs_of(*sizes)) == ()


def test_false_alarms_are_rare():
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(200):
        rows = [row(f"c{i}", *np.exp(rng.normal(0, 0.05, (2, 5))).tolist()) for i in range(5)]
        alarms += bool(machines.spreads(rows, runs_of(5, 5)))
    assert alarms <= 0.05 * 200


def test_rounds_on_two_machines_that_differ_are_told_on_the_first_screen(tmp_path: Path):
    other = synthetic.Machine(gpu_uuid="GPU-2", boot_id="boot-2")
    cases = synthetic.cases(2)
    for seed, (machine, gain) in enumerate([(synthetic.Machine(), 0.9), (other, 0.7)]):
        one = [synthetic.replace(cases[0], scale={"new": gain}), cases[1]]
        stacks = {"old": 1.0, "new": 1.0}
        more = {
            "rounds": 6,
            "null": False,
            "noise": synthetic.Noise(0.001, 0.001),
            "machine": machine,
            "seed": seed,
        }
        synthetic.write_campaign(tmp_path, "demo", stacks, measured=one, samples=5, **more)
    subject = asking.reported(["old", "new"], "demo", tmp_path, None)
    text = page.letters(report.first_screen(subject).blocks[4])
    assert text.endswith(
        " The machines differ: launch op submit (size 1) takes 30 % less time on one (6 rounds) and 10 % "
        "less time on another (6 rounds)."
    )
