"""Dagster's event log in SQLite, for many events in a row: a run over a month of hours tells thousands.

Dagster makes a new SQLAlchemy engine for every event that it stores, which forgets how its statements are compiled, and a
verdict of a check opens the index three times, each time with its own commit and, as nobody else has the file open, with all
that SQLite tidies up behind the last one. Here the engine of a file is kept, what the index has of one event is one
transaction, and a connection to the index stays open, as does one to the log of a run in the process that executes it, from its
first step to its end.
Events of an output's partitions come together, and are stored as one statement for each file: Dagster hands them over so where
the environment has `DAGSTER_EVENT_BATCH_SIZE`, which is set here where nobody has.
Everything else is Dagster's own: files, tables, migrations, one lock. Who follows a run in the UI watches its file, which
changes by itself when the last connection to it is closed: it is touched after each event.

One thing is not as Dagster has it. The newest verdict of a check is the one that was given last, and not that of the run
that was made last: of two runs over one partition at once the second may end first, and then Dagster takes what is there
for never judged, so that all that waits for its gates waits for ever.

A commit reaches the disk with the next tidying up (`synchronous=NORMAL`): a process that is killed loses nothing that it has
told, and of events that come together it has told all or none; where the power fails, the last events may be missing, and what
is there is consistent.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakSet

from dagster import DagsterEventType, DagsterInstance, EventLogEntry
from sqlalchemy import create_engine, event, func, select
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import QueuePool

from de_resources.compat.event_log import (
    ASSET_EVENTS,
    INDEX_SHARD_NAME,
    SQLITE_BUSY_TIMEOUT_SECONDS,
    AssetCheckExecutionsTable,
    ConfigurableClassData,
    SqlEventLogStorageTable,
    SqliteEventLogStorage,
)

_KEPT = 64
"""Files whose engines are kept: one for each run at work, and the index of all."""


_BATCH_VARIABLE = "DAGSTER_EVENT_BATCH_SIZE"
_BATCH = 1000
"""Events that are stored together. One of a partition takes some kilobytes."""
_HELD_FROM = DagsterEventType.STEP_START
_HELD_UNTIL = (DagsterEventType.RUN_SUCCESS, DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELED)
_GIVEN = ("SUCCEEDED", "FAILED")
"""What a verdict may be: one that is only planned is none."""


class _Open(threading.local):
    """What the thread has open while it stores one event."""

    stack: ExitStack | None = None
    index: Connection | None = None


class SqliteEventLog(SqliteEventLogStorage):
    """The event log of `dagster.yaml`, in Dagster's own place: `history/runs` in the folder of the instance."""

    def __init__(self, base_dir: str | None = None, inst_data: ConfigurableClassData | None = None) -> None:
        """Without a folder it lies in that of the instance, which Dagster tells by `register_instance`."""
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        self._inst_data = inst_data
        self._mine = _Open()
        self._held: dict[str, None] = {}  # in the order in which they were taken
        self._tables: set[str] = set()
        self._empty_log: bytes | None = None
        _logs.add(self)
        if base_dir is not None:
            self._open(base_dir)

    def _open(self, base_dir: str) -> None:
        super().__init__(base_dir, self._inst_data)
        # One that a thread may take again: what belongs to one event is stored under it.
        self._db_lock = threading.RLock()  # type: ignore[assignment]

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
            self._open(str(Path(instance.root_directory, "history", "runs")))
        os.environ.setdefault(_BATCH_VARIABLE, str(_BATCH))
        super().register_instance(instance)

    def store_event(self, event: EventLogEntry) -> None:
        """As Dagster does: into the log of its run, and then, in one transaction, all that the index has of it."""
        kind = event.dagster_event_type if event.is_dagster_event else None
        if kind == _HELD_FROM:
            with self._db_lock:
                self._hold(event.run_id)
        with ExitStack() as stack:
            self._mine.stack = stack
            try:
                super().store_event(event)
            finally:
                self._mine.stack = self._mine.index = None
        if kind in _HELD_UNTIL:
            with self._db_lock:
                self._close(event.run_id)
        self._touch(event.run_id)

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """As `store_event` of each in turn; those of assets, one after the other, in one transaction for each file."""
        for (run_id, kind), alike in groupby(events, lambda each: (each.run_id, each.dagster_event_type)):
            if kind in ASSET_EVENTS:
                self._store_asset_events(run_id, list(alike))
            else:
                super().store_event_batch(list(alike))

    def _store_asset_events(self, run_id: str, events: Sequence[EventLogEntry]) -> None:
        """Of one run and one kind, so that only the last one of an asset changes what is known of the asset."""
        table = SqlEventLogStorageTable
        rows = [self._event_to_row(each) for each in events]
        with self.run_connection(run_id) as log:
            log.execute(table.insert(), rows)
        with self.index_transaction() as index:
            index.execute(table.insert(), rows)
            # Nobody else writes before this transaction ends: they are the newest.
            newest = index.execute(select(func.max(table.c.id))).scalar_one()
            numbered = dict(enumerate(events, newest - len(events) + 1))
            self._store_asset_event_tags(index, list(numbered.values()), list(numbered))
            last = {each.get_dagster_event().asset_key: number for number, each in numbered.items()}
            for number in last.values():
                self._store_asset_event(index, numbered[number], number)
        self._touch(run_id)

    def _touch(self, run_id: str) -> None:
        with suppress(FileNotFoundError):  # a run that was deleted meanwhile
            os.utime(self.path_for_shard(run_id))

    def _update_asset_check_evaluation(self, event: EventLogEntry, event_id: int | None) -> None:
        """As Dagster does; then the verdict goes behind those that runs have given before it which were made after its own."""
        super()._update_asset_check_evaluation(event, event_id)
        rows, own = AssetCheckExecutionsTable, event.get_dagster_event().asset_check_evaluation_data
        of_partition = rows.c.partition.is_(None) if own.partition is None else rows.c.partition == own.partition
        same = (rows.c.asset_key == own.asset_key.to_string()) & (rows.c.check_name == own.check_name) & of_partition
        with self.index_connection() as connection:
            given = same & rows.c.execution_status.in_(_GIVEN)
            newest = connection.execute(select(rows.c.run_id).where(given).order_by(rows.c.id.desc()).limit(1)).scalar()
            if newest != event.run_id:
                behind = (connection.scalar(select(func.max(rows.c.id))) or 0) + 1
                connection.execute(rows.update().where(same & (rows.c.run_id == event.run_id)).values(id=behind))

    def has_table(self, table_name: str) -> bool:
        """Whether the index has the table. Tables come by migrations, and never go."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables

    def dispose(self) -> None:
        """Close what is held open. A log that is used again afterwards opens it again."""
        self.let_go()
        super().dispose()

    def wipe(self) -> None:
        """As Dagster does, which removes the files."""
        self.let_go()
        super().wipe()

    def let_go(self) -> None:
        """Close what is only held open: SQLite's connections may not be taken over into a fork."""
        for shard in list(self._held):
            self._close(shard)

    def _hold(self, shard: str) -> None:
        """From its next use on, leave the file open: SQLite tidies up behind its last connection. For whoever has the lock."""
        self._held[shard] = None
        if len(self._held) > _KEPT:
            self._close(next(each for each in self._held if each not in (INDEX_SHARD_NAME, shard)))

    def _close(self, shard: str) -> None:
        self._held.pop(shard, None)
        if shard in self._engines:
            self._engines[shard].dispose()

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        if shard != INDEX_SHARD_NAME or self._mine.stack is None:
            with self._connected(shard) as connection:
                yield connection
            return
        if self._mine.index is None:
            self._mine.index = self._mine.stack.enter_context(self._connected(shard))
        yield self._mine.index

    @contextmanager
    def _connected(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:
            engine = self._engine(shard)
            if shard not in self._initialized_dbs:
                self._initdb(engine, for_index_shard=shard == INDEX_SHARD_NAME)
                self._initialized_dbs.add(shard)
            if shard == INDEX_SHARD_NAME:
                self._hold(shard)
            try:
                with engine.connect() as connection, connection.begin():
                    yield connection
            finally:
                if shard not in self._held:
                    engine.dispose()

    def _engine(self, shard: str) -> Engine:
        engine = self._engines.pop(shard, None) or _new_engine(self.conn_string_for_shard(shard))
        self._engines[shard] = engine
        if len(self._engines) > _KEPT:
            self._engines.popitem(last=False)[1].dispose()
        return engine

    def _initdb(self, engine: Engine, for_index_shard: bool = False) -> None:
        """Tables of a new file. Of the log of a run, which every run has, they are made once and then copied."""
        file = Path(str(engine.url.database))
        if not for_index_shard and not file.exists():
            # Complete before it has its name, which another process may give to its own at the same moment.
            made = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}")
            made.write_bytes(self._empty())
            try:
                os.link(made, file)
            except OSError:  # There by now, or no links on this file system: looked after as ever.
                super()._initdb(engine)
            finally:
                made.unlink()
        else:
            super()._initdb(engine, for_index_shard)

    def _empty(self) -> bytes:
        """A log of a run without events, made where nobody else writes into it."""
        if self._empty_log is None:
            with TemporaryDirectory() as folder:
                file = Path(folder, "empty.db")
                engine = _new_engine(f"sqlite:///{file}")
                super()._initdb(engine)
                engine.dispose()  # behind which all of it is in the one file
                self._empty_log = file.read_bytes()
        return self._empty_log


def _new_engine(url: str) -> Engine:
    """An engine whose connections stay open until it is disposed of: one, as a rule, for whoever has the lock."""
    engine = create_engine(url, poolclass=QueuePool, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS})
    event.listen(engine, "connect", _without_waiting_for_the_disk)
    return engine


def _without_waiting_for_the_disk(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")


_logs: WeakSet[SqliteEventLog] = WeakSet()


def _let_go() -> None:
    for log in list(_logs):
        log.let_go()


os.register_at_fork(before=_let_go)
