"""An end for a case that hangs in C under plain pytest, where no campaign watches.

A thread of the interpreter that needs no lock of it waits; when the time has passed it writes where
every thread is, and the process ends. What was measured before is on disk.
"""

import faulthandler
import os
import sys

SLACK_SECONDS = 60.0  # on top of a case's own budget, as in a campaign


class Alarm:
    """Ends this process with exit code 1 unless it is stopped in time."""

    def __init__(self) -> None:
        try:
            self._stream = os.dup(sys.__stderr__.fileno()) if sys.__stderr__ else -1
        except (OSError, ValueError):
            self._stream = -1

    def start(self, seconds: float) -> None:
        """From now on there are so many seconds."""
        if self._stream >= 0:
            faulthandler.dump_traceback_later(seconds, exit=True, file=self._stream)

    def stop(self) -> None:
        """It ended in time."""
        faulthandler.cancel_dump_traceback_later()

    def close(self) -> None:
        """No case follows."""
        if self._stream >= 0:
            os.close(self._stream)
            self._stream = -1
