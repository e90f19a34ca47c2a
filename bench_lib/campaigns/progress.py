"""How far a campaign is: a bar with the time left on a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from bench_lib.model import Status, why_nothing
from bench_lib.units import count_text


def counted(count: int, ends: Mapping[tuple[str, str], int], doubted: str = "") -> str:
    """How many cases there were, and of how many there is a result; of none: the commonest reason.

    `doubted`: of how many results a comparison will have no use, and why.
    """
    measured = sum(n for (status, _), n in ends.items() if status == Status.OK)
    reason = f" ({why})" if (why := why_nothing(ends)) else ""
    if measured == count and not doubted:
        return count_text(count, "case")
    return f"{count_text(count, 'case')}, {measured} measured{f' ({doubted})' if doubted else reason}"


class Progress:
    """Counts arms of rounds. `total` is how many are to run from now on."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._done = 0
        self._label = ""
        self._began = self._last_end = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # Rarely drawn: this runs beside a measurement.
        self._bar = Bar(*columns, console=console, refresh_per_second=1, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, label: str) -> None:
        """An arm of a round begins."""
        self._label = label
        self.cases(0)

    def cases(self, count: int) -> None:
        """The arm has finished so many cases."""
        text = f"{self._label}: {count_text(count, 'case')}, {self._left()}"
        self._bar.update(self._task, description=escape(text))

    def end(self, count: int, ends: Mapping[tuple[str, str], int], doubted: str = "") -> None:
        """An arm of a round is done, with so many cases; `ends`: status and reason -> how many of them.

        `doubted`: which of them a comparison will leave out; the line that says so stays everywhere.
        """
        now = time.monotonic()
        seconds, self._last_end = now - self._last_end, now
        self._done += 1
        self.cases(count)
        self._bar.update(self._task, completed=self._done)
        if doubted or not self._console.is_terminal:
            self.say(f"{self._label}: {counted(count, ends, doubted)} in {seconds:.1f} s, {self._left()}")

    def waiting(self, text: str, first: bool) -> None:
        """The arm waits; the first text of a wait stays, later ones show in the bar."""
        self._bar.update(self._task, description=escape(f"{self._label}: {text}"))
        if first:
            self.say(f"{self._label}: {text}")

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _left(self) -> str:
        """The time left, from the mean of the arms so far."""
        if not self._done:
            return "time left unknown"
        mean = (self._last_end - self._began) / self._done
        left = mean * (self._total - self._done) - (time.monotonic() - self._last_end)
        return f"{timedelta(seconds=round(max(left, 0.0)))} left"
