"""A comparison in, JUnit XML out, as CI systems show it: what got slower is a failed test.

`faster` and `same` pass. `slower` is a failure. A case that the candidate fails and the baseline does
not is an error; so is a canary that moved, for then the machine changed and no other line can be
trusted. `unclear` and `not comparable` are skipped with their reason: they say that nothing was shown,
and a build that fails for that would be switched off.
"""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence

from bench_lib.comparing.changes import MOVED, CaseChange, Change, Comparison
from bench_lib.drawing.canvas import interval_text
from bench_lib.pages.page import one_line

Outcome = Callable[[CaseChange, Comparison], str]  # the element that says it; "": passed


def text(steps: Mapping[str, Comparison]) -> str:
    """Comparisons as one document: a suite of the canaries and one of the cases of each.

    `steps`: comparisons by the name that stands before those of their suites; "" for the only one.
    """
    root = ET.Element("testsuites", name="cuda-gains")
    for step, comparison in steps.items():
        name = f"{step} {comparison.candidate} against {comparison.baseline}".strip()
        if comparison.canaries:
            root.append(_suite(f"{name}: canaries", comparison, comparison.canaries, _canary))
        root.append(_suite(f"{name}: cases", comparison, comparison.cases, _case))
        _left_out(root[-1], comparison)
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(name: str, comparison: Comparison, rows: Sequence[CaseChange], outcome: Outcome) -> ET.Element:
    suite = ET.Element("testsuite", name=_text(name), tests=str(len(rows)))
    properties = ET.SubElement(suite, "properties")
    for key, value in _facts(comparison):
        ET.SubElement(properties, "property", name=key, value=_text(value))
    found = [(row, outcome(row, comparison)) for row in rows]
    for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(count, str(sum(kind == tag for _, kind in found)))
    for row, kind in found:
        _test(suite, row, kind)
    return suite


def _left_out(suite: ET.Element, comparison: Comparison) -> None:
    if comparison.left_out:
        lines = [f"{_text(what)}: {_text(why)}" for what, why in comparison.left_out]
        ET.SubElement(suite, "system-out").text = "\n".join(["left out:", *lines])


def _facts(comparison: Comparison) -> Iterable[tuple[str, str]]:
    yield "campaign", comparison.campaign
    yield "what differs", comparison.attribution
    yield "pairing", comparison.pairing
    for note in comparison.notes:
        yield "note", note


def _canary(row: CaseChange, comparison: Comparison) -> str:
    if row.change in MOVED:
        return "error"
    return "" if row.change is Change.SAME else "skipped"


def _case(row: CaseChange, comparison: Comparison) -> str:
    if row.change is Change.SLOWER:
        return "failure"
    if row.failed == comparison.candidate:
        return "error"
    return "" if row.change in (Change.FASTER, Change.SAME) else "skipped"


def _test(suite: ET.Element, row: CaseChange, kind: str) -> None:
    """One case: its time is the candidate's seconds, its message what was found and what to do next."""
    named = {"classname": _text(row.family), "name": _text(row.case_id)}
    seconds = {} if row.candidate is None else {"time": f"{row.candidate:.9f}"}
    test = ET.SubElement(suite, "testcase", named | seconds)
    said = "; ".join(part for part in (row.reason, f"next: {row.next_step}" if row.next_step else "") if part)
    numbers = f"ratio {interval_text(row)}, n {row.n}" if row.ratio else f"n {row.n}"
    if kind:
        word = {} if kind == "skipped" else {"type": str(row.change)}
        ET.SubElement(test, kind, {"message": _text(f"{row.change}: {said}")} | word).text = numbers
    else:
        ET.SubElement(test, "system-out").text = _text(f"{row.change}: {row.reason}; {numbers}")


def _text(given: str) -> str:
    """One line without the characters that XML does not allow."""
    return one_line(given)
