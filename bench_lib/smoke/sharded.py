"""Checks of DTensor: sharding, matrix products and tensor parallelism against the dense tensors.

Each is given a rank that has joined the group, and says in words what was seen; WrongResult where the two
differ, NotApplicable where this torch has no such thing.
"""

import copy
import importlib
from typing import Any

from bench_lib.errors import NotApplicable, WrongResult
from bench_lib.ranks.member import Member
from bench_lib.ranks_steps.arms import whole

TOLERANCE = 1e-5  # of the largest value, in fp32: sums over ranks are taken in another order
_ROWS, _INNER, _COLUMNS = 13, 8, 10  # the first is no multiple of most numbers of ranks
_PLACES = ("torch.distributed.tensor", "torch.distributed._tensor")  # since 2.5, and before


def dtensor(torch: Any) -> Any:
    """The module of DTensor; NotApplicable where this torch has none."""
    for place in _PLACES:
        try:
            return importlib.import_module(place)
        except ImportError:
            continue
    raise NotApplicable(f"torch {torch.__version__} has no DTensor; 2.5 or newer has")


def mesh(member: Member) -> Any:
    """All ranks of the group in a row."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
    except ImportError:
        raise NotApplicable(
            f"torch {member.torch.__version__} has no device mesh; 2.2 or newer has"
        ) from None
    return init_device_mesh(member.device, (member.size,))


def differ(what: str, found: Any, expected: Any, tolerance: float = 0.0) -> None:
    """Raise WrongResult where two tensors are further apart than that share of the largest value."""
    found, expected = whole(found).detach(), whole(expected).detach()
    if found.shape != expected.shape:
        raise WrongResult(f"{what} has the shape {tuple(found.shape)}, expected {tuple(expected.shape)}")
    off = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
    if not off <= tolerance:
        raise WrongResult(f"{what} is off by {off:.2g} of the largest value, at most {tolerance:g} expected")


def seeded(member: Member, *shape: int) -> Any:
    """The same numbers on every rank."""
    generator = member.torch.Generator().manual_seed(sum(shape))
    return member.torch.randn(*shape, generator=generator).to(member.torch_device)


def sharding(member: Member) -> str:
    """A tensor is cut by rows, gathered, cut by columns, gathered again: all of it to the bit."""
    tensors = dtensor(member.torch)
    dense, across = seeded(member, _ROWS, _COLUMNS), mesh(member)
    rows = tensors.distribute_tensor(dense, across, [tensors.Shard(0)])
    parts = dense.chunk(member.size)
    if member.rank < len(parts):
        differ("the rank's own rows", rows.to_local(), parts[member.rank])
    differ("what was cut by rows", rows, dense)
    columns = rows.redistribute(across, [tensors.Shard(1)])
    differ("what was cut again by columns", columns, dense)
    differ("what was gathered", columns.redistribute(across, [tensors.Replicate()]).to_local(), dense)
    return f"{tensors.__name__}: rows, columns and whole agree to the bit"


def product(member: Member) -> str:
    """A product with rows cut needs no communication, one with the inner dimension cut a sum over ranks."""
    tensors = dtensor(member.torch)
    left, right, across = seeded(member, _ROWS, _INNER), seeded(member, _INNER, _COLUMNS), mesh(member)

    def cut(tensor: Any, place: Any) -> Any:
        return tensors.distribute_tensor(tensor, across, [place])

    by_rows = cut(left, tensors.Shard(0)) @ cut(right, tensors.Replicate())
    differ("the product by rows", by_rows, left @ right, TOLERANCE)
    by_parts = cut(left, tensors.Shard(1)) @ cut(right, tensors.Shard(0))
    differ("the product summed over ranks", by_parts, left @ right, TOLERANCE)
    return f"{tensors.__name__}: both products agree with the dense one"


def tensor_parallel(member: Member) -> str:
    """Two layers, the first cut by columns and the second by rows: output and gradients."""
    try:
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )
    except ImportError:
        raise NotApplicable(f"torch {member.torch.__version__} has no parallelize_module") from None
    torch, width = member.torch, 4 * member.size
    torch.manual_seed(0)
    layers = [torch.nn.Linear(_INNER, width), torch.nn.ReLU(), torch.nn.Linear(width, _INNER)]
    dense = torch.nn.Sequential(*layers).to(member.torch_device)
    cut = parallelize_module(
        copy.deepcopy(dense), mesh(member), {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    inputs = seeded(member, _ROWS, _INNER)
    found, expected = cut(inputs), dense(inputs)
    differ("the output", found, expected, TOLERANCE)
    found.square().mean().backward()
    expected.square().mean().backward()
    for (name, one), other in zip(cut.named_parameters(), dense.parameters(), strict=True):
        differ(f"the gradient of {name}", one.grad, other.grad, TOLERANCE)
    return "parallelize_module: output and gradients agree with the dense layers"
