"""A rank that calls NCCL itself, by path and through compiled loops: no torch, no Python inside a sample.

It may hold several libraries, each with a communicator of its own on the same stream and buffers.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from bench_lib.collectives import pattern
from bench_lib.collectives.asked import Collective, Connect, Loaded, NewId, Roll, SetUp, Turns, Versions
from bench_lib.device import native
from bench_lib.device.driver import Driver
from bench_lib.device.native import Call
from bench_lib.errors import CudaError
from bench_lib.nccl.graphs import Graphs
from bench_lib.nccl.library import Nccl, versions
from bench_lib.ranks.member import Handler, Member
from bench_lib.ranks.timing import Prepare, Take
from bench_lib.timing.timer import Native, nothing


def make(member: Member, libraries: tuple[Loaded, ...]) -> Handler:
    """The handler of one rank; the libraries are loaded in their order."""
    return NativeRank(member, libraries).answer


@dataclass(frozen=True)
class _Timed:
    """What is timed: `launches` of `call` are the `calls` calls of a sample."""

    call: Call
    launches: int
    calls: int
    executable: int = 0  # of a graph


class NativeRank:
    """One rank on one GPU."""

    def __init__(self, member: Member, libraries: tuple[Loaded, ...]) -> None:
        self._member = member
        self._context = Driver.load().open(member.local_rank)
        self._stream = self._context.stream()
        address = self._context.driver.address("cuStreamSynchronize")
        self._sync = Call(address, (self._stream,), "cuStreamSynchronize")
        self._graphs = Graphs(self._context.driver)
        self._nccl = {one.name: Nccl(one.path) for one in libraries}
        self._comms: dict[str, int] = {}
        self._timed: dict[str, _Timed] = {}
        self._last = next(iter(self._nccl))
        self._buffers: dict[str, tuple[int, int]] = {}  # name -> pointer, bytes
        gc.disable()  # a collection in one rank would delay all

    def answer(self, request: Any) -> Any:
        """Serve one request."""
        answers: dict[type, Callable[[Any], Any]] = {
            NewId: lambda r: self._nccl[r.library].unique_id(),
            Connect: self._connect,
            Roll: lambda _: self._roll(),
            Versions: lambda _: versions(self._nccl[self._last].path),
            SetUp: self._set_up,
            Prepare: lambda _: self._prepare(),
            Take: lambda _: self._take(),
            Turns: self._turn,
        }
        with self._named():
            return answers[type(request)](request)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What a loop calls a CUDA error is NCCL's own where NCCL gave it."""
        try:
            yield
        except CudaError as error:
            if error.call.startswith("nccl"):
                raise self._nccl[self._last].error(error.call, error.code, self._comms[self._last]) from None
            raise

    def _connect(self, request: Connect) -> tuple[float, float]:
        """A communicator, its first collective of 8 bytes, and one of the largest size, untimed."""
        name, place = request.library, self._member
        self._last = name
        begin = perf_counter()
        self._comms[name] = self._nccl[name].init_rank(request.unique_id, place.size, place.rank)
        init = perf_counter() - begin
        ops = [Collective("all_reduce", n, "fp32", place.size) for n in (8, request.largest_nbytes)]
        calls = [self._call(one, name) for one in (ops[1], ops[0])]
        native.enqueue(self._sync)
        begin = perf_counter()
        native.enqueue(calls[1])
        native.enqueue(self._sync)
        first = perf_counter() - begin
        native.enqueue(calls[0])
        native.enqueue(self._sync)
        return init, first

    def _roll(self) -> tuple[int, int]:
        return self._nccl[self._last].rank_and_size(self._comms[self._last])

    def _set_up(self, request: SetUp) -> None:
        asked, name, rank = request.asked, request.library, self._member.rank
        self._last = name
        self._forget(name)
        call = self._call(asked, name)
        send, receive = call.arguments[:2]
        self._write(send, asked, pattern.sent(asked, rank))
        native.enqueue(call)
        native.enqueue(self._sync)
        self._nccl[name].check(self._comms[name])
        self._check(receive, asked, pattern.received(asked, rank))
        if asked.launch == "graph":
            executable = self._graphs.capture(partial(native.enqueue, call), request.calls, self._stream)
            replay = self._graphs.launch(executable, self._stream)
            self._timed[name] = _Timed(replay, 1, request.calls, executable)
        else:
            self._timed[name] = _Timed(call, request.calls, request.calls)

    def _forget(self, name: str) -> None:
        timed = self._timed.pop(name, None)
        if timed is not None and timed.executable:
            self._graphs.destroy(timed.executable)

    def _prepare(self) -> int:
        timed = self._timed[self._last]
        native.enqueue(timed.call)
        native.enqueue(self._sync)
        return timed.calls

    def _take(self) -> tuple[float, tuple[str, ...]]:
        timed = self._timed[self._last]
        seconds, flags = Native(partial(self._seconds, timed), timed.calls).sample(nothing)
        return seconds, flags

    def _turn(self, request: Turns) -> dict[str, float]:
        found = {}
        for name in request.order:
            self._last = name
            found[name] = self._seconds(self._timed[name])
        return found

    def _seconds(self, timed: _Timed) -> float:
        """Seconds a call; one more, untimed, ends on all ranks together, so that they begin together."""
        native.enqueue(timed.call)
        return native.total(timed.call, timed.launches, self._sync) * timed.launches / timed.calls

    def _call(self, asked: Collective, name: str) -> Call:
        """The collective on buffers of this rank: in place the parts are where NCCL wants them."""
        first = self._buffer("first", asked.actual_nbytes)
        own = first + self._member.rank * asked.count * asked.item_nbytes
        send = own if asked.op == "all_gather" and asked.place == "in" else first
        receive = own if asked.op == "reduce_scatter" else first
        if asked.place == "out":
            receive = self._buffer("second", asked.actual_nbytes)
        return self._nccl[name].call(asked, send, receive, self._comms[name], self._stream)

    def _buffer(self, name: str, nbytes: int) -> int:
        """Device memory that grows with what is asked of it."""
        pointer, have = self._buffers.get(name, (0, 0))
        if have < nbytes:
            for timed in list(self._timed):
                self._forget(timed)
            self._buffers.pop(name, None)
            if pointer:
                self._context.free(pointer)
            pointer = self._context.alloc(nbytes)
            self._buffers[name] = (pointer, nbytes)
        return pointer

    def _write(self, pointer: int, asked: Collective, numbers: pattern.Numbers) -> None:
        """The numbers at `pointer`; what else is in the buffers becomes NaN."""
        for buffer, nbytes in self._buffers.values():
            self._context.set_async(buffer, 0xFFFFFFFF, nbytes // 4, self._stream)
        self._context.synchronize(self._stream)
        for offset, piece in numbers.pieces():
            self._context.upload(pointer + offset * asked.item_nbytes, piece.tobytes())
        self._context.synchronize(0)

    def _check(self, pointer: int, asked: Collective, wanted: pattern.Numbers) -> None:
        for offset, piece in wanted.pieces():
            data = self._context.download(pointer + offset * asked.item_nbytes, piece.nbytes)
            pattern.check(np.frombuffer(data, dtype=piece.dtype), piece, "the result", offset)
