"""What a process prints has an end: a log is cut, and so is what a report repeats."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_lib.errors import CudaGainsError

_PRINTED_NBYTES = 64 << 20  # by one case
LOG_NBYTES = 64 << 20  # a log that has grown beyond this is cut ...
_KEPT_NBYTES = 1 << 20  # ... to its beginning
_SHOWN = 20_000  # characters at each end of what a report repeats


def cut(log: Path) -> None:
    """Cut a log that is written without end; its writer appends, so it goes on behind the beginning."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > LOG_NBYTES:
            os.truncate(log, _KEPT_NBYTES)


def shortened(text: str) -> str:
    """The text, or of a very long one both its ends, and how much is left out."""
    left_out = len(text) - 2 * _SHOWN
    if left_out <= 0:
        return text
    return f"{text[:_SHOWN]}\n... {left_out} characters are left out ...\n{text[-_SHOWN:]}"


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Inside, what Python code prints to stdout or stderr has an end: CudaGainsError beyond it."""
    bounds = [_Bound(stream) for stream in {id(s): s for s in (sys.stdout, sys.stderr)}.values()]
    try:
        yield
    finally:
        for bound in bounds:
            bound.release()


class _Bound:
    """The `write` of a stream, until so much has been written."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._left = stream, _PRINTED_NBYTES
        self._write = stream.write
        with contextlib.suppress(AttributeError, TypeError):  # a stream that cannot be wrapped stays
            stream.write = self._counted

    def _counted(self, text: str) -> Any:
        self._left -= len(text)
        if self._left < 0:
            raise CudaGainsError(
                f"it printed more than {_PRINTED_NBYTES >> 20} MiB; print less, a case is measured and not "
                "read"
            )
        return self._write(text)

    def release(self) -> None:
        with contextlib.suppress(AttributeError):
            del self._stream.write
