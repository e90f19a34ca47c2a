"""The traces by name: the recorded Transformer, and two made up from a seed.

Of `random.Random` only `random()` is used: its numbers are the same in every Python.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench_lib.alloc_traces.trace import Event, Trace, read, whole

MIB = 1 << 20
SEED = 1
RECORDED = Path(__file__).with_name("transformer.txt.gz")
_BUDGET_NBYTES = 1024 * MIB  # what the adversary holds at most


def transformer() -> Trace:
    """A Transformer's training, recorded: sequences of another length in each step."""
    return read(RECORDED, "transformer")


def diffusion(seed: int = SEED) -> Trace:
    """Images made by a U-Net like those of diffusion models: of another size and number in each request."""
    return whole("diffusion", _diffusion(random.Random(seed)))


def adversarial(seed: int = SEED) -> Trace:
    """Blocks of one size, every other one freed, then blocks that are a little too large for the holes."""
    return whole("adversarial", _adversarial(random.Random(seed)))


TRACES: Mapping[str, Callable[[], Trace]] = {
    "transformer": transformer,
    "diffusion": diffusion,
    "adversarial": adversarial,
}


def _diffusion(rng: random.Random) -> Iterator[Event]:
    numbers = iter(range(1 << 30))
    for _ in range(120):  # the weights, which stay
        yield Event(next(numbers), _between(rng, 64 << 10, 8 * MIB))
    for _ in range(8):
        side, images = 64 + 8 * int(rng.random() * 9), 1 + int(rng.random() * 4)  # of the latent image
        for _ in range(6):
            yield from _denoise(numbers, side, images)
        yield from _decode(numbers, side, images)


def _denoise(numbers: Iterator[int], side: int, images: int) -> Iterator[Event]:
    """One pass: down through four levels whose activations wait for the way up; attention below the first."""
    waiting: list[int] = []
    for level in range(4):
        pixels, channels = images * (side >> level) ** 2, 320 << min(level, 2)
        for _ in range(2):
            hidden, kept = next(numbers), next(numbers)
            yield Event(hidden, 2 * pixels * channels)
            yield Event(kept, 2 * pixels * channels)
            if level:
                scores = next(numbers)
                yield Event(scores, 2 * 8 * pixels * (side >> level) ** 2)
                yield Event(scores, 0)
            yield Event(hidden, 0)
            waiting.append(kept)
    for place, kept in enumerate(reversed(waiting)):
        level = 3 - place // 2
        joined = next(numbers)
        yield Event(joined, 2 * images * (side >> level) ** 2 * (640 << min(level, 2)))
        yield Event(kept, 0)
        yield Event(joined, 0)


def _decode(numbers: Iterator[int], side: int, images: int) -> Iterator[Event]:
    """The latent image made large: each step four times the pixels of the one before, which is then free."""
    before = next(numbers)
    yield Event(before, 2 * images * side**2 * 512)
    for level in range(1, 4):
        now, scratch = next(numbers), next(numbers)
        nbytes = 2 * images * (side << level) ** 2 * (512 >> level)
        yield Event(now, nbytes)
        yield Event(scratch, nbytes // 2)
        yield Event(before, 0)
        yield Event(scratch, 0)
        before = now
    yield Event(before, 0)


def _adversarial(rng: random.Random) -> Iterator[Event]:
    numbers = iter(range(1 << 30))
    survivors: list[list[tuple[int, int]]] = []
    nbytes, held = 2.2 * MIB, 0
    for _ in range(14):
        blocks = []
        size = int(nbytes * (1 + 0.1 * rng.random()))
        while held + size <= _BUDGET_NBYTES:
            blocks.append((next(numbers), size))
            held += size
            yield Event(*blocks[-1])
        survivors.append(blocks[::2])
        going = blocks[1::2] + (survivors.pop(0) if len(survivors) > 3 else [])
        for block, freed in going:
            held -= freed
            yield Event(block, 0)
        nbytes *= 1.3


def _between(rng: random.Random, low: int, high: int) -> int:
    return low + int(rng.random() * (high - low))
