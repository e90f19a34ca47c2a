"""A process that has ended in, how it did and what it said at last in words out."""

import contextlib
import signal


def how_it_ended(returncode: int) -> str:
    """A return code of subprocess: `was ended by SIGKILL`, or `ended with exit code 2`."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"was ended by signal {-returncode}"


def last_line(said: str) -> str:
    """The last line of what a process printed; `no output` where there is none."""
    return (said.strip().splitlines() or ["no output"])[-1]
