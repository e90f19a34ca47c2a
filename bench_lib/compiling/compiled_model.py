"""torch.compile without its silent ways out: a graph break, a second compilation, no compilation.

Each of them would compare eager with eager, or time the compiler. torch is handed in.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from typing import Any

from bench_lib.errors import CudaGainsError, NotApplicable
from bench_lib.model import NULL_SUFFIX

EAGER = "eager"
REDUCE_OVERHEAD = "compiled-reduce-overhead"
MAX_AUTOTUNE = "compiled-max-autotune"
_MODES = {"compiled": "default", REDUCE_OVERHEAD: "reduce-overhead", MAX_AUTOTUNE: "max-autotune"}
EXECUTIONS = (EAGER, *_MODES)
NULL = EAGER + NULL_SUFFIX  # a second eager copy: against the first it comes out at 1.00


def compiled(torch: Any, model: Any, execution: str, device: str) -> Any:
    """`model` as `execution` calls it: itself when eager, else compiled whole, for fixed shapes.

    Raises NotApplicable for CUDA graphs on the CPU.
    """
    if execution in (EAGER, NULL):
        return model
    if execution == REDUCE_OVERHEAD and device == "cpu":
        raise NotApplicable("reduce-overhead is CUDA graphs: on the CPU it is the mode default")
    return torch.compile(model, fullgraph=True, dynamic=False, mode=_MODES[execution])


@dataclass(frozen=True)
class Counts:
    """What the compiler has done so far in this process."""

    graphs: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cudagraph_skips: int = 0

    def since(self, before: "Counts") -> "Counts":
        """What was done after `before` was counted."""
        return Counts(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def facts(self) -> dict[str, str]:
        """The facts a case stores."""
        return {
            "compile.graphs": str(self.graphs),
            "compile.cache": f"{self.cache_hits} hits, {self.cache_misses} misses",
        }


def count(torch: Any) -> Counts:
    """Count now. torch has no other door to these numbers; one that a torch lacks is 0."""
    from torch._dynamo.utils import counters

    autograd, inductor = counters["aot_autograd"], counters["inductor"]
    return Counts(
        graphs=autograd["ok"],
        cache_hits=autograd["autograd_cache_hit"] + inductor["fxgraph_cache_hit"],
        cache_misses=autograd["autograd_cache_miss"] + inductor["fxgraph_cache_miss"],
        cudagraph_skips=inductor["cudagraph_skips"],
    )


def check_compiled(done: Counts, execution: str) -> None:
    """Raise CudaGainsError unless `execution` was compiled as one graph, on CUDA graphs if asked."""
    if execution in (EAGER, NULL):
        return
    if done.graphs != 1:
        raise CudaGainsError(
            f"{execution} became {done.graphs} graphs, expected one: eager would be compared with itself; "
            "is TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE or TORCHDYNAMO_SUPPRESS_ERRORS set?"
        )
    if execution == REDUCE_OVERHEAD and done.cudagraph_skips:
        raise CudaGainsError(
            f"{execution} skipped its CUDA graphs {done.cudagraph_skips} times, expected never; "
            "TORCH_LOGS=cudagraphs tells why"
        )


def forget(torch: Any) -> None:
    """Drop what was compiled in this process; what is on disk stays.

    Models of one class share one list of compiled code, and a second batch size in it would be a
    recompilation.
    """
    public = getattr(getattr(torch, "compiler", None), "reset", None)  # from 2.1 on
    if public is not None:
        public()
        return
    import torch._dynamo as dynamo

    dynamo.reset()


@contextmanager
def no_recompiles(torch: Any) -> Iterator[None]:
    """Inside, a recompilation is an error and never a silent fall back to eager."""
    before = count(torch)
    try:
        with _stance(torch):
            yield
    except RuntimeError as error:
        if "recompil" not in str(error).lower():
            raise
        raise _again(str(error).strip().splitlines()[-1].strip(" -")) from None
    if more := count(torch).since(before).graphs:
        raise _again(f"{more} more graphs")


def _again(why: str) -> CudaGainsError:
    return CudaGainsError(
        f"a compiled model was compiled again after its warm-up ({why}); inputs and flags must stay"
    )


def _stance(torch: Any) -> AbstractContextManager[Any]:
    """Let the compiler itself refuse, as far as this torch can: from 2.6 on, and a little before."""
    stance = getattr(getattr(torch, "compiler", None), "set_stance", None)
    if stance is not None:
        return stance("fail_on_recompile")  # type: ignore[no-any-return]
    from torch._dynamo import config

    return config.patch(error_on_recompile=True) if hasattr(config, "error_on_recompile") else nullcontext()
