"""A process a backend: functions are called there with its memory, each with the same arguments once."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from bench_lib.alloc_traces.backends import BACKENDS
from bench_lib.alloc_traces.memory import CudaMemory
from bench_lib.model import Series
from bench_lib.processes.worker import Handler, Worker
from bench_lib.running.outcomes import Outcomes

Answer = Mapping[str, Series]  # by metric


def allocator_worker(backend: str) -> Handler:
    """What the process of a backend does; made in it, with the backend's variables set."""
    torch: Any = importlib.import_module("torch")
    memory = CudaMemory(torch, backend)
    return serving(memory)


def serving(memory: CudaMemory) -> Handler:
    """Calls what it is asked for with this memory, and leaves nothing in the cache."""

    def serve(request: tuple[Callable[..., Answer], *tuple[Any, ...]]) -> Answer:
        what, *arguments = request
        try:
            return what(memory, *arguments)
        finally:
            memory.empty()

    return serve


class Allocators:
    """The processes by backend, started when first asked. `make` makes a backend's handler in its process."""

    def __init__(self, make: Callable[[str], Handler] = allocator_worker) -> None:
        self._workers = {
            name: Worker(make, name, variables=backend.variables) for name, backend in BACKENDS.items()
        }
        self._answers: Outcomes[Answer] = Outcomes()

    def start(self) -> None:
        """Let all come up side by side: one after another they take seconds each."""
        for worker in self._workers.values():
            worker.start()

    def ask(self, backend: str, seconds: float, what: Callable[..., Answer], *arguments: Any) -> Answer:
        """What a module-level function answers in a backend's process; its error is an answer too.

        Raises CaseTimeout where it takes longer than `seconds`, Unavailable where the backend is not here.
        """
        request = (what, *arguments)
        return self._answers.of((backend, *request), lambda: self._workers[backend].ask(request, seconds))

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers.values():
            worker.close()
