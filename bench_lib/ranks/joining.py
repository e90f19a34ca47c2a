"""Under torchrun: rank 0 measures and records, every other process lends a seat to it until it is done.

torchrun's own store tells the others where rank 0 listens. Then each has one connection that says "one
more seat", and one for each seat; both sides prove that they know the secret that was in the store.
"""

import contextlib
import json
import os
import secrets
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge, wait
from typing import TYPE_CHECKING, Any

from bench_lib.errors import Refused, UsageError
from bench_lib.ranks.member import Spec
from bench_lib.ranks.seat import LocalSeat, Lost

GATHER_SECONDS = 120.0
_LEADER_SECONDS = 12 * 3600.0  # rank 0 may measure other things first
_END_SECONDS = 20.0
_PROVE_SECONDS = 10
_KEY = "cuda-gains/leader"

if TYPE_CHECKING:
    Wire = Connection[Any, Any]
else:
    Wire = Connection


@dataclass(frozen=True)
class Joined:
    """The place of this process in the world that torchrun made."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str  # where all reach rank 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Joined | None":
        """From torchrun's variables; None where there are none. UsageError when they are no numbers."""
        needed = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        if any(name not in environment for name in needed):
            return None
        try:
            rank, size, local_rank, local_size = (int(environment[name]) for name in needed[:4])
        except ValueError as error:
            raise UsageError(f"the variables of torchrun are no numbers ({error}); unset them") from None
        return cls(rank, size, local_rank, local_size, environment["MASTER_ADDR"])


def refuse_campaign(environment: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError where a campaign is started by torchrun: it starts processes of its own."""
    if "TORCHELASTIC_RUN_ID" in environment:
        raise UsageError(
            "cuda-gains run starts its own processes and cannot be one of torchrun's; give torchrun "
            "`-m pytest benchmarks`, once for each run"
        )


def _store(seconds: float) -> Any:
    """torchrun's store, or one that rank 0 opens at MASTER_PORT where another launcher set the variables."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=GATHER_SECONDS)))
    store.set_timeout(timedelta(seconds=seconds))
    return store


class Leader:
    """Rank 0's side: the connections to all others."""

    def __init__(self, joined: Joined) -> None:
        """Wait until all have come; Refused, naming who has not, after GATHER_SECONDS."""
        self._joined = joined
        self._key = secrets.token_bytes(32)
        self._server = socket.create_server(("", 0))
        self._server.settimeout(GATHER_SECONDS)
        self._controls: dict[int, Wire] = {}
        self.local: dict[int, tuple[int, int]] = {0: (joined.local_rank, joined.local_size)}
        try:
            self._gather(joined)
        except BaseException:
            self.close()
            raise

    def _gather(self, joined: Joined) -> None:
        port = self._server.getsockname()[1]
        self._kept = _store(GATHER_SECONDS)  # where rank 0 is the store, it must stay
        self._kept.set(_KEY, json.dumps({"port": port, "key": self._key.hex()}))
        while len(self._controls) < joined.size - 1:
            connection = self._accept(f"{1 + len(self._controls)} of {joined.size} ranks have come")
            rank, local_rank, local_size = connection.recv()
            self._controls[rank] = connection
            self.local[rank] = (local_rank, local_size)

    def seat(self, rank: int) -> "RemoteSeat":
        """A new seat at another rank."""
        self._controls[rank].send("seat")
        return RemoteSeat(self._accept(f"rank {rank} gave no seat"))

    def close(self) -> None:
        """Let all others go."""
        for connection in self._controls.values():
            connection.close()
        self._server.close()

    def _accept(self, what: str) -> Wire:
        """The next that knows the secret; anybody else who knocks is let go."""
        while True:
            try:
                accepted, _ = self._server.accept()
            except TimeoutError:
                raise Refused(
                    f"{what} after {GATHER_SECONDS:.0f} s; start the same command on every host, and let "
                    f"them reach {self._joined.host}"
                ) from None
            accepted.setblocking(True)
            with contextlib.suppress(AuthenticationError, EOFError, OSError):
                return _known(accepted, self._key)


def _known(accepted: socket.socket, key: bytes) -> Wire:
    """A connection whose other side has proved that it knows the key; it has some seconds for that."""
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _PROVE_SECONDS, 0))
    connection: Wire = Connection(os.dup(accepted.fileno()))
    try:
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    except BaseException:
        connection.close()
        raise
    finally:
        accepted.close()
    return connection


