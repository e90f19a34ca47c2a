"""A comparison and the data behind it in, its report out: one HTML file, or a folder with `report.md`.

The parts stand in bench_lib.sections, each a function; here they are put in order and written.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bench_lib.claims.judged import Verdicts
from bench_lib.comparing import titles
from bench_lib.comparing.bridge import Bridge
from bench_lib.comparing.changes import Comparison
from bench_lib.comparing.replicates import params_of
from bench_lib.comparing.store import Data
from bench_lib.comparing.verdicts import Pairing
from bench_lib.drawing import charts, forest_chart, gallery
from bench_lib.html import writer
from bench_lib.pages import bridge_page, destination
from bench_lib.pages.page import Bullets, Chart, Code, Inline, Place, Section, Table, write_markdown
from bench_lib.sections import answer as answers
from bench_lib.sections import cases as tables
from bench_lib.sections import claims, extremes, families, kernels, losses, working
from bench_lib.sections.metrics import definitions
from bench_lib.units import seconds_text

READING = (
    "ratio: seconds of the candidate / seconds of the baseline; below 1 is faster. Speed-up is its inverse. "
    "What was measured in turns has the ratio within turns: the two columns may divide to another.",
    "interval: the 95 % interval of the ratio, from the spread over n pairs of processes (over n processes "
    "in a contrast, or where nothing pairs them).",
    "margin: the smallest change that matters, declared with each benchmark before anything was measured.",
    "faster, slower: the change is larger than the margin, also after allowing for the number of cases.",
    "same: the change, whatever it is, is smaller than the margin (90 % interval inside it).",
    "unclear: the data allow more than one of these; the next step says what would settle it.",
    "biggest gain, biggest loss: the largest of many is partly luck; expect a little less on a repeat.",
    "not comparable: the two sides were measured differently, or one of them has no usable value.",
)
_IDENTITY = ("stack_identity", "driver_identity", "machine_identity", "settings")


@dataclass(frozen=True)
class Campaign:
    """All of the campaign that a comparison is in, and the published claims as judged on it."""

    data: Data
    claims: Verdicts | None = None
    no_claims: str = ""  # why there are none

    @cached_property
    def charts(self) -> list[Section]:
        """The charts of its families, which show every stack of it; drawn once."""
        return gallery.sections(self.data)


@dataclass(frozen=True)
class Subject:
    """What a report is about: a comparison and the data behind it.

    `data` is what was measured on both sides. `bridge` is there where the comparison is the whole of one.
    """

    comparison: Comparison
    data: Data
    campaign: Campaign | None = None
    bridge: Bridge | None = None
    question: str = ""  # in words of its own
    command: str = ""  # that makes the report

    @property
    def sides(self) -> tuple[str, ...]:
        """What is compared, of a bridge every stack, named as inside its campaign."""
        named = self.bridge.stacks if self.bridge else (self.comparison.baseline, self.comparison.candidate)
        return tuple(name.removeprefix(f"{self.comparison.campaign}/") for name in named)

    @property
    def title(self) -> str:
        """What the report says at its head: what is compared, and on what."""
        what = titles.way(self.bridge) if self.bridge is not None else titles.against(self.comparison)
        device = titles.device(self.data.runs, self.data.cases)
        return f"{what}, {device}" if device else what


def write(subject: Subject, out: Path | None = None) -> Path:
    """Write the report to `out`: one HTML file where that ends in .html, else a folder with report.md.

    In the folder the charts lie beside report.md as PNG and SVG. None: a folder named after the sides.
    Returns the path of the file to open. Raises UsageError where the folder is a file or is called as
    one, or the file a folder.
    """
    if out is None:
        of = subject.comparison
        out = destination.of_sides(of.campaign, of.baseline, of.candidate)
    else:
        destination.check(out)
    if destination.is_page(out):
        return writer.write(subject.title, sections(subject), out)
    return write_markdown(subject.title, sections(subject), out)


def sentences(subject: Subject) -> list[str]:
    """What belongs to the answer besides the cases: the steps of a bridge, the claims by verdict."""
    judged = subject.campaign.claims if subject.campaign else None
    found = (
        bridge_page.answer(subject.bridge) if subject.bridge else "",
        claims.sentence(judged, subject.sides),
    )
    return [text for text in found if text]


def sections(subject: Subject) -> list[Section]:
    """The whole report in order; a section with nothing to show is left out."""
    comparison, bridge = subject.comparison, subject.bridge
    campaign = subject.campaign or Campaign(subject.data)
    data = about(comparison, subject.data)
    ours, others = families.with_counts(campaign.charts, comparison.cases)
    made = (
        first_screen(subject),
        answers.what_differs(comparison),
        answers.canaries(comparison, seconds_text),
        *(bridge_page.sections(bridge) if bridge else ()),
        at_a_glance(comparison),
        claims.section(campaign.claims, campaign.no_claims, subject.sides),
        families.overview(comparison.cases),
        tables.cases(comparison.cases),
        drift(comparison, data),
        *ours,
        tables.memory(comparison.quantities),
        kernels.changed(comparison, data),
        working.section(data),
        tables.quantities(comparison.quantities),
        losses.section(comparison, data),
        *others,
        how_to_read(comparison),
        identities(subject),
    )
    return [section for section in made if section is not None]


def first_screen(subject: Subject) -> Section:
    """The question and the answer to it."""
    steps = subject.bridge.stacks[1:-1] if subject.bridge else ()
    data = about(subject.comparison, subject.data)
    return answers.answer(subject.comparison, data, steps, sentences(subject), subject.question)


def at_a_glance(comparison: Comparison) -> Section:
    """The ratio of every case with its interval, under what moved that is neither a whole step nor a call."""
    chart = Chart("forest", "Ratio of every case with its interval", forest_chart.forest(comparison))
    apart = tuple(extremes.apart(comparison.cases))
    return Section("At a glance", (*((Bullets(apart),) if apart else ()), chart))


def about(comparison: Comparison, data: Data) -> Data:
    """The data without the cases that a contrast says nothing of: those of families without its parameter."""
    if comparison.pairing != Pairing.RUNS:
        return data
    parameter = comparison.baseline.partition("=")[0]
    having = {text for text in data.cases["params"].unique() if parameter in params_of(text)}
    families_of = set(data.cases.loc[data.cases["params"].isin(having), "family"])
    cases = data.cases[data.cases["family"].isin(families_of)].reset_index(drop=True)
    return replace(data, cases=cases)


def drift(comparison: Comparison, data: Data) -> Section | None:
    """The runs in order of time; None where no case has a ratio."""
    if not any(row.ratio for row in (*comparison.canaries, *comparison.cases)):
        return None
    says = (
        "A shift between the colours comes from what is compared; a shift along the axis, from the machine."
    )
    chart = Chart("run-order", "Median of every run in order of time", charts.run_order(comparison, data))
    return Section("The runs in order of time", (says, chart))


def how_to_read(comparison: Comparison) -> Section:
    """The words of the tables, and one line for each metric in them."""
    found = definitions((*comparison.canaries, *comparison.cases, *comparison.quantities))
    metrics = tuple((Code(name), f": {text}") for name, text in found)
    return Section(
        "How to read this",
        (Bullets(READING), "Metrics:", Bullets(metrics)) if metrics else (Bullets(READING),),
        Place.APPENDIX,
    )


def identities(subject: Subject) -> Section:
    """How the report is made, and everything known about what was loaded on each side and the machine."""
    sides = charts.by_side(subject.data.runs, subject.comparison.baseline)
    blocks: list[Inline | Table] = []
    for column in _IDENTITY:
        values = {label: _values(runs[column]) for label, runs in sides.items()}
        keys = sorted({key for of in values.values() for key in of})
        rows = tuple((Code(key), *(Code(of.get(key, "")) for of in values.values())) for key in keys)
        if rows:
            blocks += [f"{column.removesuffix('_identity').capitalize()}:", Table(("", *sides), rows)]
    blocks = blocks or ["Nothing is known about what was loaded."]
    made = [("This report is made by ", Code(subject.command), ".")] if subject.command else []
    return Section("Appendix: identities", (*made, *blocks), Place.APPENDIX)


def _values(identities: Iterable[dict[str, str]]) -> dict[str, str]:
    """The value of each key over the runs of one side; all of them where the runs differ."""
    values: dict[str, dict[str, None]] = {}
    for identity in identities:
        for key, value in identity.items():
            values.setdefault(key, {})[str(value)] = None
    return {key: " / ".join(found) for key, found in values.items()}
