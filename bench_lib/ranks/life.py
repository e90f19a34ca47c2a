"""The life of a rank's process: it says what it sees, joins the group, then answers until it is ended.

All it prints, and all that NCCL and the C library print, goes to its log.
"""

import faulthandler
import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from bench_lib.processes import guard
from bench_lib.processes.worker import told, when_session_ends
from bench_lib.ranks.interconnect import Links, links
from bench_lib.ranks.member import Handler, Joining, Member, Spec, look


class Lead:
    """Asks rank 0 for the port at which the others meet it."""


class Make:
    """Asks a rank for its handler: what is asked afterwards goes to that."""


def live(connection: "Connection[Any, Any]", spec: Spec, log: str) -> None:
    """Answer on `connection` until its other end is gone; the first answer is what this rank sees."""
    _settle(log)
    for name, value in spec.variables.items():
        os.environ.setdefault(name, value)  # what the user has set stays as it is
    handler: Handler | None = None
    member: Member | None = None
    with suppress(EOFError, OSError):
        seen = look(spec.place)
        connection.send((False, seen))
        while True:
            request = connection.recv()
            try:
                member = member or Member(spec.place)
                if isinstance(request, Links):
                    answer: Any = links(request.uuids.get(seen.boot_id, ()))
                elif isinstance(request, Lead):
                    answer = member.lead()
                elif isinstance(request, Joining):
                    answer = member.join(request)
                elif isinstance(request, Make):
                    handler, answer = spec.make(member, *spec.arguments), None
                else:
                    assert handler is not None
                    answer = handler(request)
            except Exception as error:  # whatever it is, the case gets it as its reason
                connection.send((True, told(error)))
            else:
                connection.send((False, answer))
    os._exit(0)  # communicators whose partners are gone take no good-bye


def _settle(log: str) -> None:
    """Die with the parent, be a group of one's own, keep quiet, and tell the stacks when asked."""
    os.setpgid(0, 0)
    guard.die_with_parent()
    when_session_ends(lambda: os.killpg(0, signal.SIGKILL))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the session; it ends us
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True)
