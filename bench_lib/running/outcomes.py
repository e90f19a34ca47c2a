"""What is measured once for several cases: its outcome is kept for all of them, and an error is one too."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Outcomes(Generic[T]):
    """Answers by question; each is asked once, and what it raised is raised again."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, T | Exception] = {}

    def of(self, question: Hashable, ask: Callable[[], T]) -> T:
        """The answer to a question, which is asked now if it never was."""
        if question not in self._kept:
            try:
                self._kept[question] = ask()
            except Exception as error:
                self._kept[question] = error
        return given(self._kept[question])


def given(outcome: T | Exception) -> T:
    """What an outcome holds; raises the error that stands in its place."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
