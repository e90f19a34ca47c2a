"""The `bench` fixture: what a benchmark file measures with. One case gives one series, once."""

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from bench_lib.device.telemetry import ClockLog, Telemetry
from bench_lib.errors import CudaGainsError, UsageError, WrongResult
from bench_lib.model import Case, Clocks, Policy, Scalar, Series, Timing, Work
from bench_lib.running import plain
from bench_lib.timing.measure import measure
from bench_lib.timing.timer import Batch, Cold, Fn, Graph, Host, Native, Prepared, Timer

if TYPE_CHECKING:
    from bench_lib.device.gpu import Gpu

Check = Callable[[Any], object]
Capture = Callable[[Fn, int], Fn]


@dataclass
class Conditions:
    """What a case is measured with: given by the run, the same for all its cases."""

    device: str  # cuda or cpu
    policy: Policy
    telemetry: Telemetry
    gpu: "Callable[[], Gpu]"  # opens it when it is first asked for
    opened: "Callable[[], Gpu | None]"  # the GPU if something has opened it


@dataclass(repr=False)
class Bench:
    """Measures and keeps the series of one case.

    `bench(fn)` times a callable, `bench.native(loop)` lets a compiled loop time itself,
    `bench.record(series)` keeps what was measured elsewhere; one of them, once.
    """

    case: Case
    budget_seconds: float
    conditions: Conditions
    series: Series | None = None
    shown: bool = False  # to pytest-benchmark
    world_size: int = 1  # ranks that took part
    _begin: float = field(default_factory=time.perf_counter)
    _notes: dict[str, Any] = field(default_factory=lambda: {"quantities": {}, "facts": {}, "warnings": ()})

    def __post_init__(self) -> None:
        self._log = ClockLog(self.conditions.telemetry)
        self._log.read()

    def __repr__(self) -> str:
        return f"<bench of {self.case.case_id}>"

    @property
    def policy(self) -> Policy:
        """How often and how long the cases of this run are measured."""
        return self.conditions.policy

    @property
    def device(self) -> str:
        """`cuda` or `cpu`: what this run measures."""
        return self.conditions.device

    @property
    def telemetry(self) -> Telemetry:
        """NVML's view of the GPU; on the CPU it knows nothing."""
        return self.conditions.telemetry

    @property
    def clocks(self) -> Clocks:
        """What NVML said around the case so far."""
        return self._log.clocks()

    def __call__(
        self,
        fn: Fn,
        *,
        timing: str = "cold",
        calls: int = 1,
        flop: float | None = None,
        nbytes: float | None = None,
        check: Check | None = None,
        synchronize: Fn | None = None,
        capture: Capture | None = None,
        before: Fn | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Measure `fn`, `calls` calls a sample, and keep the series.

        `timing`: `cold` (device time of one call on a flushed L2), `batch` (device time per call,
        back to back), `graph` (the same of one CUDA graph; `capture` makes it, torch's by default),
        `host` (host time per call: the submission alone, or with `synchronize` all the work).
        On device cpu all of them are host time. `flop` and `nbytes` are the work of one call.
        `check` is given what one call returned, before any timing, and raises WrongResult (an
        AssertionError or a False counts as one). `before` runs untimed before each sample, which is then one
        call: it puts back what the call uses up. `policy` is the run's, changed for a case with long samples.
        """
        work, calls = plain.work_of(flop, nbytes), plain.whole("calls", calls)
        plain.check_functions(fn=fn, check=check, synchronize=synchronize, capture=capture, before=before)
        if check is not None:
            _check(check, fn())
        timer = self._timer(timing, calls, synchronize, capture)
        if before is not None:
            timer = Prepared(timer, before)
        self._measure(fn, timer, work, policy)

    def native(
        self,
        loop: Callable[[], float],
        *,
        calls: int = 1,
        flop: float | None = None,
        nbytes: float | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Measure a loop that times itself: `loop()` makes `calls` calls and returns seconds per call."""
        work, calls = plain.work_of(flop, nbytes), plain.whole("calls", calls)
        plain.check_functions(loop=loop)
        self._measure(loop, Native(loop, calls), work, policy)

    def record(self, series: Series) -> None:
        """Keep a series that was measured elsewhere (in turns with others, over several processes).

        Numbers of other packages become plain ones, and text is made text; UsageError where that fails.
        """
        kept = plain.series_of(series)
        self._log.read()
        self._keep(kept)

    def parameter(self, name: str, value: Scalar) -> None:
        """Add a parameter that only the machine can tell: cases that differ in it are not compared."""
        self.case = replace(
            self.case, params={**self.case.params, plain.text_of(name): plain.scalar(name, value)}
        )

    def over(self, ranks: int, interconnect: str = "") -> None:
        """Say that several ranks took part, and what connects them: other worlds are never compared."""
        self.world_size = plain.whole("ranks", ranks)
        self.parameter("ranks", ranks)
        if interconnect:
            self.parameter("interconnect", interconnect)

    def quantity(self, name: str, value: float) -> None:
        """Keep a number that is no time, its unit in the name: `peak_nbytes`, `max_abs_error`."""
        self._notes["quantities"] |= plain.quantities({name: value})

    def fact(self, name: str, text: str) -> None:
        """Keep a word about the case: which algorithm, which precision in effect."""
        self._notes["facts"][plain.text_of(name)] = plain.text_of(text)

    def facts(self, texts: Mapping[str, str]) -> None:
        """Keep several words, each by its name."""
        if not isinstance(texts, Mapping):
            raise UsageError(f"facts are a {type(texts).__name__}; expected a dict of words by their names")
        for name, text in texts.items():
            self.fact(name, text)

    def warn(self, text: str) -> None:
        """Keep a stated doubt about the case, one sentence."""
        self._notes["warnings"] += (plain.text_of(text),)

    def finished(self) -> Series:
        """The series with all notes; CudaGainsError when nothing was measured."""
        if self.series is None:
            raise CudaGainsError(
                "the case ended without a measurement; call bench(fn), bench.native or bench.record once"
            )
        return replace(
            self.series,
            quantities={**self.series.quantities, **self._notes["quantities"]},
            facts={**self.series.facts, **self._notes["facts"]},
            warnings=(*self.series.warnings, *self._notes["warnings"]),
        )

    def _measure(self, fn: Fn, timer: Timer, work: Work, policy: Policy | None) -> None:
        self._refuse_second()
        spent = time.perf_counter() - self._begin
        self._keep(measure(fn, timer, policy or self.policy, self._log, work, self.budget_seconds, spent))

    def _keep(self, series: Series) -> None:
        self._refuse_second()
        self.series = series

    def _refuse_second(self) -> None:
        if self.series is not None:
            raise UsageError(
                f"{self.case.case_id} measures twice; one case is one series: make the metric a parameter"
            )

    def _timer(self, timing: str, calls: int, synchronize: Fn | None, capture: Capture | None) -> Timer:
        try:
            kind = Timing(timing)
        except ValueError:
            raise UsageError(f"timing={timing!r}; expected cold, batch, graph or host") from None
        if kind is Timing.COLD and calls != 1:
            raise UsageError(f"timing='cold' with calls={calls}: a cold sample is one call; use 'batch'")
        if kind is Timing.HOST or self.device == "cpu":
            return self._host(calls, synchronize)
        if kind is Timing.COLD:
            return Cold(self.conditions.gpu())
        if kind is Timing.BATCH:
            return Batch(self.conditions.gpu(), calls)
        if kind is Timing.GRAPH:
            return Graph(self.conditions.gpu(), capture or torch_capture(self.conditions.gpu()), calls)
        raise UsageError(f"timing={timing!r}: call bench.native(loop) or bench.record(series) instead")

    def _host(self, calls: int, synchronize: Fn | None) -> Host:
        """With the caller's `synchronize` the work counts; without one, the submission alone."""
        if synchronize is not None:
            return Host(calls, synchronize, drain=True)
        gpu = self.conditions.opened()
        return Host(calls, None if gpu is None else gpu.synchronize, drain=False)


def _check(check: Check, result: object) -> None:
    try:
        refused = str(check(result)) == "False"  # of Python, NumPy or a package that is not imported here
    except AssertionError as error:
        raise WrongResult(str(error) or "the check of the result failed") from error
    if refused:
        raise WrongResult("the check of the result returned False")


def torch_capture(gpu: "Gpu") -> Capture:
    """Capture by torch on the suite's stream."""

    def capture(fn: Fn, calls: int) -> Fn:
        torch: Any = importlib.import_module("torch")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.ExternalStream(gpu.stream)):
            for _ in range(calls):
                fn()
        return cast(Fn, graph.replay)

    return capture
