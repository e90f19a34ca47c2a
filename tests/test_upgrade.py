"""The sentence for who asks whether to upgrade: what was shown of gains and losses, and no more."""

import dataclasses

import pytest

from bench_lib.comparing import upgrade
from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.model import Case

TRYING = "trying every algorithm, as cudnn.benchmark does,"


def row(op, change, ratio=1.0, baseline=100e-6, **params):
    case = Case("cudnn_selection", op, params)
    return CaseChange(
        case.case_id,
        case.family,
        op,
        params,
        "time",
        change,
        "",
        n=10,
        margin=0.02,
        baseline=baseline,
        candidate=baseline * ratio,
        ratio=ratio,
        low=ratio - 0.005,
        high=ratio + 0.005,
    )


def loss(op, tried=None, ratio=1.0, baseline=100e-6):
    """A case that got slower and, where it was measured, the one in which every algorithm was tried."""
    slower = row(op, Change.SLOWER, 1.5, benchmark="off")
    return [slower] if tried is None else [slower, row(op, tried, ratio, baseline, benchmark="on")]


MENDED = loss("a", Change.SAME)
LOST_TOO = loss("b", Change.SLOWER, 1.4)
OPEN = loss("c", Change.UNCLEAR, 1.018)
UNTRIED = loss("d")
NO_CURE = loss("e", Change.SAME, baseline=150e-6)  # not slower than itself, but than what ran before
FAST, UNCLEAR, SAME = row("f", Change.FASTER, 0.8), row("g", Change.UNCLEAR), row("h", Change.SAME)


def told(*cases, **fields):
    known = {"interleaved": True, "pairing": "rounds", "differences": (), "attribution": "", "canaries": ()}
    known |= {"canaries_moved": False}
    return upgrade.sentence(Comparison("old", "new", "c", cases=cases, **{**known, **fields}))


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        ([FAST], "1 of 1 case got faster, none is shown to be slower by more than its margin."),
        (
            [FAST, UNCLEAR],
            "1 of 2 cases got faster, none is shown to be slower by more than its margin; 1 of 2 cases is "
            "unclear.",
        ),
        ([SAME, SAME], "None of 2 cases is shown to be faster or slower by more than its margin."),
        ([SAME], "The one case is shown to be neither faster nor slower by more than its margin."),
        ([UNCLEAR], "That cannot be said yet: 1 of 1 case is unclear."),
        ([UNCLEAR, UNCLEAR], "That cannot be said yet: 2 of 2 cases are unclear."),
        (
            [UNCLEAR, UNCLEAR, FAST],
            "That cannot be said yet: 2 of 3 cases are unclear; 1 got faster, none is shown to be slower by "
            "more than its margin.",
        ),
        (
            [UNCLEAR, UNCLEAR, SAME],
            "That cannot be said yet: 2 of 3 cases are unclear; none is shown to be faster or slower by more "
            "than its margin.",
        ),
        (
            [*UNTRIED, UNCLEAR, UNCLEAR],
            "That cannot be said yet: 2 of 3 cases are unclear; none got faster, 1 slower by more than its "
            "margin, and nothing that might mend it was measured.",
        ),
        (
            [UNTRIED[0]],
            "None of 1 case got faster, 1 slower by more than its margin, and nothing that might mend it was "
            "measured.",
        ),
        (
            [UNTRIED[0], UNTRIED[0]],
            "None of 2 cases got faster, 2 slower by more than their margin, and nothing that might mend "
            "them was measured.",
        ),
        (MENDED, f"None of 2 cases got faster, 1 slower by more than its margin: {TRYING} mends it."),
        (
            LOST_TOO,
            f"None of 2 cases got faster, 2 slower by more than their margin: {TRYING} does not mend them.",
        ),
        (
            OPEN,
            f"None of 2 cases got faster, 1 slower by more than its margin; whether {TRYING} mends it is "
            "unclear.",
        ),
        (
            NO_CURE,
            f"None of 2 cases got faster, 1 slower by more than its margin; whether {TRYING} mends it is "
            "unclear.",
        ),
        (
            [*MENDED, *LOST_TOO, *UNTRIED],
            f"None of 5 cases got faster, 4 slower by more than their margin: {TRYING} mends 1, does not "
            "mend 2, and for 1 that is unclear (not tried there).",
        ),
        (
            [*MENDED, *OPEN, *UNTRIED, FAST],
            f"1 of 6 cases got faster, 3 slower by more than their margin: {TRYING} mends 1, and for 2 that "
            "is unclear (not tried in 1).",
        ),
        (
            [FAST, *LOST_TOO[1:]],
            f"1 of 2 cases got faster, 1 slower by more than their margin: {TRYING} does not mend it.",
        ),
    ],
)
def test_gains_and_losses_are_counted_and_what_mends_them(cases, said):
    assert told(*cases) == said


def test_what_cannot_be_put_down_to_the_stack_is_said():
    assert told(FAST, canaries_moved=True).startswith("That cannot be told: the machine itself changed")
    assert told(*MENDED, pairing="unpaired").endswith(
        " mends it; not interleaved, so the session may be the cause."
    )


def test_no_upgrade_no_answer():
    assert told(FAST, pairing="runs") == ""  # a contrast
    assert told() == told(dataclasses.replace(FAST, change=Change.NOT_COMPARABLE)) == ""
    known = {"interleaved": True, "pairing": "rounds", "differences": (), "attribution": "", "canaries": ()}
    assert upgrade.sentence(Comparison("a", "a#2", "c", canaries_moved=False, cases=(FAST,), **known)) == ""
