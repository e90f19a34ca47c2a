"""What a process prints has an end: a log is cut, and so is what a report repeats."""

import contextlib
import os
from pathlib import Path

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
