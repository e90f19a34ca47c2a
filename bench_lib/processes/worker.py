"""A process of its own that answers requests one by one, each within a time limit.

Workers are forked from a server that has imported torch and nothing of CUDA: each brings up its own
context and its own cuDNN, and starts in a second rather than in five. One with environment variables of
its own is a clean process instead, for what a library reads when it is loaded.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any

from bench_lib.errors import (
    HARMLESS,
    CaseTimeout,
    CudaError,
    CudaGainsError,
    first_sentence,
    is_out_of_memory,
)
from bench_lib.processes import guard

Handler = Callable[[Any], Any]
_GOODBYE_SECONDS = 10.0
_START_SECONDS = 120.0  # torch's import on a cold disk


def begin_server() -> None:
    """Let the server that workers are forked from begin, if it has not, and do not wait for its import."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["torch"])
    forkserver.ensure_running()


class Worker:
    """A process with one handler, made in it by `make(*arguments)`; started when first asked.

    `make` is a module-level function. A worker that passes its limit or fails in another way than
    by an answer about the case is ended, and the next request starts a fresh one.
    `daemon=False` for a handler that starts processes of its own by multiprocessing.
    `variables` are set before anything is imported; one that is "" is taken out. Without any, the
    environment is that of this process when the worker starts, whenever the server began.
    """

    def __init__(
        self,
        make: Callable[..., Handler],
        *arguments: Any,
        daemon: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._make, self._arguments, self._daemon = make, arguments, daemon
        self._variables = variables
        self._process: Any = None
        self._connection: Connection[Any, Any] | None = None
        self._is_up = False

    def start(self) -> None:
        """Begin the process if there is none, and do not wait for it: many can come up side by side."""
        if self._process is not None:
            return
        clean = self._variables is not None
        context: Any = multiprocessing.get_context("spawn" if clean else "forkserver")
        if not clean:
            begin_server()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, self._make, self._arguments, self._variables if clean else dict(os.environ)),
            daemon=self._daemon,
        )
        self._process.start()
        theirs.close()
        self._is_up = False

    def up(self) -> None:
        """Wait until the handler is made; what its making raised is raised here, and the process gone."""
        self.start()
        if self._is_up:
            return
        assert self._connection is not None
        if not self._connection.poll(_START_SECONDS):
            self.close()
            raise CudaGainsError(f"a process for the measurement did not start within {_START_SECONDS:.0f} s")
        failed, answer = self._received()
        if failed:
            self.close()
            raise answer
        self._is_up = True

    def ask(self, request: Any, seconds: float) -> Any:
        """The handler's answer to a request; raises as `answer`."""
        self.send(request)
        return self.answer(seconds)

    def send(self, request: Any) -> None:
        """Send a request without waiting for its answer: several processes can work side by side."""
        self.up()
        assert self._connection is not None
        with suppress(OSError):  # it is dead, which receiving tells
            self._connection.send(request)

    def answer(self, seconds: float) -> Any:
        """The handler's answer to what was sent; what it raised is raised here, CUDA's errors as text.

        Raises CaseTimeout when there is none within `seconds`, CudaGainsError when the process died.
        """
        connection = self._connection
        assert connection is not None, "send() comes first"
        if not connection.poll(seconds):
            self.close()
            raise CaseTimeout(f"passed its budget of {seconds:g} s in a process of its own, now ended")
        failed, answer = self._received()
        if not failed:
            return answer
        if not isinstance(answer, HARMLESS):
            self.close()
        raise answer

    def end(self) -> None:
        """Have the process end, and do not wait for it: many can end side by side. `close` comes after."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process."""
        self.end()
        if self._process is not None:
            self._ended()

    def _received(self) -> tuple[bool, Any]:
        """Whether the worker failed, and its answer; CudaGainsError when it died instead."""
        assert self._connection is not None
        try:
            failed, answer = self._connection.recv()
        except (EOFError, OSError):
            code = self._ended()
            raise CudaGainsError(
                f"the process that measured it ended with {code} without an answer"
            ) from None
        return failed, answer

    def _ended(self) -> int | None:
        self._process.join(_GOODBYE_SECONDS)
        code: int | None = self._process.exitcode
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None
        return code


def _serve(
    connection: "Connection[Any, Any]",
    make: Callable[..., Handler],
    arguments: tuple[Any, ...],
    variables: Mapping[str, str],
) -> None:
    """The worker's life: make the handler, then answer until the other end is gone."""
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value:
            os.environ[name] = value
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the session; it ends us
    guard.die_with_parent()
    when_session_ends(lambda: os.kill(os.getpid(), signal.SIGKILL))  # by kill -9 too, and when busy
    handler = _answer(connection, lambda _: make(*arguments), None, keep=True)
    with suppress(EOFError, OSError):
        while handler is not None:
            _answer(connection, handler, connection.recv())


def _answer(connection: "Connection[Any, Any]", handler: Handler, request: Any, keep: bool = False) -> Any:
    try:
        result = handler(request)
    except Exception as error:  # whatever it is, the case gets it as its reason
        connection.send((True, told(error)))
        return None
    connection.send((False, None if keep else result))
    return result


def when_session_ends(act: Callable[[], object]) -> None:
    """Do something once the process that started this one is gone, whatever this one does then.

    The kernel's signal comes from the death of the server, which lives as long as what it has forked; and
    a process that is busy does not look at its connection.
    """
    session = multiprocessing.parent_process()
    assert session is not None

    def watch() -> None:
        wait([session.sentinel])
        act()

    threading.Thread(target=watch, daemon=True).start()


def told(error: Exception) -> Exception:
    """The error as one that can be sent: ours keep their kind, out of memory stays it, else text.

    A CUDA error has spoilt the worker's context and not the session's, so it is no CudaError there.
    """
    if isinstance(error, CudaGainsError) and not isinstance(error, CudaError):
        return type(error)(str(error))
    line = first_sentence(str(error))
    if is_out_of_memory(error):
        return MemoryError(line)
    return CudaGainsError(f"{type(error).__name__}: {line}")
