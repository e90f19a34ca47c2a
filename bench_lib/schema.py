"""The declared Arrow schema of the three tables, with a version; nothing is ever inferred.

Journal records in, Arrow tables out. `results/README.md` documents every field, and a test holds
it to this file.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from bench_lib.errors import DataError

SCHEMA_VERSION = 1
_VERSION_KEY = b"cuda_gains_schema"

_TEXT = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
_NUMBERS = pa.map_(pa.string(), pa.float64())
_Fields = list[tuple[str, pa.DataType]]

_RUN_KEYS: _Fields = [
    ("run_id", _TEXT),
    ("campaign", _TEXT),
    ("stack", _TEXT),
    ("arm", _TEXT),
    ("round", _TEXT),
    ("device", _TEXT),
]
_CASE_KEYS: _Fields = [
    *_RUN_KEYS,
    ("family", _TEXT),
    ("op", _TEXT),
    ("case_id", _TEXT),
    ("params", _TEXT),
    ("metric", _TEXT),
    ("timing", _TEXT),
]


def _schema(fields: _Fields) -> pa.Schema:
    return pa.schema(fields, metadata={_VERSION_KEY: str(SCHEMA_VERSION).encode()})


SCHEMAS: dict[str, pa.Schema] = {
    "samples": _schema(
        [
            *_CASE_KEYS,
            ("sample", pa.int32()),
            ("seconds", pa.float64()),
            ("flags", _TEXT),
        ]
    ),
    "cases": _schema(
        [
            *_CASE_KEYS,
            ("policy", _TEXT),
            ("measure_version", pa.int32()),
            ("calls", pa.int32()),
            ("world_size", pa.int32()),
            ("margin", pa.float64()),
            ("status", _TEXT),
            ("reason", pa.string()),
            ("position", pa.int32()),
            ("n_samples", pa.int32()),
            ("n_flagged", pa.int32()),
            ("turns", _TEXT),
            ("flop", pa.float64()),
            ("nbytes", pa.float64()),
            ("warmup_calls", pa.int64()),
            ("started_at", _TIME),
            ("wall_seconds", pa.float64()),
            ("sm_clock_mhz_start", pa.float64()),
            ("sm_clock_mhz_end", pa.float64()),
            ("memory_clock_mhz", pa.float64()),
            ("temperature_c_start", pa.float64()),
            ("temperature_c_end", pa.float64()),
            ("power_w", pa.float64()),
            ("throttle_reasons", _TEXT),
            ("warnings", pa.list_(pa.string())),
            ("quantities", _NUMBERS),
            ("facts", _TEXTS),
            ("nodeid", _TEXT),
        ]
    ),
    "runs": _schema(
        [
            *_RUN_KEYS,
            ("position", pa.int32()),
            ("policy", _TEXT),
            ("measure_version", pa.int32()),
            ("seed", pa.int64()),
            ("command", pa.string()),
            ("suite_version", _TEXT),
            ("suite_commit", _TEXT),
            ("host", _TEXT),
            ("boot_id", _TEXT),
            ("gpu_uuid", _TEXT),
            ("gpu_name", _TEXT),
            ("mig", _TEXT),
            ("started_at", _TIME),
            ("ended_at", _TIME),
            ("complete", pa.bool_()),
            ("exit_code", pa.int32()),
            ("stack_identity", _TEXTS),
            ("driver_identity", _TEXTS),
            ("machine_identity", _TEXTS),
            ("settings", _TEXTS),
            ("quantities", _NUMBERS),
        ]
    ),
}


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of one table as Arrow with the declared types; a missing field becomes null.

    Raises DataError when a value does not fit its declared type.
    """
    schema = SCHEMAS[name]
    listed = list(rows)
    columns = [_column(field, [row.get(field.name) for row in listed]) for field in schema]
    return pa.table(columns, schema=schema)


def fitting(name: str, row: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A row without the fields that do not fit their declared types, and why each does not."""
    wrong: dict[str, str] = {}
    for field in SCHEMAS[name]:
        try:
            _column(field, [row.get(field.name)])
        except DataError as error:
            wrong[field.name] = str(error)
    return {key: value for key, value in row.items() if key not in wrong}, list(wrong.values())


def text(value: str) -> str:
    """Text that UTF-8 can hold: lone surrogates (bytes of the system that were no text) are escaped."""
    return value.encode("utf-8", "backslashreplace").decode()


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array(_plain(field.type, values), type=field.type)
    except (pa.ArrowException, ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise DataError(f"field {field.name!r} does not fit its type {field.type}: {error}") from None


def _plain(kind: pa.DataType, values: list[Any]) -> list[Any]:
    if pa.types.is_timestamp(kind):
        return [None if v is None else round(v * 1e6) for v in values]
    if pa.types.is_map(kind):
        return [sorted((text(k), _text_or(v)) for k, v in (m or {}).items()) for m in values]
    if pa.types.is_floating(kind):
        return [None if v is None or not math.isfinite(v) else float(v) for v in values]
    if pa.types.is_list(kind):
        return [None if v is None else [_text_or(item) for item in v] for v in values]
    return [_text_or(v) for v in values]


def _text_or(value: Any) -> Any:
    return text(value) if isinstance(value, str) else value


def without_runs(found: pa.Table, run_ids: Collection[str]) -> pa.Table:
    """The rows of a table that belong to none of these runs."""
    import pyarrow.compute as pc  # seldom needed, and never while something is measured

    known = pa.array(sorted(run_ids), pa.string())
    return found.filter(pc.invert(pc.is_in(found["run_id"].cast(pa.string()), value_set=known)))


def version_of(schema: pa.Schema) -> int:
    """The schema version a file was written with; raises DataError where there is none."""
    try:
        return int((schema.metadata or {})[_VERSION_KEY])
    except (KeyError, ValueError):
        raise DataError("has no schema version of this suite: it was not written by it") from None


def conform(name: str, found: pa.Table, wanted: Collection[str] | None = None) -> pa.Table:
    """A table read from a file, with exactly the declared columns (or those wanted) and types.

    A column an older version did not have becomes null; raises DataError for a newer version, a
    missing key column, or a column that cannot be cast.
    """
    version = version_of(found.schema)
    if version > SCHEMA_VERSION:
        raise DataError(
            f"has schema version {version}, this suite reads up to {SCHEMA_VERSION}; upgrade the suite"
        )
    declared = [f for f in SCHEMAS[name] if wanted is None or f.name in wanted]
    columns, there = [], set(found.column_names)
    for field in declared:
        if field.name not in there:
            if field.name in {key for key, _ in _RUN_KEYS}:
                raise DataError(f"lacks the column {field.name!r}")
            columns.append(pa.nulls(found.num_rows, field.type))
            continue
        try:
            column = found[field.name]
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise DataError(f"column {field.name!r} is not {field.type}: {error}") from None
    return pa.table(columns, schema=pa.schema(declared, metadata=SCHEMAS[name].metadata))
