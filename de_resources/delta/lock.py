"""One writer process at a time per table, where the storage cannot arbitrate.

Delta's default log store on a local disk checks for the next version and then renames, so that two processes can both
believe they committed it. An advisory `flock` per table closes the gap: engines of their own (a classic session in each
run worker) take it exclusively; the shared engine, inside which Delta arbitrates, takes it shared, so that its writers
do not wait for each other but never overlap with a foreign process. Object stores need no lock.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from de_resources.errors import TransientError


class TableBusy(TransientError):
    """Another process holds the table's commit lock for too long."""

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
    if "://" in uri and not uri.startswith("file://"):
        yield
        return
    folder = Path(uri.removeprefix("file://").removeprefix("file:"))
    path = folder.parent / f".{folder.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        _acquire(handle.fileno(), fcntl.LOCK_SH if shared else fcntl.LOCK_EX, table, timeout)
        yield


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
