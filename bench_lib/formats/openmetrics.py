"""A comparison in, OpenMetrics text out: for Prometheus, its Pushgateway and node_exporter's textfiles.

Every family is a gauge, the states of a change too (1 for the one that holds, as kube-state-metrics
does it): the textfile collector reads no other types. Form: https://prometheus.io/docs/specs/om/.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.comparing.replicates import SECONDS
from bench_lib.pages.page import one_line
from bench_lib.pages.render import word


class Gauge(NamedTuple):
    """A metric family: its name, its line of help, and its unit, which then ends its name."""

    name: str
    help: str
    unit: str = ""


_PREFIX = "cuda_gains"
RATIO = Gauge(f"{_PREFIX}_ratio", "Candidate / baseline of one case: below 1 is faster, or lower.")
LOW = Gauge(f"{_PREFIX}_ratio_low", "Lower end of the 95 % interval of the ratio.")
HIGH = Gauge(f"{_PREFIX}_ratio_high", "Upper end of the 95 % interval of the ratio.")
MARGIN = Gauge(f"{_PREFIX}_margin", "Smallest change of the ratio that matters, declared before measuring.")
PAIRS = Gauge(f"{_PREFIX}_replicates", "Pairs of processes, or processes, behind the ratio.")
TIME = Gauge(f"{_PREFIX}_seconds", "Seconds of one call on one side, the mean over its processes.", SECONDS)
QUANTITY = Gauge(f"{_PREFIX}_quantity", "A number that is not a time, on one side; its label unit names it.")
CHANGE = Gauge(f"{_PREFIX}_change", "1 for the change that holds for the case, 0 for the others.")
CASES = Gauge(f"{_PREFIX}_cases", "Cases by change; canaries and quantities are not counted.")
LEFT_OUT = Gauge(f"{_PREFIX}_left_out", "Cases, rounds and files that the comparison had to leave out.")
CANARIES = Gauge(f"{_PREFIX}_canaries_moved", "1 where the machine itself changed between the sides.")
INFO = Gauge(f"{_PREFIX}_comparison", "1; the labels say what was compared and what differs.")

Labels = Mapping[str, str]
Samples = dict[Gauge, list[tuple[Labels, float]]]


def text(steps: Mapping[str, Comparison]) -> str:
    """Comparisons as one exposition; `steps` holds them by their label `step`, "" for the only one."""
    samples: Samples = {}
    for step, comparison in steps.items():
        shared = {"campaign": comparison.campaign, "baseline": comparison.baseline}
        shared |= {"candidate": comparison.candidate} | ({"step": step} if step else {})
        _add(samples, comparison, shared)
    return "".join(line + "\n" for line in _lines(samples))


def _add(samples: Samples, comparison: Comparison, shared: Labels) -> None:
    def put(gauge: Gauge, value: float | None, **labels: str) -> None:
        if value is not None:
            samples.setdefault(gauge, []).append(({**shared, **labels}, float(value)))

    put(INFO, 1, attribution=comparison.attribution, pairing=comparison.pairing)
    put(CANARIES, comparison.canaries_moved)
    put(LEFT_OUT, len({name for name, _ in comparison.left_out}))
    for change, n in comparison.counts().items():
        put(CASES, n, change=change)
    for kind, row in _rows(comparison):
        labels = {"kind": kind, "family": row.family, "case": row.case_id, "metric": row.metric}
        labels["unit"] = row.unit
        put(RATIO, row.ratio, **labels)
        put(LOW, row.low, **labels)
        put(HIGH, row.high, **labels)
        put(MARGIN, row.margin, **labels)
        put(PAIRS, row.n, **labels)
        for side, value in (("baseline", row.baseline), ("candidate", row.candidate)):
            put(TIME if row.unit == SECONDS else QUANTITY, value, **labels, side=side)
        for change in Change:
            put(CHANGE, row.change is change, **labels, change=word(change, row.unit))


def _rows(comparison: Comparison) -> Iterable[tuple[str, CaseChange]]:
    for kind, rows in (
        ("canary", comparison.canaries),
        ("case", comparison.cases),
        ("quantity", comparison.quantities),
    ):
        for row in rows:
            yield kind, row


def _lines(samples: Samples) -> Iterable[str]:
    """Family by family, as the form demands: type, unit and help first, then every sample; EOF at the end."""
    for gauge, found in samples.items():
        yield f"# TYPE {gauge.name} gauge"
        if gauge.unit:
            yield f"# UNIT {gauge.name} {gauge.unit}"
        yield f"# HELP {gauge.name} {gauge.help}"
        for labels, value in found:
            inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{gauge.name}{{{inner}}} {value!r}"
    yield "# EOF"


def _escaped(value: str) -> str:
    """A label's value: one line without control characters, quotes and backslashes escaped."""
    return one_line(value).replace("\\", "\\\\").replace('"', '\\"')
