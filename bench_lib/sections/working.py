"""Cases that pass or fail rather than take time, as a table: what works in which stack, and what does not."""

from collections.abc import Iterator, Mapping
from typing import Any

from bench_lib.comparing.replicates import params_of
from bench_lib.comparing.store import Data
from bench_lib.model import Status
from bench_lib.pages.page import Code, Inline, Mark, Section, Table

FAMILIES = ("dtensor_fsdp_smoke", "onnx_export")
_TOLD = ("check.", "export")  # how the facts are named that say what was seen
_GOOD = ("ok", "passed", "succeeded")
_NEITHER = (Status.SKIPPED, Status.NOT_APPLICABLE)

_Row = tuple[Inline, ...]


def section(data: Data) -> Section | None:
    """A row a check, the way it was done, and stack; None where nothing of these families was measured."""
    cases = data.cases[data.cases["family"].isin(FAMILIES)]
    of_run = data.runs[["run_id", "stack", "stack_identity"]]
    told = cases[["run_id", "op", "params", "status", "reason", "facts"]].merge(of_run, on="run_id")
    rows = tuple(dict.fromkeys(row for case in told.to_dict("records") for row in _rows(case)))
    if not rows:
        return None
    head = ("what", "by", "stack", "torch", "result", "in its words")
    return Section("What works", (Table(head, tuple(sorted(rows, key=str)), "working"),))


def _rows(case: Mapping[Any, Any]) -> Iterator[_Row]:
    params = params_of(case["params"])
    torch = case["stack_identity"].get("torch.version", "")
    by, stack = str(params.get("backend") or params.get("exporter") or ""), Code(str(case["stack"]))
    for what, told in _told(case, params).items():
        yield (Code(what), by, stack, torch, _mark(case["status"], told), told)


def _told(case: Mapping[Any, Any], params: Mapping[str, Any]) -> dict[str, str]:
    """What was seen of each thing that the case tried; of one that ended otherwise, why."""
    name = str(params.get("check") or params.get("network") or case["op"])
    if case["status"] != Status.OK:
        return {name: (str(case["reason"] or case["status"])).splitlines()[0]}
    facts = case["facts"] if isinstance(case["facts"], Mapping) else {}
    seen = {str(key): str(text) for key, text in facts.items() if str(key).startswith(_TOLD)}
    return {key.partition(".")[2] or name: text for key, text in seen.items()}


def _mark(status: str, told: str) -> Mark:
    if status in _NEITHER:
        return Mark(str(status), "unclear")
    good = status == Status.OK and told.startswith(_GOOD)
    return Mark("works" if good else "fails", "supported" if good else "refuted")


def nothing() -> str:
    """What is said where there is no such case."""
    return f"No case of {' or '.join(FAMILIES)} is in what was read."
