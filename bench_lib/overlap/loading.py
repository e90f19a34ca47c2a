"""A DataLoader that feeds training steps: seconds a batch, by the number of its worker processes.

The images are made up from their index, so that each batch can be checked. Starting the workers and the
first batches are not timed.
"""

import itertools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench_lib.errors import WrongResult
from bench_lib.model import Policy, Series, Timing
from bench_lib.timing.measure import checked, collector_off

BATCH = {"cuda": 64, "cpu": 16}
BATCHES = 8  # of one sample
_IMAGES = 4096
_MADE, _SHOWN = 128, 96  # pixels of a side, before and after cropping
_MEAN, _SD = np.float32(127.5), np.float32(73.6)  # of even noise in bytes
_MAX_PREFETCHED = 2  # batches a worker, as DataLoader does unless told otherwise


class Images:
    """A data set of made-up images; each also tells its index and the process that made it."""

    def __len__(self) -> int:
        return _IMAGES

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int, int]:
        """As one of a folder of pictures: bytes, a crop, maybe a flip, then floats of mean 0."""
        rng = np.random.default_rng(index)
        pixels = rng.integers(0, 256, (3, _MADE, _MADE), dtype=np.uint8)
        top, left, flipped = rng.integers(0, (_MADE - _SHOWN, _MADE - _SHOWN, 2))
        crop = pixels[:, top : top + _SHOWN, left : left + _SHOWN]
        shown = crop[:, :, ::-1] if flipped else crop
        return (shown.astype(np.float32) - _MEAN) / _SD, index, os.getpid()


class Endless:
    """Indices in order, again and again."""

    def __iter__(self) -> Iterator[int]:
        return (number % _IMAGES for number in itertools.count())


class Taken(NamedTuple):
    """One sample: seconds a batch, those of them spent waiting for it, and the processes that loaded."""

    seconds: float
    waiting: float
    processes: frozenset[int]


class Trainer:
    """A small convolutional network and one training step of it."""

    def __init__(self, torch: Any, device: str) -> None:
        nn = torch.nn
        torch.manual_seed(0)
        self._torch, self._device = torch, device
        self._model = nn.Sequential(
            *(nn.Conv2d(3, 16, 4, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, 10)),
        ).to(device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)

    def step(self, images: Any, labels: Any) -> None:
        """One update from a batch that lies on the host; not waited for."""
        images, labels = (one.to(self._device, non_blocking=True) for one in (images, labels))
        loss = self._torch.nn.functional.cross_entropy(self._model(images), labels % 10)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._device == "cuda":
            self._torch.cuda.synchronize()


def fed(torch: Any, device: str, workers: int, policy: Policy) -> Series:
    """Seconds a batch of training that a DataLoader with so many workers feeds; 0 loads in this process.

    Raises WrongResult where batches are not the ones that were due, or other processes loaded them.
    """
    trainer, batch = Trainer(torch, device), BATCH[device]
    with (
        _one_thread(torch, device),
        _batches(torch, device, workers, batch) as batches,
        collector_off(),
    ):
        due = itertools.count()
        for _ in range(1 + _MAX_PREFETCHED * workers):  # what lies ready is not what can be kept up
            _take(batches, trainer, batch, due, 1)
        alone = _alone(trainer, next(batches), next(due))
        taken = [_take(batches, trainer, batch, due, BATCHES)]
        begin = perf_counter()
        while len(taken) < policy.samples and (
            len(taken) < policy.min_samples or perf_counter() - begin < policy.budget_seconds
        ):
            taken.append(_take(batches, trainer, batch, due, BATCHES))
    return Series(
        checked(tuple(one.seconds for one in taken)),
        timing=Timing.HOST,
        calls=BATCHES,
        quantities={
            "waiting_share": sum(one.waiting for one in taken) / sum(one.seconds for one in taken),
            "step_alone_seconds": alone,
            "cpus": float(len(os.sched_getaffinity(0))),
        },
        facts={"loader.worked_in": _where(frozenset().union(*(one.processes for one in taken)), workers)},
    )


@contextmanager
def _one_thread(torch: Any, device: str) -> Iterator[None]:
    """A CPU trains on one thread, so that it and the workers each have a core; a GPU does not care."""
    threads = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if device == "cpu":
            torch.set_num_threads(threads)


@contextmanager
def _batches(torch: Any, device: str, workers: int, batch: int) -> Iterator[Iterator[Any]]:
    """The loader's batches, its workers started. They are forked from a server that holds no CUDA context."""
    with warnings.catch_warnings():  # more workers than cores: what that does is the question
        warnings.filterwarnings("ignore", "This DataLoader will create")
        loader = torch.utils.data.DataLoader(
            Images(),
            batch_size=batch,
            sampler=Endless(),
            num_workers=workers,
            pin_memory=device == "cuda",
            multiprocessing_context="forkserver" if workers else None,
        )
        batches = iter(loader)
    try:
        yield batches
    finally:
        del batches, loader  # which ends the workers


def _take(
    batches: Iterator[Any], trainer: Trainer, batch: int, due: "itertools.count[int]", count: int
) -> Taken:
    """Train on the next batches, and hold them to those that are due."""
    told, waiting, first = [], 0.0, None
    trainer.synchronize()
    begin = perf_counter()
    for _ in range(count):
        asked = perf_counter()
        images, indices, processes = next(batches)
        waiting += perf_counter() - asked
        trainer.step(images, indices)
        told.append((indices, processes))
        first = images if first is None else first
    trainer.synchronize()
    seconds = perf_counter() - begin
    _check(first, told, batch, due)
    return Taken(
        seconds / count, waiting / count, frozenset(int(one) for _, pids in told for one in pids.unique())
    )


def _check(first: Any, told: list[tuple[Any, Any]], batch: int, due: "itertools.count[int]") -> None:
    for indices, _ in told:
        number = next(due)
        wanted = [(number * batch + place) % _IMAGES for place in range(batch)]
        if indices.tolist() != wanted:
            raise WrongResult(f"batch {number} holds the images {indices.tolist()[:3]} ..., due {wanted[:3]}")
    image, _, _ = Images()[int(told[0][0][0])]
    if not np.array_equal(first[0].numpy(), image):
        raise WrongResult("the first image of a batch is not the one that its index makes")


def _alone(trainer: Trainer, batch: Any, _number: int) -> float:
    """Seconds of a step whose batch lies ready."""
    images, indices, _ = batch
    trainer.step(images, indices)
    trainer.synchronize()
    begin = perf_counter()
    for _ in range(BATCHES):
        trainer.step(images, indices)
    trainer.synchronize()
    return (perf_counter() - begin) / BATCHES


def _where(processes: frozenset[int], workers: int) -> str:
    """Where batches were loaded, in words; WrongResult where that is not what was asked for."""
    expected = workers or 1
    if len(processes) != expected or (os.getpid() in processes) == bool(workers):
        raise WrongResult(
            f"{workers} workers were asked for, batches came from processes {sorted(processes)}"
        )
    return f"{workers} worker process{'es' * (workers > 1)}" if workers else "the training process"
