"""How a case ended, from what it raised, and letting go of that; why a session cannot begin."""

import contextlib
import sys
import traceback
from collections.abc import Iterator

import pytest

from bench_lib.errors import (
    CaseTimeout,
    Crashed,
    CudaGainsError,
    Hung,
    NotApplicable,
    Unavailable,
    WrongResult,
    first_sentence,
    is_out_of_memory,
)
from bench_lib.model import Status

_REASON_LENGTH = 500


def status_of(error: BaseException) -> Status:
    """How a case ended that raised this."""
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return status
    return Status.OUT_OF_MEMORY if is_out_of_memory(error) else Status.FAILED


def reason_of(error: BaseException) -> str:
    """Why, in one line."""
    said = text_of(error)
    text = first_sentence(said) if said.strip() else ""
    named = isinstance(error, CudaGainsError | pytest.skip.Exception | pytest.fail.Exception) and text
    return (text if named else f"{type(error).__name__}: {text}".removesuffix(": "))[:_REASON_LENGTH]


def text_of(error: BaseException) -> str:
    """What an exception says, as text that every file can hold, even where saying it raises."""
    try:
        text = str(getattr(error, "msg", None) or error)
    except Exception as second:
        text = f"(its text cannot be told: {type(second).__name__})"
    return text.encode("utf-8", "replace").decode()


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Our errors, and what the file system says, as one sentence and pytest's exit code 4."""
    try:
        yield
    except CudaGainsError as error:
        raise pytest.UsageError(str(error)) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise pytest.UsageError(
            f"the results cannot be written: {error.strerror}{where}; "
            "make room there or choose another place with --results and --benchmark-json"
        ) from None


_STATUS: dict[type[BaseException], Status] = {
    NotApplicable: Status.NOT_APPLICABLE,
    Unavailable: Status.SKIPPED,
    pytest.skip.Exception: Status.SKIPPED,
    WrongResult: Status.WRONG_RESULT,
    CaseTimeout: Status.TIMEOUT,
    Crashed: Status.CRASHED,
    Hung: Status.HUNG,
}


def forget(errors: list[BaseException]) -> None:
    """Let go of what the frames of failed cases hold: tensors would be pinned by them."""
    for first in errors:
        error: BaseException | None = first
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            traceback.clear_frames(error.__traceback__)
            error = error.__context__ if error.__cause__ is None else error.__cause__
    errors.clear()
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):  # pytest sets them for pdb
        if hasattr(sys, name):
            delattr(sys, name)
