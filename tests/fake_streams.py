"""A torch whose streams are timelines: copies and products take given times on engines of their own.

`Machine(engines=1)` has one engine for both, so that nothing overlaps. A pageable copy holds the host until
it is done. `lost` names chunks whose bytes never arrive, `spoilt` makes products wrong beside copies.
"""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

COPY, PRODUCT = 1.1e-3, 1e-4  # seconds of one


class Timeline:
    """A stream: when what is queued on it will be done."""

    def __init__(self) -> None:
        self.done = 0.0

    def wait_stream(self, other: "Timeline") -> None:
        self.done = max(self.done, other.done)


class Machine:
    """The host's time, the engines, the streams; and the clock of the turns."""

    def __init__(self, engines: int = 2, lost: tuple[int, ...] = (), spoilt: bool = False) -> None:
        self.host = 0.0
        copy, compute = 0, engines - 1
        self.engines = [0.0] * engines
        self.engine_of = {"copy": copy, "product": compute}
        self.lost, self.spoilt, self.copied = lost, spoilt, 0
        self.main = Timeline()
        self.current = self.main
        self.streams = [self.main]

    def queue(self, what: str, seconds: float) -> float:
        engine = self.engine_of[what]
        start = max(self.host, self.current.done, self.engines[engine])
        self.current.done = self.engines[engine] = start + seconds
        return start + seconds

    # the clock

    def synchronize(self) -> None:
        self.host = max(self.host, *(stream.done for stream in self.streams))

    def record(self) -> float:
        return max(self.host, self.main.done)

    def elapsed(self, start: float, end: float) -> float:
        return end - start

    # torch.cuda

    def stream_made(self) -> Timeline:
        self.streams.append(Timeline())
        return self.streams[-1]

    @contextmanager
    def on(self, stream: Timeline) -> Any:
        before, self.current = self.current, stream
        yield
        self.current = before

    def torch(self) -> Any:
        """The module."""
        cuda = SimpleNamespace(current_stream=lambda: self.current, stream=self.on, Stream=self.stream_made)
        return SimpleNamespace(
            cuda=cuda,
            int64="int64",
            Generator=lambda: SimpleNamespace(manual_seed=lambda seed: seed),
            randint=lambda high, shape, dtype, generator: Words(self, list(range(1, 9))),
            randn=lambda *shape, device: Words(self, [3], "device"),
            zeros_like=lambda other: Words(self, [0] * len(other.values), "device"),
            mm=self.mm,
            equal=lambda a, b: a.values == b.values,
            allclose=lambda a, b, **tolerances: a.values == b.values,
        )

    def mm(self, a: "Words", b: "Words", out: "Words | None" = None) -> "Words":
        self.queue("product", PRODUCT)
        product = Words(self, [a.values[0] * b.values[0]], "device")
        if out is not None:
            out.values = [9 + 1] if self.spoilt and self.current is not self.main else product.values
        return product


class Words:
    """A tensor of a few numbers in pinned, pageable or device memory."""

    def __init__(self, machine: Machine, values: list[int], place: str = "pageable") -> None:
        self.machine, self.values, self.place = machine, values, place

    def __getitem__(self, part: slice) -> "Words":
        return Words(self.machine, self.values[part], self.place)

    def contiguous(self) -> "Words":
        return self

    def clone(self) -> "Words":
        return Words(self.machine, list(self.values))

    def pin_memory(self) -> "Words":
        return Words(self.machine, list(self.values), "pinned")

    def to(self, _device: str) -> "Words":
        return Words(self.machine, list(self.values), "device")

    def cpu(self) -> "Words":
        return self

    def zero_(self) -> None:
        self.values = [0] * len(self.values)

    def copy_(self, source: "Words", non_blocking: bool) -> None:
        assert non_blocking
        done = self.machine.queue("copy", COPY)
        if "pageable" in (self.place, source.place):
            self.machine.host = done
        if self.machine.copied % 8 not in self.machine.lost:
            self.values = list(source.values)
        self.machine.copied += 1
