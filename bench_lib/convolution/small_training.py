"""A small CNN trained for 300 steps on made-up data, from one seed: what AMP does to the outcome.

Ten smooth patterns, each image one of them under noise. Everything but the precision is the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from bench_lib.convolution.precision import Precision, autocast, grad_scaler
from bench_lib.timing.timer import nothing

STEPS = 300
WARMUP_STEPS = 20  # their times are left out, their updates are not
_LAST = 30  # the final loss is the mean of so many steps
_BATCH, _CLASSES, _IMAGE = 64, 10, (3, 16, 16)
_TEST_IMAGES = 2000
_NOISE = 6.0


@dataclass(frozen=True)
class Trained:
    """Seconds of each step after the warm-up, the final training loss, accuracy on new images."""

    seconds: tuple[float, ...]
    final_loss: float
    accuracy: float


def train(torch: Any, precision: Precision, device: str) -> Trained:
    """Train from seed 0; a step is timed on the host until the device is done."""
    generator = torch.Generator().manual_seed(0)
    patterns = _patterns(torch, generator)
    model = _model(torch).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = grad_scaler(torch, precision, device)
    synchronize: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else nothing
    seconds, losses = [], []
    for _ in range(STEPS):
        images, labels = _draw(torch, generator, patterns, _BATCH, device)
        synchronize()
        begin = perf_counter()
        with autocast(torch, precision, device):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        synchronize()
        seconds.append(perf_counter() - begin)
        losses.append(float(loss.detach()))
    images, labels = _draw(torch, generator, patterns, _TEST_IMAGES, device)
    model.eval()
    with torch.no_grad(), autocast(torch, precision, device):
        right = float((model(images).argmax(1) == labels).float().mean())
    last = losses[-_LAST:]
    return Trained(tuple(seconds[WARMUP_STEPS:]), sum(last) / len(last), right)


def _patterns(torch: Any, generator: Any) -> Any:
    coarse = torch.randn(_CLASSES, _IMAGE[0], 4, 4, generator=generator)
    return torch.nn.functional.interpolate(coarse, size=_IMAGE[1:], mode="bilinear", align_corners=False)


def _draw(torch: Any, generator: Any, patterns: Any, n: int, device: str) -> tuple[Any, Any]:
    labels = torch.randint(_CLASSES, (n,), generator=generator)
    images = patterns[labels] + _NOISE * torch.randn(n, *_IMAGE, generator=generator)
    return images.to(device), labels.to(device)


def _model(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 16, _CLASSES)),
    )
