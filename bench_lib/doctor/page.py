"""The doctor's answer as JSON, as a table in a terminal, and the table of all checks for the manual."""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from bench_lib.doctor import checks
from bench_lib.doctor.checks import Answered
from bench_lib.doctor.finding import State
from bench_lib.doctor.snapshot import Snapshot
from bench_lib.faults.secrets import hidden, secrets

SCHEMA = 1
_UNKNOWN = "unknown"
_STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}


def facts(s: Snapshot) -> dict[str, Any]:
    """The five facts of a first look: what torch says, and what the driver says where torch cannot."""
    torch, device = s.torch, s.device
    asked = torch.available is not None
    name, capability = (device.name, device.compute_capability) if device else ("", "")
    return {
        "available": torch.available if asked else None,
        "device_count": torch.count if asked else len(s.driver.devices),
        "name": torch.name or name,
        "compute_capability": torch.compute_capability or capability,
        "cuda": torch.cuda or s.cuda,
    }


def document(s: Snapshot, answers: list[Answered], environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The whole answer as plain values, without secrets; docs/doctor.md says what each field is."""
    listed = [
        {
            "name": check.name,
            "group": group,
            "state": str(finding.state),
            "found": finding.found,
            "expected": finding.expected,
            "mend": finding.mend,
        }
        for group, check, finding in answers
    ]
    code = checks.exit_code(answers)
    whole = {"schema": SCHEMA, "stack": s.stack, "exit_code": code, "facts": facts(s), "checks": listed}
    clean: dict[str, Any] = hidden(whole, secrets(environ))
    return clean


def show(answer: Mapping[str, Any], console: Console) -> None:
    """Print an answer for a person."""
    console.print(_facts(answer["facts"]))
    for check in answer["checks"]:
        if check["name"] == "gpu" and check["state"] == State.NOT_APPLICABLE:  # what a GPU's owner came for
            console.print(Text(f"\n{check['found']}\n", style="bold yellow"), soft_wrap=True)
    table = Table("check", "state", Column("found", overflow="fold"), box=None, pad_edge=False)
    group = ""
    for check in answer["checks"]:
        state = State(check["state"])
        if state is State.NOT_APPLICABLE:  # half of them where there is no GPU: counted below
            continue
        if check["group"] != group:
            group = check["group"]
            table.add_row(Text(f"\n{group}", style="bold"))
        table.add_row(check["name"], Text(state, style=_STYLES[state]), Text(_told(check)))
    console.print(table)
    counts = Counter(check["state"] for check in answer["checks"])
    none = counts.pop(State.NOT_APPLICABLE, 0)
    told = [f"{n} {state}" for state, n in counts.items()]
    told += [f"{none} {State.NOT_APPLICABLE} (--json lists them)"] if none else []
    console.print(f"\nstack {answer['stack']}: {', '.join(told)}", soft_wrap=True)


def _facts(facts: Mapping[str, Any]) -> Table:
    """In the words in which people ask torch for them."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for label, value in (
        ("torch.cuda.is_available()", facts["available"]),
        ("torch.cuda.device_count()", facts["device_count"]),
        ("name", facts["name"]),
        ("compute capability", facts["compute_capability"]),
        ("torch.version.cuda", facts["cuda"]),
    ):
        table.add_row(label, Text(_UNKNOWN if value in (None, "") else str(value), style="bold"))
    return table


def _told(check: Mapping[str, str]) -> str:
    lines = [check["found"]]
    lines += [f"expected: {check['expected']}"] if check["expected"] else []
    lines += [f"mend: {check['mend']}"] if check["mend"] else []
    return "\n".join(lines)


def manual() -> str:
    """The table of all checks, in Markdown."""
    rows = [
        f"| {group} | `{check.name}` | {check.about} |"
        for group, listed in checks.GROUPS.items()
        for check in listed
    ]
    return "\n".join(["| group | check | what it asks |", "| --- | --- | --- |", *rows])
