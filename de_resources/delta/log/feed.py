"""The change data feed of a table: which rows changed between two versions, and how. Pattern: Change Data Capture.

Every row comes with `_change_type` (insert, update_preimage, update_postimage, delete), `_commit_version` and
`_commit_timestamp`. A consumer that takes preimages for rows counts twice; `signed` says what to add and what to take away.

Source: Delta's change data feed (`delta.enableChangeDataFeed`).
"""

from __future__ import annotations

import time

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.delta.log import TableLog
from de_resources.delta.log.retention import retention_of
from de_resources.delta.log.versions import Folder
from de_resources.delta.table import Table
from de_resources.errors import PermanentError

PROPERTY = "delta.enableChangeDataFeed"
CHANGE_TYPE = "_change_type"
_ADDED, _REMOVED = ("insert", "update_postimage"), ("delete", "update_preimage")


class FeedUnavailable(PermanentError):
    """Changes that cannot be told any more, or that the table never kept."""

    def __init__(self, table: str, after: int, reason: str) -> None:
        self.table, self.after, self.reason = table, after, reason
        super().__init__(
            f"The changes of `{table}` after version {after} cannot be read: {reason}. Compute what follows from them again, "
            "from the whole table."
        )


def changes(session: SparkSession, table: Table, log: TableLog, after: int) -> DataFrame:
    """The changes of the versions after `after`, up to the one that `log` has. Lazy; the log is looked at at once.

    Raises `FeedUnavailable` where the feed is off, a commit is gone, or is older than the table's retention, after which a
    vacuum may have removed its files.
    """
    reason = _unavailable(log, after)
    if reason is not None:
        raise FeedUnavailable(table.name, after, reason)
    options = {"readChangeFeed": "true", "startingVersion": str(after + 1), "endingVersion": str(log.version)}
    return session.read.format("delta").options(**options).load(table.uri)


def signed() -> Column:
    """1 for a row that is there since its change, -1 for one that is not there any more."""
    kind = F.col(CHANGE_TYPE)
    return F.when(kind.isin(*_ADDED), 1).when(kind.isin(*_REMOVED), -1)


def _unavailable(log: TableLog, after: int) -> str | None:
    if log.table.metadata().configuration.get(PROPERTY) != "true":
        return f"`{PROPERTY}` is not set"
    if after >= log.version:
        return f"it has no later version than {log.version}"
    commits = Folder.of(log).commits
    gone = [version for version in range(after + 1, log.version + 1) if version not in commits]
    if gone:
        return f"the commit of version {gone[0]} is gone"
    if time.time() - commits[after + 1].modified > retention_of(log).total_seconds():
        return f"version {after + 1} is older than the table's retention"
    return None
