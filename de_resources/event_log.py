"""Dagster's event log in SQLite, for many events in a row: a run over a month of hours tells thousands.

Dagster makes a new SQLAlchemy engine for every event that it stores, which forgets how its statements are compiled: most of an
event's time. Here the engine of a file is kept. Everything else is Dagster's own: files, tables, migrations, one lock, and a
connection that is opened and closed each time, so that nothing is left open when a process forks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster import DagsterInstance
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import NullPool

from de_resources.compat.event_log import SQLITE_BUSY_TIMEOUT_SECONDS, ConfigurableClassData, SqliteEventLogStorage

_KEPT = 64
"""Files whose engines are kept: one for each run at work, and the index of all."""


class SqliteEventLog(SqliteEventLogStorage):
    """The event log of `dagster.yaml`, in Dagster's own place: `history/runs` in the folder of the instance."""

    def __init__(self, base_dir: str | None = None, inst_data: ConfigurableClassData | None = None) -> None:
        """Without a folder it lies in that of the instance, which Dagster tells by `register_instance`."""
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        self._inst_data = inst_data
        if base_dir is not None:
            super().__init__(base_dir, inst_data)

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Nothing is configured."""
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> SqliteEventLog:
        """As Dagster calls it."""
        return cls(inst_data=inst_data, **config_value)

    def register_instance(self, instance: DagsterInstance) -> None:
        """As Dagster calls it, before anything else."""
        if not hasattr(self, "_base_dir"):
            super().__init__(str(Path(instance.root_directory, "history", "runs")), self._inst_data)
        super().register_instance(instance)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:
            engine = self._engine(shard)
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.connect() as connection, connection.begin():
                yield connection

    def _engine(self, shard: str) -> Engine:
        engine = self._engines.pop(shard, None) or create_engine(
            self.conn_string_for_shard(shard), poolclass=NullPool, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS}
        )
        self._engines[shard] = engine
        if len(self._engines) > _KEPT:
            self._engines.popitem(last=False)[1].dispose()
        return engine
