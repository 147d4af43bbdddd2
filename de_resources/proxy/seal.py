"""Making a version immutable where it lies, so that the store refuses and not good manners.

Two locks. The table property `delta.appendOnly` makes every Delta engine refuse to change, overwrite or delete rows,
whoever asks. Files and folders lose their write permission, so that nobody but root can append, drop or replace either,
the owner included. What root forces in nevertheless is not read: manifests name the version of the log. On object stores
the counterpart is object lock; here versions lie on a disk.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from deltalake import DeltaTable

from de_resources.proxy.store import READ_ONLY

_PROPERTY = "delta.appendOnly"
_CLOSED, _OPEN = 0o555, 0o755


def make_immutable(folder: Path) -> int:
    """Close the table for good; returns the version of its log that is complete. Sealing again changes nothing."""
    table = DeltaTable(folder)
    if table.metadata().configuration.get(_PROPERTY) != "true":
        table.alter.set_table_properties({_PROPERTY: "true"})
        table = DeltaTable(folder)
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            (Path(place) / name).chmod(READ_ONLY)
        Path(place).chmod(_CLOSED)
    return table.version()


def remove(folder: Path) -> None:
    """Take a version away, sealed or not. What was removed halfway can be removed again."""
    if not folder.exists():
        return
    for place, _, _ in os.walk(folder):
        Path(place).chmod(_OPEN)
    shutil.rmtree(folder)
