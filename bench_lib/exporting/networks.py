"""What is exported: whole networks, and small modules each with one thing that exporters stumble over."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench_lib.stack_packages import resnet50

RESNET50, TRANSFORMER = "resnet50", "transformer"
_SEED = 0


@dataclass(frozen=True)
class Subject:
    """A module in inference mode, the inputs it is exported with, and others on which it is checked too."""

    name: str
    module: Any
    inputs: tuple[Any, ...]
    others: tuple[Any, ...]
    dynamic: bool = False  # the first dimension of the one input is exported as free


def network(torch: Any, name: str) -> Subject:
    """ResNet-50 on one image of 224 x 224, or an encoder of four layers on two sequences of 64.

    Raises Unavailable where torchvision is not there.
    """
    torch.manual_seed(_SEED)
    if name == RESNET50:
        return _of(torch, name, resnet50(), (1, 3, 224, 224))
    nn = torch.nn
    options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
    layer = nn.TransformerEncoderLayer(128, 4, 512, **options)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return _of(torch, name, nn.Sequential(encoder, nn.Linear(128, 1000)), (2, 64, 128))


def _of(torch: Any, name: str, module: Any, shape: tuple[int, ...], dynamic: bool = False) -> Subject:
    """A module of one input. The other input has other values, and another first dimension if it is free."""
    other = (shape[0] + 1, *shape[1:]) if dynamic else shape
    return Subject(name, module.eval(), (torch.randn(shape),), (torch.randn(other),), dynamic)


def warm_up(torch: Any) -> Subject:
    """The least there is to export: what exporters do once in a process is over then."""
    return _of(torch, "linear", torch.nn.Linear(4, 4), (2, 4))


# Of each: what it computes, and the shape of its input.
_FORWARDS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "root-mean-square-norm": (lambda t, x: x * t.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), (4, 16)),
    "cdist": (lambda t, x: t.cdist(x, x.flip(0)), (6, 8)),
    "attention": (lambda t, x: _attention(t, x), (2, 4, 8, 16)),
    "einsum": (lambda t, x: t.einsum("bij,bkj->bik", x, x), (2, 6, 8)),
    "scatter": (lambda t, x: t.zeros(3, 8).index_add(0, t.tensor([0, 2, 0, 1]), x), (4, 8)),
    "top-k": (lambda t, x: t.gather(x, 1, x.topk(3, dim=1).indices), (4, 16)),
    "loop": (lambda t, x: _loop(t, x), (5, 8)),
    "condition": (lambda t, x: t.cond(x.sum() > 0, t.sin, t.cos, (x,)), (4, 8)),
}
_DYNAMIC = "free-batch"
CONSTRUCTS = (*_FORWARDS, _DYNAMIC)


def _attention(torch: Any, x: Any) -> Any:
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def _loop(torch: Any, x: Any) -> Any:
    state = torch.zeros(x.shape[1])
    for row in x:
        state = torch.tanh(0.5 * state + row)
    return state


def construct(torch: Any, name: str) -> Subject:
    """One of CONSTRUCTS: a module of a user's own, as small as it can be."""
    torch.manual_seed(_SEED)
    if name == _DYNAMIC:
        nn = torch.nn
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
        return _of(torch, name, module, (2, 3, 8, 8), dynamic=True)
    forward, shape = _FORWARDS[name]

    class Own(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return forward(torch, x)

    made = _of(torch, name, Own(), shape)
    below = (made.inputs[0].abs(), -made.others[0].abs())  # the other input takes the other branch
    return Subject(name, made.module, below[:1], below[1:]) if name == "condition" else made
