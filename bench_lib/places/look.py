"""`python -m bench_lib.places.look URL`: can this place be reached? Prints why not, in one sentence.

A process that measures asks through this one: what reaches a place leaves threads and sockets behind.
"""

import subprocess
import sys

from bench_lib.errors import UsageError
from bench_lib.places import address
from bench_lib.places.place import Place

_SECONDS = 120.0


def require(url: str) -> None:
    """Raise UsageError unless the place can be reached now; nothing of it is loaded here."""
    command = [sys.executable, "-m", "bench_lib.places.look", url]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise UsageError(f"{url} gave no answer within {_SECONDS:.0f} s; check the network") from None
    if done.returncode != 0:
        raise UsageError(done.stdout.strip() or f"{url} cannot be used: {done.stderr.strip()[-300:]}")


def main() -> int:
    """Ask the place of the command line; the exit code."""
    try:
        Place.open(address.parse(sys.argv[1])).folders()
    except UsageError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
