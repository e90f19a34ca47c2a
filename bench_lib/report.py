"""A comparison and the data behind it in, a folder with `report.md` and its charts out.

Each function makes one section, from the answer to the appendix; `page` writes them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bench_lib import charts, gallery, losses
from bench_lib.canvas import interval_text
from bench_lib.errors import UsageError
from bench_lib.model import CaseChange, Change, Comparison
from bench_lib.page import Bullets, Chart, Code, Inline, Section, Table, write_markdown
from bench_lib.render import change_text, speed_up
from bench_lib.replicates import SECONDS
from bench_lib.store import Data
from bench_lib.units import quantity_text, seconds_text
from bench_lib.verdicts import Pairing, effect_text

METRICS = {
    "submit": "host time of the call that starts the work, with the queue far from full",
    "launch_sync": "the call and the wait until the GPU has done the work",
    "period": "device time per launch of many queued ones, so that nothing waits for the host",
    "first": "the first launch of a fresh process, its context already created",
    "init": "what a fresh process does before its first launch: loading the library and the kernel",
    "instantiate": "making an executable graph from a graph",
    "total": "launching a whole graph and waiting for its end",
    "time": "the duration of one call of the case",
    "step": "one training step (forward, backward, optimizer), or one batch of inference",
    "forward": "of a training step, the forward pass and the loss",
    "backward": "of a training step, the backward pass",
    "optimizer": "of a training step, the optimizer's update",
    "first_cold": "the first step of a fresh process whose compile caches are empty",
    "first_warm": "the first step of a fresh process with the caches that a cold one left",
    "tuning": "the one call in which an algorithm is chosen: with tuning, all are tried in it",
    "first_walk": "batches of changing size, each size for the first time",
    "second_walk": "the same batches again, every size known",
    "exchange": "of a step, what it takes longer than its passes over weights that are already there",
    "fault": "one page fault of the GPU: what a hop more costs in a dependent chain of faults",
    "hop": "one access of a dependent chain of reads",
    "alloc": "one allocation",
    "free": "one release of an allocation",
    "cudnn_selection/first": "the first call of a fresh process, after a convolution of another shape",
    "unified_memory/step": "moving all weights to the GPU, its pass over them, back, and the CPU's pass",
    "unified_memory/time": "from the call until all bytes are there",
}
READING = (
    "ratio: seconds of the candidate / seconds of the baseline; below 1 is faster. Speed-up is its inverse.",
    "interval: the 95 % interval of the ratio, from the spread over n pairs of processes (over n processes "
    "in a contrast, or where nothing pairs them).",
    "margin: the smallest change that matters, declared with each benchmark before anything was measured.",
    "faster, slower: the change is larger than the margin, also after allowing for the number of cases.",
    "same: the change, whatever it is, is smaller than the margin (90 % interval inside it).",
    "unclear: the data allow more than one of these; the next step says what would settle it.",
    "biggest gain, biggest loss: the largest of many is partly luck; expect a little less on a repeat.",
    "not comparable: the two sides were measured differently, or one of them has no usable value.",
)
_HEAD = (
    "case",
    "baseline",
    "candidate",
    "ratio [95 % interval]",
    "speed-up",
    "change",
    "n",
    "why",
    "next step",
)
_IDENTITY = ("stack_identity", "driver_identity", "machine_identity", "settings")


def write_folder(
    comparison: Comparison,
    data: Data,
    out: Path,
    campaign: Data | None = None,
    more: Sequence[Section] = (),
) -> Path:
    """Write the report of a comparison, of two sides or a contrast, into the folder `out`.

    `data` is what was measured on both sides, `campaign` all of the campaign they are in: the charts
    of its families show every stack of it. `more` are sections that follow on what differs, such as
    those of a bridge. Returns the path of report.md; the charts lie beside it as PNG and SVG. Raises
    UsageError where `out` is a file.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file, and a report is a folder; name another one with -o")
    title = f"{comparison.candidate} against {comparison.baseline}"
    return write_markdown(title, sections(comparison, data, campaign, more), out)


def sections(
    comparison: Comparison, data: Data, campaign: Data | None = None, more: Sequence[Section] = ()
) -> list[Section]:
    """The whole report in order; a section with nothing to show is left out."""
    made = (
        answer(comparison, data),
        what_differs(comparison),
        *more,
        rows_section("Canaries", "Cases that no software upgrade should move.", comparison.canaries),
        Section(
            "At a glance",
            (Chart("forest", "Ratio of every case with its interval", charts.forest(comparison)),),
        ),
        rows_section("Cases", "Sorted by effect.", comparison.cases),
        drift(comparison, data),
        *gallery.sections(data if campaign is None else campaign),
        rows_section(
            "Quantities", "Numbers that are not times; they are not counted above.", comparison.quantities
        ),
        losses.section(comparison, data),
        how_to_read(comparison),
        identities(comparison, data),
    )
    return [section for section in made if section is not None]


def answer(comparison: Comparison, data: Data) -> Section:
    """The question, the answer in three sentences, where it was measured, and what to know about it."""
    question = ("What changes from ", Code(comparison.baseline), " to ", Code(comparison.candidate), "?")
    number = len(comparison.cases)
    counts = (
        f"{number} {'case was' if number == 1 else 'cases were'} compared: {charts.counts_text(comparison)}. "
    )
    text: Inline = (counts, *_extremes(comparison.cases), _trust(comparison))
    notes = (Bullets(comparison.notes),) if comparison.notes else ()
    return Section("The answer", (question, text, _where(comparison, data), *notes))


