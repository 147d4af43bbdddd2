"""The event log's storage in SQLite."""

from dagster._core.events import ASSET_EVENTS
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData

__all__ = [
    "ASSET_EVENTS",
    "INDEX_SHARD_NAME",
    "SQLITE_BUSY_TIMEOUT_SECONDS",
    "AssetCheckExecutionsTable",
    "ConfigurableClassData",
    "SqlEventLogStorageTable",
    "SqliteEventLogStorage",
]
