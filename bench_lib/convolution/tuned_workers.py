"""Convolutions under each tuning: the processes that time or profile them, and what they answered."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Any

from bench_lib.convolution.conv_worker import Chosen, First, Key, Steady, Walk, timing_worker
from bench_lib.convolution.kernel_names import Ran, profiling_worker
from bench_lib.convolution.tuning import Tuning
from bench_lib.model import Policy, Series
from bench_lib.processes.worker import Handler, Worker
from bench_lib.running.outcomes import Outcomes, given

Answer = tuple[Chosen, Series]


class TunedWorkers:
    """Asks each tuning's processes; a question is asked once, and its error is an answer too.

    `seconds` bounds one question: CaseTimeout is raised when it passes, and the process ended.
    """

    def __init__(self, device: str, policy: Policy) -> None:
        self._device, self._policy = device, policy
        self._workers: dict[tuple[Any, ...], Worker] = {}
        self._answers: Outcomes[Answer] = Outcomes()

    def prepare(self, tunings: Sequence[Tuning], profiling: int) -> None:
        """Bring up side by side what each tuning will be asked in: a timing process, and `profiling` more.

        Starting them one by one, as they are asked, costs seconds each. One that cannot start says so
        when it is asked.
        """
        started = [self._worker(timing_worker, tuning) for tuning in tunings]
        started += [self._worker(profiling_worker, t, n) for t in tunings for n in range(profiling)]
        for worker in started:
            worker.start()
        for worker in started:
            with suppress(Exception):
                worker.up()

    def steady(self, tuning: Tuning, key: Key, seconds: float) -> Answer:
        """The call that chose, and the steady state after it, in the tuning's process."""
        worker = self._worker(timing_worker, tuning)
        return self._answers.of((tuning, key), lambda: worker.ask(Steady(key, self._policy), seconds))

    def walk(self, tuning: Tuning, keys: Sequence[Key], seconds: float) -> Answer:
        """The first walk over several convolutions, and later walks, in a fresh process."""
        request = Walk(tuple(keys), self._policy)
        return self._answers.of((tuning, request.keys), lambda: self._fresh(tuning, request, seconds))

    def first(self, tuning: Tuning, key: Key, seconds: float) -> Chosen:
        """The first call in a fresh process."""
        chosen: Chosen = self._fresh(tuning, First(key), seconds)
        return chosen

    def kernels(self, tuning: Tuning, key: Key, processes: int, seconds: float) -> Mapping[str, str]:
        """Facts: the kernels that ran, and with two processes whether both chose the same."""
        workers = [self._worker(profiling_worker, tuning, number) for number in range(processes)]
        ran = _one_by_one(workers, key, seconds) if tuning.tries else _side_by_side(workers, key, seconds)
        facts = ran[0].facts()
        for other in ran[1:]:
            facts["kernels.repeat"] = "same" if other == ran[0] else "; ".join(other.kernels)
        return facts

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers.values():
            worker.end()
        for worker in self._workers.values():
            worker.close()

    def _worker(self, make: Callable[..., Handler], tuning: Tuning, number: int = 0) -> Worker:
        name = make, tuning, number
        if name not in self._workers:
            self._workers[name] = Worker(make, tuning, self._device)
        return self._workers[name]

    def _fresh(self, tuning: Tuning, request: Any, seconds: float) -> Any:
        worker = Worker(timing_worker, tuning, self._device)
        try:
            return worker.ask(request, seconds)
        finally:
            worker.close()


def _one_by_one(workers: Sequence[Worker], key: Key, seconds: float) -> list[Ran]:
    """Each has the GPU for itself: it chooses by the times it sees."""
    return [worker.ask(key, seconds) for worker in workers]


def _side_by_side(workers: Sequence[Worker], key: Key, seconds: float) -> list[Ran]:
    """All at once: where nothing is timed they do not disturb each other.

    Every answer is taken before one is judged, so that none is left for the next question.
    """
    for worker in workers:
        worker.up()
    for worker in workers:
        worker.send(key)
    answers: list[Ran | Exception] = []
    for worker in workers:
        try:
            answers.append(worker.answer(seconds))
        except Exception as error:
            answers.append(error)
    return [given(answer) for answer in answers]


def payback_batches(off: Answer, on: Answer, batches: int) -> float | None:
    """After how many batches tuning has paid for itself, None for never; a walk has `batches`."""
    gain = (median(off[1].seconds) - median(on[1].seconds)) / batches
    cost = max(0.0, on[0].seconds - off[0].seconds)
    return cost / gain if gain > 0 else None
