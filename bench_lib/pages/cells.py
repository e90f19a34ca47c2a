"""What the cells of a notebook show: one function a cell, made of the parts that the reports are made of.

A cell that has nothing to show says so in a sentence, with the command that would make it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from bench_lib.claims import judged, pages
from bench_lib.comparing import sides, store
from bench_lib.drawing import gallery
from bench_lib.errors import CudaGainsError, UsageError
from bench_lib.html import asking, writer
from bench_lib.layout import LOCAL
from bench_lib.pages import asked, calibrate_page
from bench_lib.pages import report as reports
from bench_lib.pages.inventory import of_campaigns, of_families, of_machines
from bench_lib.pages.page import Code, Section, markdown
from bench_lib.pages.report import Subject
from bench_lib.sections import answer as answers
from bench_lib.sections import cases as tables
from bench_lib.sections import families, kernels, losses
from bench_lib.sections import working as works
from bench_lib.units import seconds_text

Asked = ParamSpec("Asked")
Results = str | Path


@dataclass(frozen=True)
class Cell:
    """Sections of a page, as a notebook shows them; `subject` is what further cells are made of."""

    sections: tuple[Section, ...]
    subject: Subject | None = None

    def _repr_html_(self) -> str:
        return writer.fragment(self.sections)

    def __repr__(self) -> str:
        return markdown("", self.sections)


def _shown(make: Callable[Asked, Iterable[Section | None]]) -> Callable[Asked, Cell]:
    """A function that gives sections, as one that gives a cell; what it cannot do is said in the cell."""

    @wraps(make)
    def cell(*args: Asked.args, **options: Asked.kwargs) -> Cell:
        try:
            return Cell(tuple(section for section in make(*args, **options) if section is not None))
        except CudaGainsError as error:
            return _nothing(str(error))

    return cell


def _nothing(why: str, *commands: str) -> Cell:
    blocks = (why, *(part for command in commands for part in ("Measure it with", Code(command))))
    return Cell((Section("Nothing to show yet", blocks),))


@_shown
def measured(results: Results) -> Iterable[Section]:
    """Every campaign under a results folder: what was measured, on what, and how it ended."""
    names = sides.campaigns(Path(results))
    yield of_campaigns({name: store.load(Path(results), [name]) for name in names})


@_shown
def campaign(results: Results, name: str | None) -> Iterable[Section]:
    """One campaign: its machines and stacks as loaded, and its cases by family and status."""
    data = _loaded(results, _names(results, name))
    yield of_machines(data)
    yield of_families(data)


def working(results: Results, campaigns: str | Sequence[str] | None) -> Cell:
    """Which checks over ranks and which exports to ONNX work, by stack."""
    names: list[str] = []
    try:
        names = _names(results, campaigns)
        found, why = works.section(_loaded(results, names)), works.nothing()
    except CudaGainsError as error:
        found, why = None, str(error)
    measure = " ".join(f"--family {name}" for name in works.FAMILIES)
    command = f"cuda-gains run --stack here --rounds 1 --no-null {measure}"
    return Cell((found,)) if found else _nothing(why, *(f"{command} --campaign {one}" for one in names[:1]))


@_shown
def noise(
    results: Results, campaign: str | None, stack: str | None = None, contrast: str | None = None
) -> Iterable[Section]:
    """The noise of a machine: a baseline against its repeat; see `cuda-gains calibrate`."""
    (name,) = _names(results, campaign)
    yield from calibrate_page.sections(asked.calibrated(stack, name, Path(results), contrast))


def compared(
    results: Results,
    campaign: str | None,
    *names: str,
    contrast: str | None = None,
    check: str | None = None,
) -> Cell:
    """Two sides, a bridge, or a contrast: the answer, what differs, the canaries.

    Sides of several campaigns are named CAMPAIGN/STACK, and `campaign` is None then. The cell is what
    `forest`, `cases`, `drift` and `behind` show more of.
    """
    try:
        subject = asking.reported(names, campaign or None, Path(results), contrast, check)
    except CudaGainsError as error:
        return _nothing(str(error), *_measuring(campaign or (LOCAL if contrast else ""), names))
    comparison = subject.comparison
    found = (
        reports.first_screen(subject),
        answers.what_differs(comparison),
        answers.canaries(comparison, seconds_text),
    )
    return Cell(tuple(section for section in found if section is not None), subject)


def _measuring(campaign: str, sides: Sequence[str]) -> list[str]:
    """The commands that measure these sides: in one campaign, or each in its own."""
    if campaign:
        stacks = " ".join(f"--stack {name.rpartition('/')[2]}" for name in sides) or "--stack here"
        return [f"cuda-gains run {stacks} --rounds 10 --campaign {campaign}"]
    commands = []
    for name in sides:
        own, _, stack = name.rpartition("/") if "/" in name else (name, "", "here")
        if name.endswith(".json"):
            commands.append(f"pytest benchmarks --benchmark-json={name}")
        else:
            commands.append(f"cuda-gains run --stack {stack} --rounds 5 --campaign {own}")
    return commands


@_shown
def forest(of: Cell) -> Iterable[Section]:
    """The ratio of every case with its interval."""
    if of.subject is not None:
        yield reports.at_a_glance(of.subject.comparison)


@_shown
def cases(of: Cell) -> Iterable[Section | None]:
    """Changes by family, and the table of all cases."""
    if of.subject is not None:
        comparison = of.subject.comparison
        yield families.overview(comparison.cases)
        yield tables.cases(comparison.cases)
        yield tables.memory(comparison.quantities)
        yield kernels.changed(comparison, of.subject.data)


@_shown
def drift(of: Cell) -> Iterable[Section | None]:
    """The runs in order of time."""
    if of.subject is not None:
        yield reports.drift(of.subject.comparison, of.subject.data)


@_shown
def behind(of: Cell) -> Iterable[Section]:
    """What was left out, and what stands behind the words."""
    if of.subject is not None:
        yield losses.section(of.subject.comparison, of.subject.data)
        yield reports.how_to_read(of.subject.comparison)


def chart(results: Results, campaigns: str | Sequence[str] | None, name: str) -> Cell:
    """A chart of whole campaigns by its name; `cuda-gains chart --help` lists them."""
    if name not in gallery.KINDS:
        return _nothing(str(sides.unknown("chart", name, gallery.KINDS, "")))
    kind = gallery.KINDS[name]
    names: list[str] = []
    try:
        names = _names(results, campaigns)
        drawn = gallery.draw(name, _loaded(results, names))
    except CudaGainsError as error:
        measure = f"cuda-gains run --stack here --rounds 5 --no-null --family {kind.family or 'ladder'}"
        return _nothing(str(error), *(f"{measure} --campaign {first}" for first in names[:1]))
    return Cell((Section(kind.section, tuple(drawn)),))


@_shown
def claims(
    results: Results, campaigns: str | Sequence[str] | None = None, path: Results | None = None
) -> Iterable[Section]:
    """The published claims judged on some campaigns, all by default; see `cuda-gains claims`."""
    names = _names(results, campaigns) if campaigns else None
    found = judged.verdicts(Path(results), names, None if path is None else Path(path))
    yield from pages.sections(found)


def _names(results: Results, campaigns: str | Sequence[str] | None) -> list[str]:
    """The campaigns that a cell is asked for; UsageError, naming those there, where it is none."""
    names = [campaigns] if isinstance(campaigns, str) else list(campaigns or ())
    if not names or not all(names):
        there = ", ".join(sides.campaigns(Path(results))) or "none"
        raise UsageError(f"no campaign is named; set one in the cell of parameters (there: {there})")
    return names


def _loaded(results: Results, names: Sequence[str]) -> store.Data:
    there = sides.campaigns(Path(results))
    for name in names:
        if name not in there:
            raise sides.unknown("campaign", name, there, f" under {results}")
    return store.load(Path(results), names)
