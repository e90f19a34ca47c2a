"""A bridge in, sections of text, a chart and tables out; and the same as JSON and CSV."""

import csv as csv_writer
import dataclasses
import io
import math
from collections.abc import Collection, Iterable

from bench_lib.comparing.bridge import Bridge, Line, exchanged
from bench_lib.comparing.changes import Comparison
from bench_lib.drawing.bridge_chart import waterfall
from bench_lib.drawing.canvas import interval_text, ratio_text
from bench_lib.drawing.charts import counts_text
from bench_lib.faults import seals
from bench_lib.pages import terminal
from bench_lib.pages.page import Bullets, Chart, Code, Inline, Section, Table, left_out
from bench_lib.pages.render import closing_lines

_FIELDS = ("case_id", "step", "baseline", "candidate", "exchanges", "ratio", "low", "high", "change")


def title(found: Bridge) -> str:
    """The way of the bridge, in a line."""
    return f"{' -> '.join(found.stacks)} ({found.campaign}): ratio = candidate / baseline"


def sections(found: Bridge, charts: bool = True) -> list[Section]:
    """The steps and what to know about them; the whole taken apart, with its waterfall; what was left out."""
    told = found.whole.notes if charts else ()  # a report's first screen holds them
    shows = "The steps from the first stack to the last, and the whole"
    chart = (Chart("waterfall", shows, waterfall(found)),) if charts else ()
    made = [
        Section("The bridge, step by step", (_steps(found), *_notes(found, told))),
        Section("The whole, taken apart", (_construction(found), *chart, _lines(found))),
    ]
    ends = () if charts else closing_lines(found.whole)[1:]  # a report's first screen holds them, too
    made += [Section("The whole, in short", tuple(ends))] if ends else []
    return made + left_out("Left out of the bridge", found.left_out)


def answer(found: Bridge) -> str:
    """The sentence on the steps: which of them moves the mean over the cases most; "" without a mean."""
    if not found.means:
        return "No case was measured on every one of these stacks."
    mean = found.means[0]
    sizes = [abs(math.log(step.ratio)) for step in mean.steps]
    at = sizes.index(max(sizes))
    step = f"step {at + 1} of {len(sizes)} ({exchanged(found.steps[at])})"
    return (
        f"In the mean over {mean.name} the whole way takes {interval_text(mean.whole)} times the time; "
        f"{step} moves it most, {interval_text(mean.steps[at])} times."
    )


def show(found: Bridge, form: str) -> None:
    """Print it as `table`, `json`, `csv` or `md`; without its chart, which is for files."""
    other = json if form == "json" else csv
    terminal.show_as(form, title(found), sections(found, charts=False), lambda: other(found))


def json(found: Bridge) -> str:
    """The whole bridge, its comparisons included, as strict JSON."""
    document = dataclasses.asdict(found) | {"exact": found.exact}
    for step, shown in zip(found.steps, document["steps"], strict=True):
        shown |= {"exchanges": exchanged(step), "counts": dict(step.counts())}
    return seals.document(document)


def csv(found: Bridge) -> str:
    """A line a case and step, the whole as the last step of each."""
    out = io.StringIO()
    writer = csv_writer.DictWriter(out, _FIELDS, lineterminator="\n")
    writer.writeheader()
    ways = [*found.steps, found.whole] + ([found.apart] if found.apart else [])
    names = [*map(str, range(1, len(found.steps) + 1)), "whole", "apart"]
    for line in (*found.means, *found.lines):
        for name, way, ratio in zip(names, ways, (*line.steps, line.whole, line.apart), strict=False):
            if ratio is not None:
                own = {"case_id": line.name, "step": name, "exchanges": exchanged(way)}
                sides = {"baseline": way.baseline, "candidate": way.candidate}
                writer.writerow({**own, **sides, **dataclasses.asdict(ratio)})
    return out.getvalue()


def _steps(found: Bridge) -> Table:
    head = ("step", "from → to", "exchanges", "cases", "mean ratio [95 % interval]", "canaries")
    mean = found.means[0] if found.means else None
    ways = [*found.steps, found.whole]
    ratios = [*mean.steps, mean.whole] if mean else [None] * len(ways)
    names = [*map(str, range(1, len(ways))), "whole"]
    rows: tuple[tuple[Inline, ...], ...] = tuple(
        (
            name,
            (Code(way.baseline), " → ", Code(way.candidate)),
            exchanged(way),
            counts_text(way),
            interval_text(ratio),
            _canaries(way),
        )
        for name, way, ratio in zip(names, ways, ratios, strict=True)
    )
    return Table(head, rows)


def _canaries(way: Comparison) -> str:
    if not way.canaries:
        return "none measured"
    return "MOVED: the machine changed" if way.canaries_moved else "still"


def _notes(found: Bridge, told: Collection[str]) -> list[Bullets]:
    """What the steps' comparisons say to know, each once, and not what the first screen has told."""
    notes = list(dict.fromkeys(note for step in (*found.steps, found.whole) for note in step.notes))
    notes = [note for note in notes if note not in told]
    return [Bullets(tuple(notes))] if notes else []


def _construction(found: Bridge) -> str:
    """Why the steps multiply to the whole, or why they need not; and what another campaign found."""
    if not found.lines:
        return "No case was measured on every one of these stacks, so there is no whole to take apart."
    if found.exact:
        text = "All steps come from the same runs, so they multiply to the whole by construction: no check. "
    else:
        text = "The steps come from different runs, so their product need not be the whole. "
    if found.apart is None:
        return text + "A check would be the first and the last stack measured in another campaign."
    checked = sum(line.apart is not None for line in found.lines)
    return text + (
        f"In {found.apart.campaign} the first and the last stack were measured apart: of {checked} cases "
        f"{found.differing} differ from the whole here by more than chance (5 % expected)."
    )


def _lines(found: Bridge) -> Table:
    product = () if found.exact else ("product",)
    apart = ("measured apart", "agrees") if found.apart else ()
    steps = (f"step {i + 1}" for i in range(len(found.steps)))
    head = ("case", *steps, *product, "whole [95 % interval]", "change", *apart)
    return Table(head, tuple(tuple(_cells(found, line)) for line in (*found.means, *found.lines)))


def _cells(found: Bridge, line: Line) -> Iterable[Inline]:
    yield f"mean over {line.name}" if line.cases > 1 else Code(line.name)
    yield from (ratio_text(step.ratio) for step in line.steps)
    if not found.exact:
        yield ratio_text(line.product)
    yield interval_text(line.whole)
    yield str(line.whole.change or "")
    if found.apart:
        yield interval_text(line.apart)
        yield "" if line.apart is None else "no" if line.differs else "yes"
