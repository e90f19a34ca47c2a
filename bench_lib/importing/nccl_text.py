"""The table that nccl-tests prints, with its header, out of a log that may hold other lines as well.

A log of several runs of a test is as many runs. Known: the tables since 2.0, with `error` or `#wrong`,
with or without `root`, with per-iteration columns (-I) and timestamps.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bench_lib.importing import nccl_tests
from bench_lib.importing.found import FoundCase, FoundRun, Source, names
from bench_lib.importing.nccl_tests import Row, Settings
from bench_lib.model import Status
from bench_lib.units import nccl_version_text

Line = tuple[int, str]

_TAG = re.compile(r"^\[[\d,]+\](?:<std(?:out|err)>)?:?")  # of mpirun --tag-output
_HEADER = re.compile(
    r"# nThread (\d+) nGpus (\d+) .*?warmup iters: (\d+) iters: (\d+)(?: agg iters: (\d+))?"
    r".*?(?:graph: (\d+))?(?: unalign.*)?$"
)
_RANK = re.compile(r"#\s+Rank\s+\d+(?: Group\s+(\d+))? Pid\s+\d+ on\s+(\S+) device\s+\d+ \[[^\]]*\] (.+)")
_COLUMNS = re.compile(r"#\s+size\s+count\s+type\s")
_ROW = re.compile(r"\s*\d+\s+\d+\s")
_END = re.compile(r"# Out of bounds values\s*: (\d+)")
_LIBRARY = re.compile(r"nccl-library=(\d+)")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)(?:\+cuda([\d.]+))?")
_NBYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int32": 4, "int8": 1, "uint8": 1}
_PER_ITERATION = {
    name: f"iteration_{name.removeprefix('i_')}_seconds" for name in ("i_min", "i_max", "i_p99")
}


@dataclass
class _Block:
    """The lines of one run."""

    header: Line
    settings: Settings
    a_process: int  # ranks
    named: list[str]  # what names the test, best first
    ranks: list[tuple[str, str, str]] = field(default_factory=list)  # group, host, GPU
    columns: list[str] = field(default_factory=list)
    rows: list[Line] = field(default_factory=list)
    out_of_bounds: int | None = None  # None: the output ends before it is told
    stack: dict[str, str] = field(default_factory=dict)


def recognised(source: Source) -> bool:
    """Whether any line is the header of a test or of its table."""
    lines = map(_plain, source.text.splitlines())
    return any(_HEADER.match(line) or _COLUMNS.match(line) for line in lines)


def read(source: Source) -> list[FoundRun]:
    """A run a table. Raises DataError, naming the line, where header and table do not fit each other."""
    return [_run(source, block) for block in _blocks(source)]


def _plain(line: str) -> str:
    return _TAG.sub("", line).rstrip()


def _blocks(source: Source) -> list[_Block]:
    blocks: list[_Block] = []
    named: dict[str, str] = {}
    stack: dict[str, str] = {}
    for number, raw in enumerate(source.text.splitlines(), start=1):
        line = _plain(raw)
        if header := _HEADER.match(line):
            blocks.append(_begun((number, line), header, named, stack))
        elif version := _LIBRARY.search(line):
            stack = {"nccl.version": nccl_version_text(int(version[1]))}
        elif (version := _VERSION.search(line)) and blocks:
            blocks[-1].stack |= {"nccl.version": version[1]} | (
                {"nccl.cuda": version[2]} if version[2] else {}
            )
        elif "starting:" in line and nccl_tests.op_of(line):
            named["starting"] = nccl_tests.op_of(line)
        elif not line.startswith("#") and nccl_tests.op_of(line):
            named["command"] = line
        elif blocks:
            _take(source, blocks[-1], number, line)
        elif _COLUMNS.match(line):
            raise source.malformed(
                "a table begins without the line '# nThread ...' before it, which tells the ranks", number
            )
    return blocks


def _begun(header: Line, found: re.Match[str], named: dict[str, str], stack: Mapping[str, str]) -> _Block:
    threads, gpus, warmup, iterations, aggregated, graph = found.groups()
    command = named.get("command", "")
    settings = Settings(
        iterations=int(iterations),
        warmup=int(warmup),
        aggregated=int(aggregated or 1),
        graph=int(graph or 0),
        ranks=nccl_tests.averaged(command) if command else nccl_tests.UNSTATED,
    )
    names_of_test = [named.pop("starting", ""), nccl_tests.op_of(command)]
    return _Block(header, settings, int(threads) * int(gpus), names_of_test, stack=dict(stack))


def _take(source: Source, block: _Block, number: int, line: str) -> None:
    if rank := _RANK.match(line):
        block.ranks.append((rank[1] or "0", rank[2], rank[3].strip()))
    elif _COLUMNS.match(line):
        if block.columns:
            raise source.malformed(
                "a second table under one header: outputs of several processes are mixed", number
            )
        block.columns = line.removeprefix("#").split()
    elif line.startswith("# Blocking Enabled"):
        blocking = "2" if "no barrier" in line else "1"
        block.settings = replace(block.settings, blocking=blocking)
    elif end := _END.match(line):
        block.out_of_bounds = int(end[1])
    elif block.columns and _ROW.match(line):
        block.rows.append((number, line))


def _run(source: Source, block: _Block) -> FoundRun:
    if not block.rows:
        raise source.malformed(
            "no table follows this header: the run failed, or several processes that knew nothing of each "
            "other printed into one file (nccl-tests built without MPI=1)",
            block.header[0],
        )
    groups = [group for group, _, _ in block.ranks]
    ranks = groups.count(groups[0]) if groups else block.a_process
    rows = [row for line in block.rows for row in _rows(source, block, line)]
    op = _op(source, block, rows[-1], ranks)
    if wrong := nccl_tests.disagreement(op, ranks, rows):
        raise source.malformed(wrong, block.header[0])
    empty = sum(row.nbytes == 0 for row in rows)
    found = nccl_tests.cases(op, ranks, block.settings, [row for row in rows if row.nbytes])
    return FoundRun(
        nccl_tests.FAMILY,
        block.settings.policy,
        tuple(_doubted(case, block) for case in found),
        nccl_tests.MARGIN,
        host=names([host for _, host, _ in block.ranks]),
        gpu_name=names([gpu for _, _, gpu in block.ranks]),
        stack=block.stack,
        complete=block.out_of_bounds is not None,
        notes=(f"{empty} results of 0 bytes left out",) if empty else (),
    )


def _rows(source: Source, block: _Block, line: Line) -> list[Row]:
    """Both halves of a row: out of place, then in place."""
    values, columns = line[1].split(), block.columns
    stamped = columns[-1] == "timestamp"
    if len(values) != len(columns) + stamped:
        raise source.malformed(
            f"a row of {len(values)} columns in a table of {len(columns) + stamped}; was the run killed?",
            line[0],
        )
    begins = [i for i, name in enumerate(columns) if name in ("time", "cputime")]
    ends = [*begins[1:], len(columns) - stamped]
    head = dict(zip(columns[: begins[0]], values, strict=False))
    halves = [dict(zip(columns[a:b], values[a:b], strict=True)) for a, b in zip(begins, ends, strict=True)]
    try:
        return [_row(head, half, place) for half, place in zip(halves, ("out", "in"), strict=False)]
    except (KeyError, OverflowError, ValueError) as error:
        raise source.malformed(f"a row that is none of nccl-tests ({error})", line[0]) from None


def _row(head: Mapping[str, str], half: Mapping[str, str], place: str) -> Row:
    metric = "cputime" if "cputime" in half else "time"
    wrong = half.get("#wrong", "N/A")
    quantities = {name: float(half[i]) * 1e-6 for i, name in _PER_ITERATION.items() if i in half}
    if (error := half.get("error", "N/A")) != "N/A":
        quantities["max_abs_error"] = float(error)
    return Row(
        nbytes=int(head["size"]),
        dtype=head["type"],
        redop=head.get("redop", "none"),
        root=int(head.get("root", -1)),
        place=place,
        seconds=float(half[metric]) * 1e-6,
        algbw=float(half["algbw"]),
        busbw=float(half["busbw"]),
        wrong=None if wrong == "N/A" else int(float(wrong)),
        metric=metric,
        quantities={name: value for name, value in quantities.items() if math.isfinite(value)},
    )


def _doubted(case: FoundCase, block: _Block) -> FoundCase:
    """Old tables say how many values were wrong in all, but not in which row: then none is good."""
    if not block.out_of_bounds or "#wrong" in block.columns or case.status is not Status.OK:
        return case
    reason = f"nccl-tests counted {block.out_of_bounds} values out of bounds, and does not say in which row"
    return replace(case, seconds=(), status=Status.WRONG_RESULT, reason=reason)


def _op(source: Source, block: _Block, row: Row, ranks: int) -> str:
    """The test: as the output or the file names it, or the only one whose rows look like this."""
    for name in (*block.named, nccl_tests.op_of(source.path.stem)):
        if name:
            return name
    count = int(block.rows[-1][1].split()[1]) * _NBYTES.get(row.dtype, 0)
    if row.redop != "none" and row.root >= 0:
        return "reduce"
    if row.redop != "none" and row.nbytes == count:
        return "all_reduce"
    if row.redop != "none" and row.nbytes == count * ranks:
        return "reduce_scatter"
    raise source.malformed(
        "nothing names the test of this table; write its command line (all_gather_perf ...) before it",
        block.header[0],
    )
