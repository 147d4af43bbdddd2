"""supervisord as the parent of the services: started as a daemon under the home, asked over a private unix socket.

It restarts nothing by itself: one that died says so, until the next `up`, or until the platform's daemon starts it again within
limits (`revival`).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
import xmlrpc.client
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from supervisor.xmlrpc import Faults, SupervisorTransport

from de_resources.errors import TransientError
from de_resources.local.processes import MARKER, STOP_SIGNAL, running_after
from de_resources.local.service import Program, write_private
from de_resources.settings import Settings

_LONGEST_SOCKET_PATH = 90  # the system allows 107 bytes, and supervisord appends its pid while it binds
_DROPPED_PREFIXES = ("DE_SECRET_", "SPARK_", "PYSPARK_")


class SupervisorNotStarted(TransientError):
    """supervisord did not come up."""

    def __init__(self, log: Path, output: str) -> None:
        self.log = log
        self.output = output
        said = output.strip()[-600:] or "nothing"
        super().__init__(f"The process supervisor did not start; see `{log}`, then run `de up` again. It said: {said}")


class ProgramNotStarted(TransientError):
    """supervisord could not run a program at all."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"{name} could not be run ({reason}): check that its program is installed, then run `de up`.")


@dataclass(frozen=True)
class ProcessInfo:
    """What supervisord knows of one program: its state's name, pid (0: none), and exit status (-1: a signal)."""

    state: str
    pid: int
    exit_status: int

    @property
    def is_alive(self) -> bool:
        """Whether there is a process now."""
        return self.state in ("STARTING", "RUNNING", "STOPPING")

    @property
    def how_it_ended(self) -> str:
        """The end of a program that was not stopped by us, as the start of a sentence."""
        if self.state in ("BACKOFF", "FATAL"):
            return "it ended right after its start"
        return "it was killed" if self.exit_status < 0 else f"it ended with exit status {self.exit_status}"


