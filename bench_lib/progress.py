"""How far a campaign is: a bar with the time left on a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """Counts processes. `total` is how many are to run from now on."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._label = ""
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
        """A process begins."""
        self._label = label
        self._began_process = time.monotonic()
        self.cases(0)

    def cases(self, count: int) -> None:
        """The process has finished so many cases."""
        text = f"{self._label}: {count} cases, {self._left()} left"
        self._bar.update(self._task, description=escape(text))

    def end(self, count: int) -> None:
        """An arm of a round is done, with so many cases."""
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        if not self._console.is_terminal:
            seconds = time.monotonic() - self._began_process
            self.say(f"{self._label}: {count} cases in {seconds:.1f} s, {self._left()} left")

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _left(self) -> str:
        """The time left, from the mean of the processes so far."""
        if not self._done:
            return "time unknown"
        left = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        minutes, seconds = divmod(round(left), 60)
        return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
