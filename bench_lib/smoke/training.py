"""Checks of fully_shard: training against a dense copy, mixed precision, and checkpoints that come back.

As those of `sharded`: words of what was seen, or WrongResult or NotApplicable.
"""

import copy
from pathlib import Path
from typing import Any

from bench_lib.convolution.precision import Precision
from bench_lib.errors import NotApplicable, WrongResult
from bench_lib.ranks.member import Member
from bench_lib.ranks_steps.arms import FULLY_SHARD, whole
from bench_lib.ranks_steps.measuring import tolerance
from bench_lib.ranks_steps.networks import SMALL, Setup
from bench_lib.ranks_steps.trainer import Build, Trainer
from bench_lib.smoke.sharded import differ, mesh, seeded

_STEPS, _TOLERANCE = 3, 1e-4
_WIDTH, _BATCH = 12, 4


class _Training:
    """A small network under fully_shard, with Adam; every rank has a batch of its own."""

    def __init__(self, member: Member, seed: int = 0) -> None:
        self._member = member
        torch = member.torch
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(_WIDTH, 2 * _WIDTH), torch.nn.Tanh(), torch.nn.Linear(2 * _WIDTH, 1)]
        dense = torch.nn.Sequential(*layers).to(member.torch_device)
        self.dense, self.model = dense, _cut(member, copy.deepcopy(dense))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        everyone = seeded(member, member.size * _BATCH, _WIDTH)
        self.all, self._own = everyone, everyone.chunk(member.size)[member.rank]

    def step(self) -> None:
        _step(self.model, self.optimizer, self._own)


def _step(model: Any, optimizer: Any, inputs: Any) -> None:
    model(inputs).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def _cut(member: Member, model: Any) -> Any:
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise NotApplicable(
            f"torch {member.torch.__version__} has no fully_shard; 2.6 or newer has"
        ) from None
    across = mesh(member)
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=across)
    return model


def _same_weights(what: str, model: Any, other: Any, allowed: float = 0.0) -> None:
    others = dict(other.named_parameters())
    for name, parameter in model.named_parameters():
        differ(f"{what} {name}", parameter, others[name], allowed)


def fully_shard(member: Member) -> str:
    """Steps over ranks give the weights that a dense copy gets from the batches of all ranks at once."""
    training = _Training(member)
    adam = member.torch.optim.Adam(training.dense.parameters(), lr=0.01)
    for _ in range(_STEPS):
        training.step()
        _step(training.dense, adam, training.all)
    _same_weights(f"after {_STEPS} steps the weight", training.model, training.dense, _TOLERANCE)
    return f"fully_shard: the weights after {_STEPS} steps of Adam are those of a dense copy"


def mixed_precision(member: Member) -> str:
    """A Transformer that computes in bf16 and keeps its weights in fp32: its gradient is the ranks' mean."""
    setup = Setup(SMALL, _BATCH, Precision.BF16, sharded=True)
    built = Trainer(member, setup)(Build(FULLY_SHARD))
    allowed = tolerance(setup.precision, FULLY_SHARD)
    if not built.error <= allowed:
        raise WrongResult(
            f"the gradient is {built.error:.2g} from the mean over the ranks, at most {allowed:g}"
        )
    return f"fully_shard in bf16: the gradient is {built.error:.1g} from the mean over the ranks"


def checkpoint(member: Member, folder: Path) -> str:
    """Weights and Adam's state, saved and loaded into a network of other weights: the next step is alike."""
    training, fresh = _Training(member), _Training(member, seed=1)
    training.step()
    _save(member, training, folder)
    fresh.step()  # so that there is a state to be replaced
    _load(member, fresh, folder)
    _same_weights("the loaded weight", fresh.model, training.model)
    for one in (training, fresh):
        one.step()
    _same_weights("after one more step the weight", fresh.model, training.model)
    return "torch.distributed.checkpoint: weights to the bit, and the next step too"


def resharding(member: Member, folder: Path) -> str:
    """Saved by all ranks in shards, loaded whole into a dense network on each."""
    training = _Training(member)
    training.step()
    _save(member, training, folder)
    state = {"model": {name: value.clone() for name, value in training.dense.state_dict().items()}}
    _api(member)[0].load(state, checkpoint_id=str(folder))
    for name, parameter in training.model.named_parameters():
        differ(f"the whole weight {name}", state["model"][name], whole(parameter))
    return "torch.distributed.checkpoint: shards come back as whole weights, to the bit"


def _api(member: Member) -> tuple[Any, Any]:
    try:
        from torch.distributed import checkpoint
        from torch.distributed.checkpoint import state_dict

        return (checkpoint, state_dict) if hasattr(checkpoint, "save") else _api_is_old(member)
    except ImportError:
        return _api_is_old(member)


def _api_is_old(member: Member) -> tuple[Any, Any]:
    raise NotApplicable(f"torch {member.torch.__version__} has no checkpoint.save; 2.2 or newer has")


def _save(member: Member, training: _Training, folder: Path) -> None:
    checkpoint, states = _api(member)
    model, optimizer = states.get_state_dict(training.model, training.optimizer)
    checkpoint.save({"model": model, "optimizer": optimizer}, checkpoint_id=str(folder))


def _load(member: Member, training: _Training, folder: Path) -> None:
    checkpoint, states = _api(member)
    model, optimizer = states.get_state_dict(training.model, training.optimizer)
    checkpoint.load({"model": model, "optimizer": optimizer}, checkpoint_id=str(folder))
    states.set_state_dict(
        training.model, training.optimizer, model_state_dict=model, optim_state_dict=optimizer
    )