class Supervision:
    """One supervisord per home."""

    def __init__(self, settings: Settings) -> None:
        self.home = settings.home
        self.logs = settings.logs
        self.folder = settings.home / "run"

    @property
    def socket(self) -> Path:
        """Inside the home if the path is short enough for a unix socket, else in an own folder for temporary files."""
        inside = self.folder / "supervisor.sock"
        if len(os.fsencode(inside)) <= _LONGEST_SOCKET_PATH:
            return inside
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"de-{os.geteuid()}-{digest}" / "supervisor.sock"

    @property
    def is_alive(self) -> bool:
        """Whether our supervisord answers."""
        try:
            return bool(self._rpc.getState())
        except (OSError, xmlrpc.client.Error):
            return False

    def log_of(self, name: str) -> Path:
        """The log of one service."""
        return self.logs / f"{name}.log"

    def ensure_alive(self, timeout: float = 120.0) -> None:
        """Start supervisord unless it answers already.

        Raises:
            SupervisorNotStarted: it did not answer in time.
        """
        if self.is_alive:
            return
        self._prepare_folders()
        # Programs of an earlier supervisord: in a moved home they name places that are gone. Each is written again when
        # it is started.
        for earlier in (self.folder / "conf.d").glob("*.conf"):
            earlier.unlink()
        command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(self._write_config())]
        started = subprocess.run(
            command, env=self._environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        deadline = time.monotonic() + timeout
        while not self.is_alive:
            if started.returncode != 0 or time.monotonic() > deadline:
                raise SupervisorNotStarted(self.logs / "supervisord.log", started.stdout + started.stderr)
            time.sleep(0.05)

    def shut_down(self, timeout: float = 60.0) -> None:
        """Have supervisord stop its services and itself, and wait until it is gone; nothing when it does not answer."""
        with suppress(OSError, xmlrpc.client.Error, psutil.NoSuchProcess):
            daemon = psutil.Process(int(self._rpc.getPID()))
            self._rpc.shutdown()
            running_after(timeout, [daemon])

    def start(self, name: str, program: Program) -> None:
        """Start a program that does not run, with the configuration given now. Returns at once."""
        write_private(self.folder / "conf.d" / f"{name}.conf", self._section(name, program))
        self.stop(name)  # supervisord counts a program that ended right after its start as one that runs
        with suppress(xmlrpc.client.Fault):  # it was never started before
            self._rpc.removeProcessGroup(name)
        self._rpc.reloadConfig()
        self._rpc.addProcessGroup(name)
        try:
            self._rpc.startProcess(name, False)
        except xmlrpc.client.Fault as fault:
            raise ProgramNotStarted(name, fault.faultString) from fault

    def stop(self, name: str) -> None:
        """Stop a program and wait for its end; nothing when it does not run."""
        with suppress(xmlrpc.client.Fault):
            self._rpc.stopProcess(name, True)

    def info(self, name: str) -> ProcessInfo | None:
        """What supervisord knows of a program; None when it is gone itself or never started that program."""
        try:
            answer = self._rpc.getProcessInfo(name)
        except OSError:
            return None
        except xmlrpc.client.Fault as fault:
            if fault.faultCode in (Faults.BAD_NAME, Faults.SHUTDOWN_STATE):
                return None
            raise
        return ProcessInfo(answer["statename"], answer["pid"], answer["exitstatus"])

    @property
    def _rpc(self) -> Any:
        transport = SupervisorTransport(None, None, f"unix://{self.socket}")
        return xmlrpc.client.ServerProxy("http://localhost", transport=transport).supervisor

    def _prepare_folders(self) -> None:
        for folder in (self.folder, self.folder / "conf.d", self.logs, self.socket.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        owner = self.socket.parent.stat().st_uid
        if owner != os.geteuid():
            raise SupervisorNotStarted(self.logs, f"`{self.socket.parent}` belongs to user {owner}; remove it.")

    def _environment(self) -> dict[str, str]:
        """The caller's without its secrets and its Spark set-up, and with the mark by which all children are known."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_DROPPED_PREFIXES)}
        return kept | {MARKER: str(self.home)}

    def _write_config(self) -> Path:
        path = self.folder / "supervisord.conf"
        sections: dict[str, dict[str, object]] = {
            "unix_http_server": {"file": self.socket, "chmod": "0700"},
            "supervisord": {
                "logfile": self.logs / "supervisord.log",
                "pidfile": self.folder / "supervisord.pid",
                "childlogdir": self.logs,
                **({"user": "root"} if os.geteuid() == 0 else {}),
                "identifier": "de",
            },
            "rpcinterface:supervisor": {
                "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
            },
            "include": {"files": "conf.d/*.conf"},
        }
        path.write_text("".join(_render(section, values) for section, values in sections.items()))
        return path

    def _section(self, name: str, program: Program) -> str:
        environment = dict(program.environment) | {STOP_SIGNAL: program.stop_signal}
        return _render(
            f"program:{name}",
            {
                "command": shlex.join(program.command),
                "directory": program.directory,
                "environment": ",".join(f'{key}="{value}"' for key, value in environment.items()),
                **({"user": program.user} if program.user else {}),
                "autostart": "false",
                "autorestart": "false",
                "startsecs": "1",
                "startretries": "0",
                "stopsignal": program.stop_signal,
                "stopwaitsecs": "20",
                "killasgroup": "true",
                "stdout_logfile": self.log_of(name),
                "stdout_logfile_maxbytes": "10MB",
                "stdout_logfile_backups": "1",
                "redirect_stderr": "true",
            },
        )


def _render(section: str, values: Mapping[str, object]) -> str:
    """One section of supervisord's configuration; a `%` would start one of its own expansions."""
    lines = [f"{key}={str(value).replace('%', '%%')}\n" for key, value in values.items()]
    return f"[{section}]\n{''.join(lines)}\n"
