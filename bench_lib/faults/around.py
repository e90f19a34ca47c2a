"""What surrounds a case: it is put back as it was, and what the case left behind is written down.

A change counts as the case's own when it was made in its call or by its own fixtures and is still there
after their teardown. What a fixture of a wider scope sets up belongs to other cases too and stays.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench_lib.faults import leftovers, settings
from bench_lib.faults.leftovers import Memory

if TYPE_CHECKING:
    from bench_lib.device.gpu import Gpu

_THREADS = "torch number of threads"  # is read where torch is imported


class Around:
    """The surroundings of one case after another."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._at_first = leftovers.children()
        self._before: dict[str, Any] = {}
        self._called: dict[str, Any] = {}
        self._children: set[int] = set()
        self._memory = Memory()
        self._wider: set[str] = set()  # settings that wider fixtures changed
        self._wider_memory = Memory()
        self.stuck = ""  # what could not be put back

    def begin(self, gpu: "Gpu | None") -> None:
        """A case begins, its fixtures not set up yet."""
        self._before = self._called = settings.read()
        self._children = leftovers.children()
        self._memory, self._wider, self._wider_memory = Memory.now(gpu), set(), Memory()

    @contextmanager
    def wider_fixture(self, gpu: "Gpu | None") -> Iterator[None]:
        """Around the set-up of a fixture that outlives the case."""
        before, children, memory = settings.read(), leftovers.children(), Memory.now(gpu)
        yield
        after = settings.read()
        self._wider |= settings.differing(before, after)
        self._children |= leftovers.children() - children
        grown = Memory.now(gpu).grown(memory)
        self._wider_memory = Memory(
            self._wider_memory.host_nbytes + grown.host_nbytes,
            self._wider_memory.device_nbytes + grown.device_nbytes,
        )

    def before_call(self) -> None:
        """The fixtures are set up: a torch that they imported starts as it is now."""
        if _THREADS not in self._before:
            now = settings.read()
            self._before |= {name: value for name, value in now.items() if name.startswith("torch ")}

    def after_call(self) -> None:
        """The case's call has ended. A process that it forked and that came back here ends."""
        if os.getpid() != self._pid:
            os._exit(1)
        self._called = settings.read()

    def restore(self) -> list[str]:
        """The case and its teardown have ended: put settings back; a sentence on each change."""
        now = settings.read()
        own = settings.differing(self._before, self._called) - self._wider
        still = {name for name in own if name not in settings.differing(self._called, now)}
        changed, stuck = settings.put_back(self._before, still)
        if stuck:
            self.stuck = f"it changed {' and '.join(stuck)}, which cannot be put back"
        return [
            *(f"it changed {what}; put back" for what in changed),
            *([self.stuck] if stuck else []),
        ]

    def leftovers(self, gpu: "Gpu | None") -> list[str]:
        """After cleaning: sentences on what the case has left behind; forks of this process are ended."""
        grown = Memory.now(gpu).grown(self._memory).grown(self._wider_memory)
        return [*leftovers.end_forks(leftovers.children() - self._children), *grown.sentences()]

    def end(self) -> None:
        """The session ends: so does everything that it started and that still runs."""
        leftovers.end_all(leftovers.children() - self._at_first)
