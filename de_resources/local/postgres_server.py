"""The PostgreSQL server: TCP on loopback, SCRAM passwords, logical WAL, an own role that is not a superuser."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import psycopg2
from pydantic import SecretStr

from de_resources.errors import PermanentError
from de_resources.local import postgres_guard, postgres_role
from de_resources.local.account import can_grant_passage, closed_folder, with_passage
from de_resources.local.endpoints import Endpoint
from de_resources.local.ports import LOOPBACK
from de_resources.local.postgres_binaries import BINARIES_VARIABLE, Binaries, find_binaries
from de_resources.local.processes import works_in
from de_resources.local.service import LeftOut, Program, Service, write_private

USER = "de"
PASSWORD = "postgres_password"  # noqa: S105 - the secret's name
WRITER = "de_writer"
WRITER_PASSWORD = "postgres_writer_password"  # noqa: S105 - the secret's name
ADMIN = "postgres"
ADMIN_PASSWORD = "postgres_admin_password"  # noqa: S105 - the secret's name
DATABASE_VARIABLE = "DE_POSTGRES_DATABASE"
UNPRIVILEGED = "nobody"
ORPHAN_SECONDS = 30.0
_HBA = f"""host all         all {LOOPBACK}/32 scram-sha-256
host replication all {LOOPBACK}/32 scram-sha-256
"""


class InitdbFailed(PermanentError):
    """The database cluster could not be created."""

    def __init__(self, folder: Path, output: str) -> None:
        self.folder = folder
        self.output = output
        super().__init__(f"initdb could not create `{folder}`; its last words: {output.strip()[-600:]}")


class PostgresService(Service):
    """PostgreSQL refuses to run as root: when root asks, the server and its files belong to `nobody`.

    Below a folder that `nobody` may not enter, the server keeps the capability to pass it, and no other.
    """

    name = "postgres"
    port_roles = {"client": "DE_POSTGRES_PORT"}  # noqa: RUF012 - a ClassVar by its base

    @property
    def data(self) -> Path:
        """The database cluster."""
        return self.folder / "data"

    @property
    def owner(self) -> str | None:
        """The account that runs the server; None: the caller's."""
        return UNPRIVILEGED if os.geteuid() == 0 else None

    def check(self) -> None:
        """There must be a server program, and its account must be able to reach it and the data."""
        binaries = self._binaries()
        if self.owner:
            self._check_reachable(self.folder, "set DE_HOME to a folder that it may enter")
            self._check_reachable(binaries.folder / "postgres", "install PostgreSQL with the package manager")

    def prepare(self, ports: Mapping[str, int]) -> Program:
        """Create the cluster at the first start, and clear away what a killed server left behind."""
        binaries = self._binaries()
        if not (self.data / "PG_VERSION").exists():
            self._create_cluster(binaries)
        self._forget_dead_server()
        command = [str(binaries.folder / "postgres"), "-D", str(self.data), "-p", str(ports["client"]), *_options()]
        passage = self._needs_passage(binaries)
        return Program(
            command=with_passage(UNPRIVILEGED, command) if passage else command,
            directory=self.folder,
            user=None if passage else self.owner,
            stop_signal="INT",  # "fast": ends sessions instead of waiting for them
        )

    def endpoint(self, ports: Mapping[str, int]) -> Endpoint:
        """The own role on its own database, `DE_POSTGRES_DATABASE` (default `blog`)."""
        password = SecretStr(self.secrets.generate(PASSWORD))
        database = os.environ.get(DATABASE_VARIABLE) or "blog"
        return Endpoint(self.name, LOOPBACK, ports["client"], USER, password, database)

    def writer(self, endpoint: Endpoint) -> Endpoint:
        """The same database as the role that fills versions: it owns nothing and may do what it is granted."""
        return replace(endpoint, user=WRITER, password=SecretStr(self.secrets.generate(WRITER_PASSWORD)))

    def is_ready(self, endpoint: Endpoint) -> bool:
        """The administrator can log in."""
        try:
            self._admin(endpoint).close()
        except psycopg2.OperationalError:
            return False
        return True

    def bootstrap(self, endpoint: Endpoint) -> None:
        """Create the role and its database, and log in as the role; the role of the writer, the groups of
        readers, and the guard of promised columns.
        """
        postgres_role.ensure(partial(self._admin, endpoint), endpoint)
        postgres_role.ensure_writer(partial(self._admin, endpoint), self.writer(endpoint))
        with closing(self._admin(endpoint, str(endpoint.database))) as session:
            postgres_role.ensure_groups(session)
            postgres_guard.ensure(session, endpoint.user)

    def _admin(self, endpoint: Endpoint, database: str = ADMIN) -> psycopg2.extensions.connection:
        password = self.secrets.generate(ADMIN_PASSWORD)
        return psycopg2.connect(
            host=endpoint.host, port=endpoint.port, dbname=database, user=ADMIN, password=password, connect_timeout=3
        )

    def _binaries(self) -> Binaries:
        found = find_binaries(self.data)
        if found is None:
            version = f" {(self.data / 'PG_VERSION').read_text().strip()}" if self.data.exists() else ""
            raise LeftOut(
                self.name,
                f"no PostgreSQL{version} server program was found; install one (Debian and Ubuntu: `apt-get install "
                f"postgresql`) or name the folder of its programs in {BINARIES_VARIABLE}.",
            )
        return found

    def _check_reachable(self, place: Path, remedy: str) -> None:
        closed = closed_folder(place, UNPRIVILEGED)
        if closed and not can_grant_passage(UNPRIVILEGED):
            raise LeftOut(
                self.name,
                f"it must not run as root, and the account `{UNPRIVILEGED}` may not enter `{closed}`; run "
                f"`chmod o+x {closed}`, or {remedy}, or do not run as root.",
            )

    def _needs_passage(self, binaries: Binaries) -> bool:
        places = (self.data, binaries.folder / "postgres")
        return self.owner is not None and any(closed_folder(place, self.owner) for place in places)

    def _create_cluster(self, binaries: Binaries) -> None:
        """Made beside and renamed, so that an interrupted first start leaves no half cluster."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh, password = self.folder / "data.new", self.folder / "admin_password"
        shutil.rmtree(fresh, ignore_errors=True)
        write_private(password, self.secrets.generate(ADMIN_PASSWORD))
        for place in (self.folder, password):
            if self.owner:
                shutil.chown(place, user=self.owner)
        try:
            self._initdb(binaries, fresh, password)
        finally:
            password.unlink()
        (fresh / "pg_hba.conf").write_text(_HBA)
        fresh.rename(self.data)

    def _initdb(self, binaries: Binaries, fresh: Path, password: Path) -> None:
        identity = ["-U", ADMIN, f"--pwfile={password}", "--auth=scram-sha-256"]
        command = [str(binaries.folder / "initdb"), "-D", str(fresh), *identity, "--encoding=UTF8", "--no-locale"]
        passage = self._needs_passage(binaries)
        owner = None if passage else self.owner
        done = subprocess.run(
            with_passage(UNPRIVILEGED, command) if passage else command,
            user=owner,
            group=pwd.getpwnam(owner).pw_gid if owner else None,
            extra_groups=[] if owner else None,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode != 0:
            raise InitdbFailed(fresh, done.stdout + done.stderr)

    def _forget_dead_server(self) -> None:
        """Remove the pid file of a killed server: PostgreSQL would not start if its old pid is somebody's by now."""
        pid_file = self.data / "postmaster.pid"
        if pid_file.exists():
            pid = int(pid_file.read_text().split("\n", 1)[0])
            if works_in(pid, self.data):
                raise LeftOut(
                    self.name, f"a server that was not started here (pid {pid}) uses `{self.data}`; stop it first."
                )
            self._await_orphans()
            pid_file.unlink()

    def _await_orphans(self) -> None:
        """What a killed server had started notices its death at the next pause, and holds its memory until then.

        PostgreSQL does not start before. Whoever is busy for longer is left to PostgreSQL's own words.
        """
        deadline = time.monotonic() + ORPHAN_SECONDS
        while any(works_in(pid, self.data) for pid in psutil.pids()) and time.monotonic() < deadline:
            time.sleep(0.05)


def _options() -> list[str]:
    options = {
        "listen_addresses": LOOPBACK,
        "unix_socket_directories": "",
        "wal_level": "logical",
        # A slot that nobody reads must not fill the disk: beyond this it is given up, which the capture then says.
        "max_slot_wal_keep_size": "4GB",
        "password_encryption": "scram-sha-256",
        "timezone": "UTC",
        "log_timezone": "UTC",
        # Statements and the details of violated constraints hold personal data: neither goes to the log.
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
    }
    return [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
