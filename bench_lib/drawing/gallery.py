"""The charts of whole campaigns by name: the report shows those it has data for, `chart` draws one."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from matplotlib.figure import Figure

from bench_lib.allreduce_charts.drawing import allreduce, nccl_versions
from bench_lib.comparing.store import Data
from bench_lib.drawing.compile_charts import compile_first_step, compile_speed_up
from bench_lib.drawing.conv_charts import precision_speed_up, tuning
from bench_lib.drawing.cross_check_chart import cross_check
from bench_lib.drawing.family_data import by_stack, of_family
from bench_lib.drawing.launch_chart import launch_by_runtime
from bench_lib.drawing.memory_charts import exchange, migration
from bench_lib.errors import UsageError
from bench_lib.pages.page import Chart, Section
from bench_lib.process_charts.once import once
from bench_lib.process_charts.sharing import sharing
from bench_lib.system_charts.allocator import allocator, soak
from bench_lib.system_charts.overlap import stream_overlap
from bench_lib.tma_charts.attention import attention_backends
from bench_lib.tma_charts.tiles import tma_tiles


class Kind(NamedTuple):
    """A kind of chart: the section it stands in, what it shows, the function that draws it, and of what."""

    section: str
    shows: str
    draw: Callable[[Data], Figure]
    family: str = ""  # drawn for each stack that measured it; "": one chart of all stacks together


_LAUNCH = "Launch cost by CUDA runtime"
_CONV = "Convolutions: what mixed precision gives"
_CUDNN = "Convolutions: what cuDNN's tuning gives and costs"
_MEMORY = "Managed memory: what moving pages costs"
_COMPILE = "torch.compile: what it gives and costs"
_PRECISION, _TUNING = "Speed-up over fp32 and share of the peak", "Gain and cost of cudnn.benchmark"
_MIGRATION, _EXCHANGE = "Bandwidth of migration and copies", "Cost of exchanging parameters, and of a fault"
_ALLREDUCE = "AllReduce: latency and bandwidth by size"
_CROSS, _BESIDE = "Cross-check with nvbench", "nvbench's times over ours, of the same work"
_BY_SIZE, _VERSIONS = "AllReduce by size of the message", "AllReduce by version of NCCL, in turns"
_COMPILED, _FIRST = "Speed-up of compiled over eager", "First step cold and warm, and when it has paid"
_TMA = "The tensor memory accelerator, and attention"
_TILES, _BACKENDS = "Copies and products with TMA and without", "Attention by torch's backends"
_SHARED = "Several processes on one GPU"
_CLIENTS = "Throughput and latency by number of clients"
_START = "What a process pays once"
_ONCE = "First times with lazy and with eager loading"
_ALLOCATOR, _SIDE_BY_SIDE = "torch's CUDA allocator", "What runs side by side"
_TRACES, _SOAK = "Memory reserved for traces, and what an allocation costs", "A soak over its time"
_STREAMS = "Two streams over one, and workers of a loader"
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "launch-by-runtime": Kind(_LAUNCH, _LAUNCH, launch_by_runtime),
        "precision-speed-up": Kind(_CONV, _PRECISION, precision_speed_up, "amp_conv"),
        "cudnn-tuning": Kind(_CUDNN, _TUNING, tuning, "cudnn_selection"),
        "migration": Kind(_MEMORY, _MIGRATION, migration, "unified_memory"),
        "parameter-exchange": Kind(_MEMORY, _EXCHANGE, exchange, "unified_memory"),
        "compile-speed-up": Kind(_COMPILE, _COMPILED, compile_speed_up, "compile_resnet50"),
        "compile-first-step": Kind(_COMPILE, _FIRST, compile_first_step, "compile_resnet50"),
        "cross-check": Kind(_CROSS, _BESIDE, cross_check, "cross_check"),
        "allreduce": Kind(_ALLREDUCE, _BY_SIZE, allreduce),
        "nccl-versions": Kind(_ALLREDUCE, _VERSIONS, nccl_versions),
        "tma-tiles": Kind(_TMA, _TILES, tma_tiles, "tma"),
        "attention-backends": Kind(_TMA, _BACKENDS, attention_backends, "tma"),
        "mps": Kind(_SHARED, _CLIENTS, sharing, "mps"),
        "module-loading": Kind(_START, _ONCE, once, "module_loading"),
        "allocator": Kind(_ALLOCATOR, _TRACES, allocator, "allocator"),
        "allocator-soak": Kind(_ALLOCATOR, _SOAK, soak, "allocator"),
        "stream-overlap": Kind(_SIDE_BY_SIDE, _STREAMS, stream_overlap, "stream_overlap"),
    }
)

FAMILIES_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(  # by section: what its charts show
    {
        _LAUNCH: ("launch", "ladder"),
        _ALLREDUCE: ("allreduce", "nccl_ladder", "nccl-tests"),
        **{kind.section: (kind.family,) for kind in KINDS.values() if kind.family},
    }
)


def draw(name: str, data: Data) -> list[Chart]:
    """The chart of that name; of several stacks that have something to draw, one each.

    Raises UsageError where none has.
    """
    kind = KINDS[name]
    if not kind.family:
        return [Chart(name, kind.shows, kind.draw(data))]
    figures, errors = {}, []
    for stack, own in by_stack(of_family(data, kind.family)).items():
        try:
            figures[stack] = kind.draw(own)
        except UsageError as error:
            errors.append(error)
    if not figures:
        raise errors[0]
    if len(figures) == 1:
        return [Chart(name, kind.shows, figure) for figure in figures.values()]
    return [
        Chart(f"{name}-{i}", f"{kind.shows}: {stack}", figure)
        for i, (stack, figure) in enumerate(figures.items(), start=1)
    ]


def sections(data: Data) -> list[Section]:
    """A section for each subject that the data hold something of, with its charts.

    A chart that these data break is a sentence: no chart may take the report with it.
    """
    found: dict[str, list[Chart | str]] = {}
    for name, kind in KINDS.items():
        try:
            found.setdefault(kind.section, []).extend(draw(name, data))
        except UsageError:
            continue  # nothing of it was measured
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            found[kind.section].append(f"The chart {name} cannot be drawn from these results ({why}).")
    return [Section(title, tuple(drawn)) for title, drawn in found.items() if drawn]
