"""The worker of a run: after its script has ended, its process answers requests over a unix socket, and then exits.

The script's patches therefore stay in place, and so do the mode's swaps, environment, threads and compiled code. There
may be several clients, but one request is answered at a time. A client that has disconnected may connect again.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal, cast

from ...records.run.run_config import RunConfig
from ...torch_private.profiling.device_work import give_back_memory
from ..tape import in_words
from .requests import Requests
from .step_kernels import StepKernels
from .wire import ConnectionEnded, Message, WireError, receive, send

FIRST_WAIT = NEXT_WAIT = 24 * 3600.0
"""Seconds to wait for the first connection and for the next request. Other modes may train for long before they can be
compared with the worker's mode. When the process that started a worker dies, the system ends the worker (see
recorder/bootstrap.py)."""

LONGEST_PATH = 100
"""The greatest length of a unix socket's path, in bytes; Linux allows 107."""

QUIT = "quit"


def serve(config: RunConfig, notice: Callable[[str], None], kernels: Mapping[int, StepKernels]) -> None:
    """Answer requests at the path `config.serve` until one asks to quit, or until none comes for a long time.

    `kernels` is passed to `Requests`.
    """
    path = Path(config.serve)
    if len(os.fsencode(path)) > LONGEST_PATH:
        notice(f"the run has no worker: {path} is longer than {LONGEST_PATH} bytes, the limit for a socket's path")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        try:
            # No other user may connect to this path. `bind` creates the file with the permissions that the umask
            # leaves; setting them afterwards would be too late.
            before = os.umask(0o177)
            try:
                listening.bind(os.fspath(path))
            finally:
                os.umask(before)
            listening.listen(16)
        except OSError as error:
            notice(f"the run has no worker: it cannot listen at {path}: {error.strerror}")
            return
        give_back_memory()
        try:
            Service(Requests(config, kernels)).run(listening)
        finally:
            with suppress(OSError):
                path.unlink()


class Service:
    """A server that answers the requests of all connections one by one: only this thread executes kernels."""

    def __init__(self, requests: Requests, first_wait: float = FIRST_WAIT, next_wait: float = NEXT_WAIT) -> None:
        self._requests = requests
        self._first_wait = first_wait
        self._next_wait = next_wait

    def run(self, listening: socket.socket) -> None:
        """Answer requests until one asks to quit, or until none comes for a long time."""
        wait = self._first_wait
        with selectors.DefaultSelector() as selector, ExitStack() as open_connections:
            selector.register(listening, selectors.EVENT_READ)
            while ready := selector.select(wait):
                wait = self._next_wait
                for key, _ in ready:
                    if key.fileobj is listening:
                        connection = open_connections.enter_context(listening.accept()[0])
                        connection.settimeout(self._next_wait)
                        selector.register(connection, selectors.EVENT_READ)
                        continue
                    connection = cast(socket.socket, key.fileobj)
                    match self._answered(connection):
                        case "quit":
                            return
                        case "closed":  # the client may connect again
                            selector.unregister(connection)
                            connection.close()

    def _answered(self, connection: socket.socket) -> Literal["answered", "closed", "quit"]:
        """Answer the next request of a connection, and return the state of the connection afterwards."""
        try:
            request = receive(connection)
            if request.fields.get("request") == QUIT:
                send(connection, Message({}))
                return "quit"
            try:
                answer = self._requests.answer(request)
            except Exception as error:  # noqa: BLE001, an op may raise anything
                answer = Message({"error": in_words(error)})
            try:
                send(connection, answer)
            except ValueError as error:  # report an answer that cannot be sent; the connection still works
                send(connection, Message({"error": str(error)}))
        except ConnectionEnded:
            return "closed"
        except WireError as error:
            with suppress(OSError):
                send(connection, Message({"error": str(error)}))
            return "closed"
        except OSError:  # includes the timeout of a client that hangs within a message
            return "closed"
        return "answered"
