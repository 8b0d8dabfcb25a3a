"""A run that serves: after its script has ended, its process answers what is asked over a unix socket, then exits.

So whatever the script has patched, the mode's swaps, environment, threads and compiled code stay in place. One connection
is answered at a time; a client that goes away may come back.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..records.run_config import RunConfig
from .ensemble import in_words
from .requests import Requests
from .wire import ConnectionEnded, Message, WireError, receive, send

FIRST_WAIT = 120.0
"""Seconds until the first connection must have come."""

NEXT_WAIT = 600.0
"""Seconds until the next request must have come."""

LONGEST_PATH = 100
"""Bytes of a unix socket's path; Linux takes 107."""

QUIT = "quit"


def serve(config: RunConfig, notice: Callable[[str], None]) -> None:
    """Answer at the path `config.serve` until told to quit, or until nothing has been asked for long."""
    path = Path(config.serve)
    if len(os.fsencode(path)) > LONGEST_PATH:
        notice(f"the run is not served: {path} is longer than the {LONGEST_PATH} bytes of a socket's path")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        try:
            _listen(listening, path)
        except OSError as error:
            notice(f"the run is not served: {path} cannot be listened at: {error.strerror}")
            return
        try:
            Service(Requests(config)).run(listening)
        finally:
            with suppress(OSError):
                path.unlink()


def _listen(listening: socket.socket, path: Path) -> None:
    """Listen at a path that nobody else may connect to."""
    before = os.umask(0o177)
    try:
        listening.bind(os.fspath(path))
    finally:
        os.umask(before)
    listening.listen(1)


class Service:
    """Connections taken one after the other, and their requests answered."""

    def __init__(
        self, requests: Requests, first_wait: float = FIRST_WAIT, next_wait: float = NEXT_WAIT
    ) -> None:
        self._requests = requests
        self._first_wait = first_wait
        self._next_wait = next_wait

    def run(self, listening: socket.socket) -> None:
        """Answer until told to quit, or until nothing has been asked for long."""
        wait = self._first_wait
        while True:
            listening.settimeout(wait)
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                return
            wait = self._next_wait
            with connection:
                connection.settimeout(self._next_wait)
                if not self._answered(connection):
                    return

    def _answered(self, connection: socket.socket) -> bool:
        """Answer until the client goes; says whether another one is to be waited for."""
        try:
            while True:
                request = receive(connection)
                if request.fields.get("request") == QUIT:
                    send(connection, Message({}))
                    return False
                self._send(connection, self._answer(request))
        except TimeoutError:
            return False
        except ConnectionEnded:
            return True
        except WireError as error:
            with suppress(OSError):
                send(connection, Message({"error": str(error)}))
            return True
        except OSError:
            return True

    def _send(self, connection: socket.socket, answer: Message) -> None:
        try:
            send(connection, answer)
        except ValueError as error:
            send(connection, Message({"error": str(error)}))

    def _answer(self, request: Message) -> Message:
        try:
            return self._requests.answer(request)
        except Exception as error:  # noqa: BLE001, an op may raise anything
            return Message({"error": in_words(error)})
