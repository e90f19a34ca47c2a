"""`python -m bench_lib.thermal.wait UUID LIMIT_C SECONDS`: wait until a GPU is at most so warm.

Prints the temperature in °C, one line a look: at once, then each second until it is low enough or the
time is over. Prints nothing where NVML does not know the GPU. Never touches CUDA.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator

from bench_lib.device.telemetry import Telemetry

_LOOK_SECONDS = 1.0
_SLACK_SECONDS = 10  # for an NVML that hangs: then the process ends by SIGALRM


def temperatures(
    read: Callable[[], float | None], limit_c: float, seconds: float, look_seconds: float = _LOOK_SECONDS
) -> Iterator[float]:
    """The temperatures seen until one is at most `limit_c`, or `seconds` are over."""
    end = time.monotonic() + seconds
    while (now := read()) is not None:
        yield now
        if now <= limit_c or time.monotonic() + look_seconds > end:
            return
        time.sleep(look_seconds)


def main() -> None:
    """Wait as the command line says."""
    uuid, limit_c, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    signal.alarm(int(seconds) + _SLACK_SECONDS)
    telemetry = Telemetry.open(uuid)
    for now in temperatures(lambda: telemetry.read().temperature_c, limit_c, seconds):
        sys.stdout.write(f"{now:g}\n")
        sys.stdout.flush()
    telemetry.close()


if __name__ == "__main__":
    main()
