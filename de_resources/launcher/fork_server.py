"""The launching side of a fork server: a child process, reached over a socket that nobody else has."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from de_resources.compat.launching import InstanceRef, RepositoryPythonOrigin, serialize_value
from de_resources.errors import TransientError
from de_resources.launcher.server import MESSAGE_BYTES, QUIET_VARIABLES

LOAD_SECONDS = 120.0
END_SECONDS = 0.3


class CannotFork(TransientError):
    """No worker can be had from a fork server; the run has not been started."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"No worker could be forked: {why}")


class ForkServer:
    """One code location, loaded in a child process. It ends when it is closed, or when we end in whatever way.

    Raises `CannotFork` when the process does not start, the code location does not load, or leaves threads running.
    """

    def __init__(self, origin: RepositoryPythonOrigin, instance: InstanceRef, preload: Sequence[str] = ()) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [origin.executable_path or sys.executable, "-m", "de_resources.launcher", str(theirs.fileno())],
                    env={**os.environ, **QUIET_VARIABLES},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                )
            order = {
                "origin": serialize_value(origin),
                "instance": serialize_value(instance),
                "preload": list(preload),
                "environment": {name: os.environ.get(name) for name in QUIET_VARIABLES},
            }
            self._control.settimeout(LOAD_SECONDS)
            self._control.send(json.dumps(order).encode())
            answer = self._control.recv(MESSAGE_BYTES).decode()
        except OSError as error:
            self.close()
            raise CannotFork(f"the fork server did not start ({type(error).__name__}: {error})") from error
        if answer != "ready":
            self.close()
            raise CannotFork(answer or "the fork server ended while it was loading the code location")

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def fork(self, arguments: str) -> tuple[socket.socket, bytes]:
        """A connection to a new worker for these serialised arguments, and how it introduces itself.

        It does nothing before it hears `GO`. Raises `CannotFork`: a file that was read for loading has changed, the
        process is gone, or something is in the way. Another server may do better.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(LOAD_SECONDS)
        try:
            with theirs:
                socket.send_fds(self._control, [arguments.encode()], [theirs.fileno()])
            first = ours.recv(MESSAGE_BYTES)
        except OSError as error:
            ours.close()
            raise CannotFork(f"the fork server is gone ({type(error).__name__})") from error
        if first.startswith(b"{"):
            return ours, first
        ours.close()
        raise CannotFork(first.decode() or "the fork server is gone")

    def close(self) -> None:
        """Hang up. Without workers the process ends at once, else after its last one, for which nobody waits here."""
        self._control.close()
        process = getattr(self, "_process", None)
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
