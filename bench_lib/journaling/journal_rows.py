"""A journal's events in, the rows of the three tables out. Nothing here reads or writes a file."""

from typing import Any

from bench_lib import schema
from bench_lib.errors import DataError
from bench_lib.model import Status

Row = dict[str, Any]

KEYS = ("run_id", "campaign", "stack", "arm", "round", "device")  # of a run, in all its rows


def rows(events: list[Row]) -> dict[str, list[Row]]:
    """The rows of the three tables that a journal's events stand for; each fits its table.

    One damaged field does not lose the run: a field of a wrong type costs its own case only, which has
    failed then; of a run's row, only itself.
    """
    run, _ = schema.fitting("runs", _run_row(events))
    keys = {key: run[key] for key in KEYS}
    noted = _with_notes(events)
    pairs = [_case_rows({**event, **keys}) for event in noted if event["event"] == "case"]
    return {
        "samples": [row for _, its in pairs for row in its],
        "cases": [c for c, _ in pairs],
        "runs": [run],
    }


def _with_notes(events: list[Row]) -> list[Row]:
    """The events; a note is one more warning of the finished case that it names."""
    notes: dict[str, list[str]] = {}
    for event in events:
        if event["event"] == "note":
            notes.setdefault(str(event.get("nodeid")), []).append(str(event.get("text")))
    return [
        {**event, "warnings": [*warnings, *notes[event["nodeid"]]]}
        if event["event"] == "case"
        and event.get("nodeid") in notes
        and isinstance(warnings := event.get("warnings") or [], list)
        else event
        for event in events
    ]


def _case_rows(case: Row) -> tuple[Row, list[Row]]:
    """A case's row and its samples; when something in them does not fit, a failed case without any."""
    fitted, wrong = schema.fitting("cases", case)
    try:
        samples = _samples(case)
        schema.table("samples", samples)
    except DataError as error:
        wrong = [*wrong, str(error)]
    if not wrong:
        return case, samples
    reason = f"its record is damaged: {'; '.join(wrong)}"
    return {**fitted, "status": Status.FAILED, "reason": reason, "n_samples": 0, "n_flagged": 0}, []


def _samples(case: Row) -> list[Row]:
    keys = {field.name: case.get(field.name) for field in schema.SCHEMAS["samples"]}
    seconds, flags = case.get("seconds") or [], case.get("flags") or []
    if not isinstance(seconds, list) or not isinstance(flags, list):
        raise DataError("field 'seconds' or 'flags' is not a list")
    flags = [*flags, *[""] * (len(seconds) - len(flags))]
    return [{**keys, "sample": i, "seconds": s, "flags": flags[i]} for i, s in enumerate(seconds)]


def _run_row(events: list[Row]) -> Row:
    run = events[0]
    identity = next((e for e in reversed(events) if e["event"] == "identity"), {})
    end = next((e for e in reversed(events) if e["event"] == "end"), None)
    machine = identity.get("machine") or {}
    known = machine if isinstance(machine, dict) else {}
    return {
        **run,
        "host": known.get("host"),
        "boot_id": known.get("boot_id"),
        "gpu_uuid": known.get("gpu.uuid"),
        "gpu_name": known.get("gpu.name"),
        "mig": known.get("gpu.mig", ""),
        "ended_at": events[-1].get("at"),
        "complete": end is not None,
        "exit_code": None if end is None else end.get("exit_code"),
        "stack_identity": identity.get("stack"),
        "driver_identity": identity.get("driver"),
        "machine_identity": machine,
        "settings": identity.get("settings"),
        "quantities": identity.get("quantities"),
    }
