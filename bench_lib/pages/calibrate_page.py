"""A calibration in, sections of text and tables out, and the same as JSON."""

import dataclasses
from collections.abc import Iterable, Sequence
from statistics import median

from bench_lib.comparing.calibrate import EFFECTS, Calibration, CaseNoise
from bench_lib.comparing.stats import ALPHA, FEWEST, MOST_ROUNDS, POWER
from bench_lib.comparing.verdicts import Pairing
from bench_lib.faults import seals
from bench_lib.pages import terminal
from bench_lib.pages.page import Bullets, Code, Inline, Section, Table, left_out
from bench_lib.units import duration_text, percent_text

_ROUNDS_FOR = tuple(f"for {100 * effect:g} %" for effect in EFFECTS)
_READING = (
    f"differs: the 95 % interval of repeat / baseline excludes 1. That is {100 * ALPHA:g} % of the cases by "
    "chance; beyond the margin it should be none.",
    "swaps: with the labels of baseline and repeat exchanged within some of the pairs the two are still "
    "the same stack, so over all swaps as many differ by chance.",
    "sd: of one run within its round (of a contrast: of the ratio from run to run).",
    f"resolves: the smallest effect that this many pairs show with {100 * POWER:g} % probability.",
    "supports: the smallest margin that is twice the half-width of the interval.",
    f"rounds for: the pairs needed to show an effect of that size with {100 * POWER:g} % probability.",
)


def title(found: Calibration) -> str:
    """What was calibrated, in a line."""
    return f"{found.baseline} against itself ({found.campaign}): the noise of this machine"


def sections(found: Calibration) -> list[Section]:
    """The answer, families, places in the round, cases, and how to read them."""
    made = [
        Section("In short", tuple(_answer(found))),
        Section("By family", ("Medians over the cases of a family.", _families(found))),
        Section("By place in the round", (_places_text(found), *_places(found))),
        Section("Cases", (_cases(found),)),
    ]
    return [
        *made,
        *left_out("Left out", found.left_out),
        Section("How to read this", (Bullets(_READING),)),
    ]


def show(found: Calibration, form: str) -> None:
    """Print it as `table`, `json` or `md`."""
    terminal.show_as(form, title(found), sections(found), lambda: json(found))


def json(found: Calibration) -> str:
    """The whole calibration as strict JSON."""
    document = dataclasses.asdict(found)
    document |= {"differing": found.differing, "beyond": found.beyond, "doubts": found.doubts}
    document |= {"supported": found.supported, "too_noisy": found.too_noisy}
    for case in document["cases"]:
        case["rounds"] = {f"{effect:g}": n for effect, n in zip(EFFECTS, case["rounds"], strict=True)}
    return seals.document(document)


def _answer(found: Calibration) -> Iterable[str | Bullets]:
    unit = found.unit
    number, share = len(found.cases), found.differing / len(found.cases)
    tried = "all" if found.swaps == 2 ** (found.pairs - 1) else "a sample of"
    yield (
        f"{found.baseline} and {found.repeat}, {found.pairs} {unit}: {found.differing} of {number} cases "
        f"differ, {100 * share:.1f} % ({100 * ALPHA:g} % expected), and {found.beyond or 'none'} beyond the "
        f"margin (none expected). Over {tried} {found.swaps} swaps of the two within {unit} "
        f"{100 * found.swapped_share:.1f} % of the cases differ, and {100 * found.as_far:.0f} % of the swaps "
        "set the two as far apart as they are."
    )
    against = (*found.doubts, *([found.too_noisy] if found.too_noisy else []))
    yield Bullets(against) if against else "Nothing here speaks against a comparison."
    resolves = sorted(case.resolves for case in found.cases)
    yield (
        f"With {found.pairs} {unit} a case resolves effects from {percent_text(resolves[0])} to "
        f"{percent_text(resolves[-1])}, half of the cases {percent_text(median(resolves))} or smaller; the "
        f"declared margin is supported in {found.supported} of {number} cases."
    )
    if found.seconds_each is not None:
        one, ten = (duration_text(n * found.seconds_each) for n in (1, 10))
        yield f"A {unit.removesuffix('s')} took about {one} here, so 10 more take about {ten}."


def _families(found: Calibration) -> Table:
    families: dict[tuple[str, float], list[CaseNoise]] = {}
    for case in found.cases:
        families.setdefault((case.family, case.margin), []).append(case)
    head = ("family", "margin", "cases", "supported in", "sd", "resolves", "supports", *_ROUNDS_FOR)
    rows: tuple[tuple[Inline, ...], ...] = tuple(
        (
            Code(name),
            percent_text(margin),
            str(len(cases)),
            str(sum(case.supports <= margin for case in cases)),
            *_medians(cases),
        )
        for (name, margin), cases in families.items()
    )
    return Table(head, rows)


def _medians(cases: Sequence[CaseNoise]) -> tuple[str, ...]:
    spreads = (median(getattr(case, name) for case in cases) for name in ("run_sd", "resolves", "supports"))
    rounds = (int(median(counts)) for counts in zip(*(case.rounds for case in cases), strict=True))
    return (*map(percent_text, spreads), *map(_rounds, rounds))


def _places_text(found: Calibration) -> str:
    if found.pairing == Pairing.RUNS:
        return "Both values lie inside each run, so there is no place in a round."
    if not found.places:
        return f"No part of the round holds one of the two without the other {FEWEST} times."
    return (
        "Runs in one part of their round against the other run of the same stack in that round: what runs "
        f"first may find a cooler machine. {100 * ALPHA:g} % of the cases are expected to differ."
    )


def _places(found: Calibration) -> list[Table]:
    rows = tuple(
        (
            *(place.part, str(place.pairs), str(place.cases), str(place.differing)),
            *(f"{100 * place.as_far:.0f} %", f"{place.ratio:.3f}"),
        )
        for place in found.places
    )
    head = ("part", "pairs", "cases", "differ", "swaps as far apart", "mean ratio")
    return [Table(head, rows)] if rows else []


def _cases(found: Calibration) -> Table:
    head = ("case", "n", "ratio [95 % interval]", "differs", "sd", "resolves", "supports", "margin")
    rows = tuple(
        (
            Code(case.case_id),
            str(case.n),
            f"{case.ratio:.3f} [{case.low:.3f}, {case.high:.3f}]",
            "yes" if case.differs else "no",
            *map(percent_text, (case.run_sd, case.resolves, case.supports, case.margin)),
            *map(_rounds, case.rounds),
        )
        for case in sorted(found.cases, key=lambda case: case.resolves)
    )
    return Table((*head, *_ROUNDS_FOR), rows)


def _rounds(n: int) -> str:
    return f"> {MOST_ROUNDS}" if n > MOST_ROUNDS else str(n)
