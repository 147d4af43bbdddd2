"""One writer process at a time per table, where the storage cannot arbitrate.

Delta's default log store on a local disk checks for the next version and then renames, so that two processes can both
believe they committed it. An advisory `flock` per table closes the gap: engines of their own (a classic session in each
run worker) take it exclusively; the shared engine, inside which Delta arbitrates, takes it shared, so that its writers
do not wait for each other but never overlap with a foreign process. Object stores need no lock.

It is asked again and again, since `flock` knows no time-out. Nothing has failed meanwhile that `tenacity` could try again.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from de_resources.errors import TransientError


class TableBusy(TransientError):
    """Another process holds the table's commit lock for too long."""

    soon = False

    def __init__(self, table: str, seconds: float) -> None:
        self.table, self.seconds = table, seconds
        super().__init__(
            f"Another process has been writing `{table}` for more than {seconds:.0f} s. Nothing was written; "
            "wait for the other run to end, or stop it, and try again."
        )


@contextmanager
def commit_lock(uri: str, *, table: str, shared: bool, timeout: float = 1800) -> Iterator[None]:
    """Hold the table's lock. A no-op for object stores. The kernel frees it when the process dies, however it dies.

    Raises `TableBusy` after `timeout` seconds.
    """
    with _locked(uri, ".lock", fcntl.LOCK_SH if shared else fcntl.LOCK_EX, table, timeout):
        yield


@dataclass(frozen=True)
class Unfinished:
    """That a table is being created, where the lock is: it outlives a creator that dies, or whose write fails.

    `descriptor` None: an object store, which tells nothing.
    """

    descriptor: int | None

    @property
    def is_noted(self) -> bool:
        """Whether somebody began to create the table, and did not end it."""
        return self.descriptor is not None and os.fstat(self.descriptor).st_size > 0

    def note(self) -> None:
        """The caller begins."""
        if self.descriptor is not None and not self.is_noted:
            os.write(self.descriptor, b"unfinished")

    def forget(self) -> None:
        """The table is there."""
        if self.descriptor is not None:
            os.ftruncate(self.descriptor, 0)


@contextmanager
def creation_lock(uri: str, *, table: str, timeout: float = 1800) -> Iterator[Unfinished]:
    """Hold the right to create the table: one at a time, also among those who write it together. Else as `commit_lock`.

    Taken while the commit lock is held, never the other way round. Who creates it with its first rows holds it until they
    are written.
    """
    with _locked(uri, ".creation.lock", fcntl.LOCK_EX, table, timeout) as descriptor:
        yield Unfinished(descriptor)


def local_folder(uri: str) -> Path | None:
    """The table's folder on a local disk, or None for object stores."""
    if "://" in uri and not uri.startswith("file://"):
        return None
    return Path(uri.removeprefix("file://").removeprefix("file:"))


@contextmanager
def _locked(uri: str, suffix: str, kind: int, table: str, timeout: float) -> Iterator[int | None]:
    folder = local_folder(uri)
    if folder is None:
        yield None
        return
    path = folder.parent / f".{folder.name}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        _acquire(handle.fileno(), kind, table, timeout)
        yield handle.fileno()


def _acquire(descriptor: int, kind: int, table: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TableBusy(table, timeout) from None
            time.sleep(0.05)
        else:
            return
