"""The networks that are trained over ranks: weights from one seed, data from a seed a rank."""

from dataclasses import dataclass
from typing import Any

from bench_lib.convolution.precision import Precision
from bench_lib.stack_packages import resnet50

RESNET50, TRANSFORMER, SMALL = "resnet50", "transformer", "small"
_SEED, _CLASSES, _IMAGE = 0, 1000, (3, 224, 224)


@dataclass(frozen=True)
class Shape:
    """A Transformer's size; its head has a logit for each word."""

    layers: int
    width: int
    heads: int
    words: int
    length: int  # of a sequence


# The first is half of GPT-2 small, the second what two CPU ranks do in milliseconds.
SHAPES = {TRANSFORMER: Shape(6, 768, 12, 16384, 256), SMALL: Shape(2, 32, 2, 64, 8)}


@dataclass(frozen=True)
class Setup:
    """What each rank trains: everything but how the ranks are kept together."""

    network: str
    batch: int  # a rank
    precision: Precision
    sharded: bool = False  # by fully_shard; else DistributedDataParallel

    @property
    def name(self) -> str:
        """The set-up in one word, for a set of turns."""
        return f"{self.network}-{self.batch}-{self.precision}{'-sharded' * self.sharded}"


def network(torch: Any, setup: Setup, device: str) -> Any:
    """The network in training mode, the same on every rank. Raises Unavailable without torchvision."""
    torch.manual_seed(_SEED)
    if setup.network != RESNET50:
        return _transformer(torch, SHAPES[setup.network]).to(device).train()
    layout = torch.contiguous_format if setup.sharded else torch.channels_last  # fully_shard takes no other
    return resnet50().to(device=device, memory_format=layout).train()


def _transformer(torch: Any, shape: Shape) -> Any:
    """An encoder that sees whole sequences: what it learns does not matter here, what it computes does."""
    nn = torch.nn
    options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
    layer = nn.TransformerEncoderLayer(shape.width, shape.heads, 4 * shape.width, **options)
    return nn.Sequential(
        nn.Embedding(shape.words, shape.width),
        nn.TransformerEncoder(layer, shape.layers, enable_nested_tensor=False),
        nn.Linear(shape.width, shape.words),
    )


def blocks(module: Any) -> list[Any]:
    """The parts of a network that are sharded one by one: its layers, or its residual blocks."""
    return [
        one for one in module.modules() if type(one).__name__ in ("Bottleneck", "TransformerEncoderLayer")
    ]


def data(torch: Any, setup: Setup, rank: int, device: str) -> tuple[Any, Any]:
    """A rank's batch, made up: images and classes, or words and the words that follow."""
    seeded = torch.Generator().manual_seed(1 + rank)
    if setup.network == RESNET50:
        images = torch.randn(setup.batch, *_IMAGE, generator=seeded)
        labels = torch.randint(_CLASSES, (setup.batch,), generator=seeded)
        return images.to(device=device, memory_format=torch.channels_last), labels.to(device)
    shape = SHAPES[setup.network]
    text = torch.randint(shape.words, (setup.batch, shape.length + 1), generator=seeded).to(device)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def loss_of(torch: Any, output: Any, labels: Any) -> Any:
    """The cross entropy, of classes or of every word of the sequences."""
    return torch.nn.functional.cross_entropy(output.float().flatten(0, -2), labels.flatten())
