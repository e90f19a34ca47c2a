"""One copy of a network on a rank, kept together with the others' by a strategy; and its collectives alone.

`none` takes the same steps without communication: a plain copy, or of fully_shard one over a world of one
rank, which gathers nothing and casts the same. (Its optimizer then updates all weights, not a share.)
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from bench_lib.convolution.precision import autocast
from bench_lib.errors import NotApplicable
from bench_lib.ranks.member import Member
from bench_lib.ranks_steps.networks import Setup, blocks, data, loss_of, network

NONE, BUCKETS, ONE_BUCKET, FP16_HOOK, FULLY_SHARD = (
    "none",
    "buckets",
    "one-bucket",
    "fp16-hook",
    "fully-shard",
)
NO_SYNC, NONE_HALVED = "no-sync", "none-halved"  # both in two passes of half a batch
DDP_STRATEGIES = (NONE, BUCKETS, ONE_BUCKET, FP16_HOOK, NONE_HALVED, NO_SYNC)
FSDP_STRATEGIES = (NONE, FULLY_SHARD)
WITHOUT = {NO_SYNC: NONE_HALVED}  # the same step without communication; of the others, NONE
ALONE = (NONE, NONE_HALVED)

_MIB = 1 << 20
_CAPS = (1 * _MIB, 25 * _MIB)  # DistributedDataParallel's: of its first bucket, and of the others
_LEARNING_RATE = 1e-3


class Arm:
    """One copy of the set-up's network under one strategy."""

    def __init__(self, member: Member, setup: Setup, strategy: str) -> None:
        torch = member.torch
        self._torch, self._member, self._setup = torch, member, setup
        self._halved = strategy in (NO_SYNC, NONE_HALVED)
        model = network(torch, setup, member.torch_device)
        self.sizes = [parameter.numel() for parameter in model.parameters()]  # of all weights, not a share
        self._model = _together(member, setup, strategy, model)
        self._inputs, self._labels = data(torch, setup, member.rank, member.torch_device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=_LEARNING_RATE, momentum=0.9)

    def step(self) -> None:
        """One training step."""
        self._backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def gradient(self) -> Any:
        """The whole gradient of one pass as one fp32 vector; changes no weight."""
        self._backward()
        flat = self._torch.cat([whole(p.grad).float().flatten() for p in self._model.parameters()])
        self._optimizer.zero_grad(set_to_none=True)
        return flat

    def digest(self) -> str:
        """A hash of the weights' bits: ranks that agree have the same."""
        found = hashlib.sha256()
        for parameter in self._model.parameters():
            found.update(whole(parameter.detach()).float().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def _backward(self) -> None:
        """Forward and backward; in two halves, of which the first communicates nothing, for no-sync."""
        if not self._halved:
            self._pass(self._inputs, self._labels)
            return
        half = self._setup.batch // 2
        with self._model.no_sync() if hasattr(self._model, "no_sync") else nullcontext():
            self._pass(self._inputs[:half], self._labels[:half], 0.5)
        self._pass(self._inputs[half:], self._labels[half:], 0.5)

    def _pass(self, inputs: Any, labels: Any, scale: float = 1.0) -> None:
        # fully_shard brings its own mixed precision.
        mixed = autocast(self._torch, self._setup.precision, self._member.device)
        with nullcontext() if self._setup.sharded else mixed:
            loss = loss_of(self._torch, self._model(inputs), labels)
        (loss * scale).backward()


def _together(member: Member, setup: Setup, strategy: str, model: Any) -> Any:
    if setup.sharded:
        return _sharded(member, setup, model, alone=strategy in ALONE)
    if strategy in ALONE:
        return model
    torch = member.torch
    nbytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    options: dict[str, Any] = {"bucket_cap_mb": nbytes // _MIB + 1} if strategy == ONE_BUCKET else {}
    if member.device == "cuda":
        options["device_ids"] = [member.local_rank]
    ddp = torch.nn.parallel.DistributedDataParallel(model, **options)
    if strategy == FP16_HOOK:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        ddp.register_comm_hook(None, fp16_compress_hook)
    return ddp


def _sharded(member: Member, setup: Setup, model: Any, alone: bool) -> Any:
    """`model`, its blocks sharded one by one and then the rest; computes in the set-up's half format."""
    try:
        from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        raise NotApplicable(
            f"torch {member.torch.__version__} has no fully_shard; 2.6 or newer has"
        ) from None
    torch = member.torch
    half = getattr(torch, setup.precision.half)
    for buffer in model.buffers():
        if buffer.is_floating_point():  # the statistics of batch norms follow its weights
            buffer.data = buffer.data.to(half)
    if alone:
        mesh = DeviceMesh.from_group(torch.distributed.new_subgroups(1)[0], member.device)
    else:
        mesh = init_device_mesh(member.device, (member.size,))
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
    for one in (*blocks(model), model):
        fully_shard(one, mesh=mesh, mp_policy=policy)
    return model


def whole(tensor: Any) -> Any:
    """A tensor with all its shards."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def collectives(member: Member, setup: Setup, strategy: str, sizes: Sequence[int]) -> Callable[[], None]:
    """What a step of a strategy sends, sent alone: its collectives one after the other, then waited for.

    `sizes`: elements of each parameter. They are of the sizes that torch's defaults give.
    """
    torch, device = member.torch, member.torch_device
    if setup.sharded:
        return _sharded_collectives(member, setup, sum(sizes))
    dtype = torch.float16 if strategy == FP16_HOOK else torch.float32
    caps = (4 * sum(sizes), 4 * sum(sizes)) if strategy == ONE_BUCKET else _CAPS
    tensors = [torch.zeros(count, dtype=dtype, device=device) for count in buckets(sizes, caps)]

    def send() -> None:
        works = [torch.distributed.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()

    return send


def _sharded_collectives(member: Member, setup: Setup, elements: int) -> Callable[[], None]:
    """Weights gathered for forward and for backward in half, gradients scattered in fp32."""
    torch, dist = member.torch, member.torch.distributed
    share = -(-elements // member.size)
    half = getattr(torch, setup.precision.half)

    def made(count: int, dtype: Any) -> Any:
        return torch.zeros(count, dtype=dtype, device=member.torch_device)

    gathered, own = made(share * member.size, half), made(share, half)
    gradient, scattered = made(share * member.size, torch.float32), made(share, torch.float32)

    def send() -> None:
        dist.all_gather_into_tensor(gathered, own)
        dist.all_gather_into_tensor(gathered, own)
        dist.reduce_scatter_tensor(scattered, gradient)

    return send


def buckets(sizes: Sequence[int], caps: tuple[int, int]) -> Iterator[int]:
    """The elements of DistributedDataParallel's buckets of fp32 gradients: the last parameters come first.

    `caps`: bytes at which the first bucket is full, and the others.
    """
    filled, cap = 0, caps[0]
    for size in reversed(sizes):
        filled += size
        if 4 * filled >= cap:
            yield filled
            filled, cap = 0, caps[1]
    if filled:
        yield filled
