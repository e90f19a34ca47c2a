"""Clients that are time-sliced beside clients under MPS: some work of some of them, in turns."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

from bench_lib.errors import CudaGainsError, NotApplicable, Unavailable
from bench_lib.model import Series, Timing
from bench_lib.model import Work as Counted
from bench_lib.mps import control, work
from bench_lib.mps.clients import Clients, Window
from bench_lib.mps.daemon import APART, Daemon
from bench_lib.units import seconds_text

TIME_SLICED, MPS = "time_sliced", "mps"
METRICS = ("per_request", "latency", "latency_p99")
WARM_SECONDS = 0.05
_LATE = "in {n} of {of} windows some client began late, while the others had the GPU for themselves"


def check(uuid: str, capability: tuple[int, int], settings: Mapping[str, str]) -> str:
    """The path of the control command, where clients may be compared on this GPU.

    `settings`: what NVML says of it (Telemetry.describe). Raises NotApplicable or Unavailable with a
    sentence; nothing here changes a setting.
    """
    if uuid.startswith("MIG-") or settings.get("gpu.mig_mode") == "on":
        raise NotApplicable("this is an instance of a GPU under MIG; MPS is measured on a whole GPU")
    if capability < (7, 0):
        raise NotApplicable(
            f"compute capability {capability[0]}.{capability[1]} has the MPS from before Volta, whose "
            "clients share one context; it is measured from 7.0 on"
        )
    if (mode := settings.get("gpu.compute_mode", "default")) != "default":
        raise Unavailable(
            f"the GPU's compute mode is {mode}, in which several processes cannot be time-sliced; expected "
            "default, which its administrator sets: this suite never does"
        )
    command = control.binary()
    if sentence := control.someone_elses(command):
        raise Unavailable(sentence)
    return command


class Sharing:
    """The clients of both ways, and the daemon of one; both are there at once, so that they take turns.

    Where no client comes under MPS the other way is measured alone, and every case of MPS says why not.
    """

    def __init__(self, command: str, uuid: str, count: int) -> None:
        self._daemon: Daemon | None = None
        self._ways: dict[str, Clients | CudaGainsError] = {}
        self._found: dict[tuple[str, int], dict[str, dict[str, Series] | Exception]] = {}
        own = {**control.without_mps(), "CUDA_VISIBLE_DEVICES": uuid}
        try:
            self._ways[TIME_SLICED] = Clients("time-sliced", {**own, **APART}, count)
            try:
                self._daemon = Daemon.start(command, uuid)
                self._ways[MPS] = under(self._daemon, own, count)
            except CudaGainsError as error:
                self._ways[MPS] = error
        except BaseException:
            self.close()
            raise

    def measured(
        self, count: int, asked: Mapping[str, Any], turns: int, seconds: float, rows: int = work.ROWS
    ) -> dict[str, dict[str, Series] | Exception]:
        """Way -> metric -> series of some work in `count` clients; or why a way has none. Measured once.

        `turns` windows of `seconds` each a way; the way that goes first changes from turn to turn.
        """
        key = str(asked["work"]), count
        if key not in self._found:
            self._found[key] = self._measure(count, asked, turns, seconds, rows)
        return self._found[key]

    def prepare(self, count: int, asked: Mapping[str, Any]) -> dict[str, Exception]:
        """Make work ready in `count` clients of each way; by way, why it is not."""
        failed: dict[str, Exception] = {}
        for way in self._ways:
            try:
                self._ready(way, count, asked)
            except Exception as error:  # the other way is measured all the same
                failed[way] = error
        return failed

    def close(self) -> str:
        """Let the clients go, then have the daemon quit; "" or a sentence on what still runs."""
        with _unhurried():
            for clients in self._ways.values():
                if isinstance(clients, Clients):
                    clients.close()
            return self._daemon.close() if self._daemon is not None else ""

    def _measure(
        self, count: int, asked: Mapping[str, Any], turns: int, seconds: float, rows: int
    ) -> dict[str, dict[str, Series] | Exception]:
        windows: dict[str, list[Window]] = {way: [] for way in self._ways}
        failed, kind = self.prepare(count, asked), str(asked["work"])
        for turn in range(-1, turns):  # the first one warms up
            order = list(self._ways) if turn % 2 else list(reversed(self._ways))
            for way in order:
                if way in failed:
                    continue
                try:
                    found = self._clients(way).window(count, kind, seconds if turn >= 0 else WARM_SECONDS)
                except Exception as error:  # the other way is measured all the same
                    failed[way] = error
                    continue
                windows[way] += [found] if turn >= 0 else []
        name, counted = f"{kind}-{count}", Counted(work.flop(kind, rows))
        return {way: failed.get(way) or series(windows[way], name, counted) for way in self._ways}

    def _ready(self, way: str, count: int, asked: Mapping[str, Any]) -> None:
        """Clients with their work ready; those of the daemon are known to it, new ones too."""
        self._clients(way).prepare(count, asked)
        if way == MPS and self._daemon is not None:
            _check_clients(self._daemon, count)

    def _clients(self, way: str) -> Clients:
        clients = self._ways[way]
        if not isinstance(clients, Clients):
            raise clients
        return clients


def under(daemon: Daemon, own: Mapping[str, str], count: int) -> Clients:
    """Clients of the daemon, each of which it must know. Raises Unavailable with what the daemon says."""
    try:
        clients = Clients("under MPS", {**own, **daemon.environment}, count)
    except CudaGainsError as error:
        raise Unavailable(f"{error}; of the MPS daemon: {daemon.told()}") from None
    try:
        _check_clients(daemon, count)
    except BaseException:
        clients.close()
        raise
    return clients


@contextmanager
def _unhurried() -> Iterator[None]:
    """No Ctrl-C inside: whoever presses it twice would have processes killed that end in a second."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _check_clients(daemon: Daemon, count: int) -> None:
    """Raise Unavailable unless the daemon knows as many clients."""
    if (found := len(daemon.clients())) < count:
        raise Unavailable(
            f"{found} of {count} processes came under MPS, expected all, so that no time of theirs would be "
            f"MPS's; of the daemon: {daemon.told()}"
        )


def series(windows: list[Window], turns: str, counted: Counted) -> dict[str, Series]:
    """Metric -> its series, a sample a window."""
    late = sum(window.late for window in windows)
    warnings = (_LATE.format(n=late, of=len(windows)),) if late else ()
    by_client = [median(values) for values in zip(*(one.by_client for one in windows), strict=True)]
    requests = median(sum(map(len, window.requests)) for window in windows)
    facts = {"latency.by_client": ", ".join(map(seconds_text, by_client))}
    quantities = {
        "per_request": {"requests_a_window": float(requests)},
        "latency": {"slowest_client_seconds": max(by_client), "fastest_client_seconds": min(by_client)},
        "latency_p99": {},
    }
    return {
        metric: Series(
            tuple(getattr(window, metric) for window in windows),
            timing=Timing.HOST,
            turns=f"mps-{turns}",
            work=counted if metric == "per_request" else Counted(),
            warnings=warnings,
            facts=facts if metric == "latency" else {},
            quantities=quantities[metric],
        )
        for metric in METRICS
    }
