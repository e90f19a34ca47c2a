"""A rank that runs collectives of torch.distributed, over nccl or gloo."""

import gc
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from bench_lib.collectives import pattern
from bench_lib.collectives.asked import SHARED, Collective, Connect, Roll, SetUp, Versions
from bench_lib.identity import libraries
from bench_lib.nccl.library import versions
from bench_lib.ranks.member import NCCL, Handler, Member
from bench_lib.ranks.timing import Prepare, Take
from bench_lib.timing.timer import Host, nothing

Op = Callable[[], object]


def make(member: Member) -> Handler:
    """The handler of one rank."""
    return TorchRank(member).answer


class TorchRank:
    """One rank of the default group."""

    def __init__(self, member: Member) -> None:
        self._member, self._torch, self._dist = member, member.torch, member.torch.distributed
        self._op: Op = nothing
        self._calls = 1
        gc.disable()  # a collection in one rank would delay all

    def answer(self, request: Any) -> Any:
        """Serve one request."""
        if isinstance(request, Roll):
            return self._dist.get_rank(), self._dist.get_world_size()
        if isinstance(request, Versions):
            return self._versions()
        if isinstance(request, Connect):
            return self._member.init_seconds, self._first(request.largest_nbytes)
        if isinstance(request, SetUp):
            return self._set_up(request)
        if isinstance(request, Prepare):
            self._op()
            self._synchronize()
            return 1
        assert isinstance(request, Take)
        self._op()  # ends on all ranks at about the same time, so that they begin together
        seconds, flags = Host(self._calls, self._synchronize, drain=True).sample(self._op)
        return seconds, flags

    def _versions(self) -> dict[str, str]:
        if self._member.backend != NCCL:
            return {}
        loaded = libraries.mapped().get("nccl", ())
        header = ".".join(map(str, self._torch.cuda.nccl.version()))
        return {"nccl.header": header, **(versions(loaded[0]) if loaded else {})}

    def _first(self, largest_nbytes: int) -> float:
        """Seconds of the first collective; then one of the largest size, untimed."""
        ops = [self.bound(one, *self._tensors(one)) for one in self._two(largest_nbytes)]
        self._synchronize()
        begin = perf_counter()
        ops[0]()
        self._synchronize()
        seconds = perf_counter() - begin
        ops[1]()
        self._synchronize()
        return seconds

    def _two(self, largest_nbytes: int) -> list[Collective]:
        return [Collective("all_reduce", nbytes, "fp32", self._member.size) for nbytes in (8, largest_nbytes)]

    def _set_up(self, request: SetUp) -> None:
        asked, rank = request.asked, self._member.rank
        self._op = nothing  # lets go of the tensors of the case before
        send, receive = self._tensors(asked)
        self._write(send, pattern.sent(asked, rank))
        op = self.bound(asked, send, receive)
        op()
        self._synchronize()
        self._check(receive, pattern.received(asked, rank))
        self._op, self._calls = op, request.calls

    def _tensors(self, asked: Collective) -> tuple[Any, Any]:
        """(what is sent, what is received): one tensor where torch's form is in place."""
        dtype = self._torch.float32 if asked.dtype == "fp32" else self._torch.bfloat16

        def zeros(count: int) -> Any:
            return self._torch.zeros(count, dtype=dtype, device=self._member.torch_device)

        if asked.op not in SHARED:
            one = zeros(asked.elements)
            return one, one
        counts = (asked.count, asked.elements) if asked.op == "all_gather" else (asked.elements, asked.count)
        return zeros(counts[0]), zeros(counts[1])

    def bound(self, asked: Collective, send: Any, receive: Any) -> Op:
        """The call that is timed."""
        dist = self._dist
        ops: dict[str, Op] = {
            "all_reduce": lambda: dist.all_reduce(send),
            "broadcast": lambda: dist.broadcast(send, src=0),
            "all_gather": lambda: dist.all_gather_into_tensor(receive, send),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(receive, send),
        }
        return ops[asked.op]

    def _write(self, tensor: Any, numbers: pattern.Numbers) -> None:
        for offset, piece in numbers.pieces():
            whole = self._torch.from_numpy(piece.view(_whole(piece)))
            self._bits(tensor)[offset : offset + len(piece)].copy_(whole)

    def _check(self, tensor: Any, wanted: pattern.Numbers) -> None:
        for offset, piece in wanted.pieces():
            found = self._bits(tensor)[offset : offset + len(piece)].cpu().numpy().view(piece.dtype)
            pattern.check(found, piece, "the result", offset)

    def _bits(self, tensor: Any) -> Any:
        """The tensor's bits as whole numbers, which NumPy has for bf16 too."""
        return tensor.view(self._torch.int32 if tensor.element_size() == 4 else self._torch.int16)

    def _synchronize(self) -> None:
        if self._member.device == "cuda":
            self._torch.cuda.current_stream().synchronize()


def _whole(piece: pattern.Array) -> Any:
    return np.int32 if piece.dtype.itemsize == 4 else np.int16