def _extremes(cases: Sequence[CaseChange]) -> tuple[str | Code, ...]:
    """The sentence on the biggest gain and the biggest loss, of those that count as such."""
    faster = [row for row in cases if row.change is Change.FASTER]
    slower = [row for row in cases if row.change is Change.SLOWER]
    if not faster and not slower:
        return ("No case is faster or slower by more than its margin. ",)
    nothing = "nothing is {} by more than its margin"
    gain = _named("the biggest gain", min(faster, key=_ratio)) if faster else (nothing.format("faster"),)
    loss = _named("the biggest loss", max(slower, key=_ratio)) if slower else (nothing.format("slower"),)
    return ("Of these ", *gain, ", and ", *loss, ". ")


def _ratio(row: CaseChange) -> float:
    return row.ratio or 1.0


def _named(what: str, row: CaseChange) -> tuple[str | Code, ...]:
    return (f"{what} is ", Code(row.case_id), f" with {effect_text(row)}, ratio {interval_text(row)}")


def _trust(comparison: Comparison) -> str:
    """The sentence on canaries and on what the changes may be put down to."""
    differs = f"what differs: {comparison.attribution}."
    if comparison.canaries_moved:
        return (
            "The canaries moved, so the machine itself changed between the sides, and nothing here can be "
            f"put down to the stack; {differs}"
        )
    seen = [row.change for row in comparison.canaries if row.change is not Change.NOT_COMPARABLE]
    if seen:
        unclear = seen.count(Change.UNCLEAR)
        doubt = f" ({unclear} of them unclear)" if unclear else ""
        return f"None of the {len(seen)} canaries moved{doubt}; {differs}"
    if comparison.pairing == Pairing.RUNS:
        return f"Both sides were measured inside each run, so the machine is the same for both; {differs}"
    return (
        f"No canary was measured on both sides, so nothing shows that the machine stayed the same; {differs}"
    )


def _where(comparison: Comparison, data: Data) -> Inline:
    """Where, when and with what it was measured, in one sentence."""
    runs = data.runs
    facts = [
        f"{len(runs)} runs",
        ", ".join(sorted(set(runs["gpu_name"]) - {""})) or "no GPU",
        charts.time_span(data),
        "suite " + ", ".join(sorted(set(runs["suite_version"]))),
    ]
    return (
        "Measured in campaign ",
        Code(comparison.campaign),
        ": ",
        "; ".join(fact for fact in facts if fact),
        ".",
    )


def what_differs(comparison: Comparison) -> Section:
    """What the two sides differ in, as loaded."""
    if not comparison.differences:
        return Section("What differs", (f"In short: {comparison.attribution}.",))
    rows = tuple(
        (d.axis, Code(d.component), Code(d.baseline), Code(d.candidate)) for d in comparison.differences
    )
    return Section(
        "What differs",
        (
            f"In short: {comparison.attribution}.",
            Table(("axis", "component", "baseline", "candidate"), rows),
        ),
    )


def rows_section(title: str, says: str, rows: Sequence[CaseChange]) -> Section | None:
    """A table of compared cases; None where there are none."""
    return Section(title, (says, Table(_HEAD, tuple(map(_cells, rows))))) if rows else None


def _cells(row: CaseChange) -> tuple[Inline, ...]:
    shown, speed = seconds_text if row.unit == SECONDS else quantity_text, speed_up(row)
    return (
        Code(row.case_id) if row.unit == SECONDS else (Code(row.case_id), f" {row.unit}"),
        "" if row.baseline is None else shown(row.baseline),
        "" if row.candidate is None else shown(row.candidate),
        interval_text(row),
        f"{speed:.3f}x" if speed and row.unit == SECONDS else "",
        change_text(row),
        str(row.n),
        row.reason,
        row.next_step,
    )


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
    rows = (*comparison.canaries, *comparison.cases)
    found = sorted({(row.metric, metric_text(row.family, row.metric)) for row in rows})
    metrics = tuple((Code(metric), f": {text}") for metric, text in found)
    return Section(
        "How to read this",
        (Bullets(READING), "Metrics:", Bullets(metrics)) if metrics else (Bullets(READING),),
    )


def metric_text(family: str, metric: str) -> str:
    """What a metric is, in one line."""
    own = "defined in the family's benchmark file"
    return METRICS.get(f"{family}/{metric}", METRICS.get(metric, own))


def identities(comparison: Comparison, data: Data) -> Section:
    """Everything known about what was loaded on each side, and about the machine."""
    arms = charts.by_arm(data.runs, comparison.baseline)
    blocks: list[Inline | Table] = []
    for column in _IDENTITY:
        values = {label: _values(runs[column]) for label, runs in arms.items()}
        keys = sorted({key for of in values.values() for key in of})
        rows = tuple((Code(key), *(Code(of.get(key, "")) for of in values.values())) for key in keys)
        if rows:
            blocks += [f"{column.removesuffix('_identity').capitalize()}:", Table(("", *arms), rows)]
    return Section("Appendix: identities", tuple(blocks) or ("Nothing is known about what was loaded.",))


def _values(identities: Iterable[dict[str, str]]) -> dict[str, str]:
    """The value of each key over the runs of one side; all of them where the runs differ."""
    values: dict[str, dict[str, None]] = {}
    for identity in identities:
        for key, value in identity.items():
            values.setdefault(key, {})[str(value)] = None
    return {key: " / ".join(found) for key, found in values.items()}
