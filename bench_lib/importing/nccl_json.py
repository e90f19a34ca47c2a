"""The JSON of nccl-tests (option -J, versions 1 and 2).

It holds the whole environment of the process; of that, NCCL's own settings are kept and nothing else.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime

from bench_lib.importing import nccl_tests
from bench_lib.importing.documents import Node
from bench_lib.importing.found import FoundRun, Source, names
from bench_lib.importing.nccl_tests import Row, Settings
from bench_lib.units import nccl_version_text

NEWEST = 2  # version of the JSON


def read(source: Source) -> list[FoundRun]:
    """The one run of the file. Raises DataError, naming the line, where it is not what it should be."""
    root = Node(source, source.document)
    if root.has("version") and root.number("version") > NEWEST:
        raise root.child("version").malformed(f"is above {NEWEST}, the newest known here")
    arguments = " ".join(str(one.value) for one in root.items("args"))
    op = nccl_tests.op_of(arguments)
    if not op:
        raise root.malformed(
            f"names no test in its args ({arguments or 'none'}), expected such as all_reduce_perf"
        )
    config = root.child("config")
    settings = _settings(config, nccl_tests.averaged(arguments))
    devices = list(config.items("devices"))
    ranks = _ranks(config, devices)
    rows = [row for one in root.items("results") for row in _rows(one)]
    if wrong := nccl_tests.disagreement(op, ranks, rows):
        raise root.child("results").malformed(wrong)
    empty = sum(row.nbytes == 0 for row in rows)
    return [
        FoundRun(
            nccl_tests.FAMILY,
            settings.policy,
            nccl_tests.cases(op, ranks, settings, [row for row in rows if row.nbytes]),
            nccl_tests.MARGIN,
            host=names([device.text("hostname", "") for device in devices]),
            gpu_name=names([device.text("device_info", "") for device in devices]),
            started_at=_time(root, "start_time"),
            ended_at=_time(root, "end_time"),
            stack={"nccl.version": nccl_version_text(root.integer("nccl_version"))},
            settings=_environment(root),
            notes=(f"{empty} results of 0 bytes left out",) if empty else (),
        )
    ]


def recognised(source: Source) -> bool:
    """Whether it is a document with the keys that nccl-tests writes."""
    value = source.document
    return isinstance(value, dict) and {"nccl_version", "args"} <= value.keys()


def _settings(config: Node, ranks: str) -> Settings:
    return Settings(
        iterations=config.integer("iterations"),
        warmup=config.integer("warmup_iters"),
        aggregated=config.integer("aggregated_iterations"),
        graph=config.integer("graph"),
        blocking=str(int(config.text("blocking_collectives", "false") == "true")),
        ranks=ranks,
    )


def _ranks(config: Node, devices: list[Node]) -> int:
    """The ranks of the first group: the list of devices has one entry a process, whatever it drives."""
    a_process = config.integer("nthreads") * config.integer("ngpus")
    groups = [device.text("group", "0") for device in devices]
    return a_process * max(groups.count(groups[0]) if groups else 1, 1)


def _rows(result: Node) -> Iterator[Row]:
    for key, place in nccl_tests.PLACES.items():
        if result.has(key):
            half = result.child(key)
            metric = "cputime" if half.has("cpu_time") else "time"
            yield Row(
                nbytes=result.integer("size"),
                dtype=result.text("type"),
                redop=result.text("redop"),
                root=result.integer("root"),
                place=place,
                seconds=half.number("cpu_time" if metric == "cputime" else "time") * 1e-6,
                algbw=half.number("alg_bw"),
                busbw=half.number("bus_bw"),
                wrong=_wrong(half),
                metric=metric,
                iterations=_iterations(result, f"{key}_per_iter"),
            )


def _wrong(half: Node) -> int | None:
    unchecked = not half.has("nwrong") or math.isnan(half.number("nwrong"))
    return None if unchecked else half.integer("nwrong")


def _iterations(result: Node, key: str) -> tuple[float, ...]:
    """The time of each iteration: the longest over the processes where all are there."""
    if not result.has(key):
        return ()
    per_iteration = result.child(key)
    processes = [
        [one.as_number() for one in process.elements()]
        for process in per_iteration.items("per_process_max_times_us")
    ]
    if not processes:
        processes = [[one.as_number() for one in per_iteration.items("times_us")]]
    return tuple(max(times) * 1e-6 for times in zip(*processes, strict=False))


def _time(root: Node, key: str) -> float | None:
    """A time of the machine's clock, whose zone the file does not tell: read as UTC."""
    if not root.has(key):
        return None
    try:
        return datetime.strptime(root.text(key), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise root.child(key).malformed("is no time such as 2026-01-31 12:00:00") from None


def _environment(root: Node) -> dict[str, str]:
    pairs = (str(one.value).partition("=") for one in root.items("env"))
    return {
        f"env.{name}": value for name, _, value in pairs if name.startswith("NCCL_") and "://" not in value
    }