class RemoteSeat:
    """A seat at another process of torchrun's, on this host or another one."""

    def __init__(self, connection: Wire) -> None:
        self.connection = connection

    def start(self, spec: Spec) -> None:
        """Start a process there."""
        self.connection.send(("start", spec))

    def say(self, message: Any) -> None:
        """Send a request."""
        try:
            self.connection.send(("say", message))
        except OSError:
            raise Lost("is gone with the process that started it") from None

    def hear(self) -> tuple[bool, Any]:
        """The next answer."""
        try:
            word, content = self.connection.recv()
        except (EOFError, OSError):
            raise Lost("is gone with the process that started it") from None
        if word == "lost":
            raise Lost(content)
        return bool(content[0]), content[1]

    def end(self, stacks: bool = False) -> str:
        """End it; the last lines of its log."""
        log = ""
        with contextlib.suppress(EOFError, OSError):  # it is gone, and its process with it
            self.connection.send(("end", stacks))
            while self.connection.poll(_END_SECONDS):
                word, content = self.connection.recv()
                if word == "ended":
                    log = str(content)
                    break
        self.connection.close()
        return log


def follow(joined: Joined) -> None:
    """Lend seats to rank 0 until it lets go. Raises Refused when it never says where it is."""
    try:
        said = json.loads(_store(_LEADER_SECONDS).get(_KEY))
    except RuntimeError as error:  # torch's errors of a store: the time is over, or the store is gone
        raise Refused(f"rank 0 did not say where it is: {str(error).splitlines()[0]}") from None
    address, key = (joined.host, int(said["port"])), bytes.fromhex(said["key"])

    def connect() -> Wire:
        made: Wire = Client(address, authkey=key)
        return made

    control = connect()
    control.send((joined.rank, joined.local_rank, joined.local_size))
    Seats(control, connect).serve()


class Seats:
    """The seats that this process lends, and the connection that orders each."""

    def __init__(self, control: Wire, connect: Callable[[], Wire]) -> None:
        self._control, self._connect = control, connect
        self._seats: dict[Wire, LocalSeat] = {}  # by the connection that orders it
        self._started: dict[Wire, Wire] = {}  # the seat's own connection -> the one that orders it

    def serve(self) -> None:
        """Do what is ordered until rank 0 lets go, then end all."""
        try:
            while True:
                for ready in wait([self._control, *self._seats, *self._started]):
                    if ready is self._control:
                        self._control.recv()
                        self._seats[self._connect()] = LocalSeat()
                    elif ready in self._seats:
                        self._ordered(ready)
                    elif ready in self._started:
                        self._answered(ready)
        except (EOFError, OSError):
            return  # rank 0 is done
        finally:
            for seat in self._seats.values():
                seat.end()

    def _ordered(self, order: Any) -> None:
        seat = self._seats[order]
        try:
            word, content = order.recv()
        except (EOFError, OSError):
            word, content = "end", False
        if word == "start":
            seat.start(content)
            self._started[seat.connection] = order
        elif word == "say":
            try:
                seat.say(content)
            except Lost as error:
                order.send(("lost", str(error)))
        else:
            self._started = {own: by for own, by in self._started.items() if by is not order}
            log = seat.end(bool(content))
            del self._seats[order]
            with contextlib.suppress(OSError):
                order.send(("ended", log))

    def _answered(self, own: Any) -> None:
        order = self._started[own]
        try:
            order.send(("said", self._seats[order].hear()))
        except Lost as error:
            del self._started[own]
            order.send(("lost", str(error)))
