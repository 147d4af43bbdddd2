"""The other team's gold tables, as this location knows them: keys, a place, and the wish to hear of news."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster_delta import DeltaLakePyarrowIOManager
from dagster_delta.io_manager.base import DeltaLakeDbClient
from deltalake.exceptions import TableNotFoundError
from pydantic import Field

from de_resources.compat.io_manager import CustomDbIOManager
from de_resources.delta.log.table_log import TableLog
from de_resources.delta.read_versions import reads_of
from de_resources.errors import PermanentError
from de_resources.lineage.needs import needs

if TYPE_CHECKING:
    from de_resources.compat.graph import BuiltinAutomationCondition

VISITS_CUBE_DAILY = dg.AssetKey(["gold", "visits_cube_daily"])
SESSIONS = dg.AssetKey(["gold", "sessions"])

READER = "gold"
"""Key of the IO manager that reads the tables."""

CUBE_COLUMNS = {"event_date": "date", "grouping": "int", "visits": "bigint", "users": "bigint", "bot_visits": "bigint"}
SESSIONS_COLUMNS = {"event_date": "date"}
"""What is read of the two tables, and nothing else of them: producers are told who reads a column."""

tables = [
    dg.AssetSpec(
        key, description="Produced by another code location; read here as a whole.", metadata=needs(columns)
    ).with_io_manager_key(READER)
    for key, columns in ((VISITS_CUBE_DAILY, CUBE_COLUMNS), (SESSIONS, SESSIONS_COLUMNS))
]


class GoldMissing(PermanentError):
    """A gold table that is read before its producer ever wrote it."""

    def __init__(self, table: str, uri: str) -> None:
        self.table, self.uri = table, uri
        super().__init__(
            f"The gold table `{table}` does not exist under `{uri}`. Materialise it in the code location `de_assets`, "
            "or set `LAKE_ROOT` to the lake that has it."
        )


@dataclass(frozen=True)
class GoldTable:
    """A gold table as its log tells of it, without an engine."""

    name: str
    uri: str

    def log(self) -> TableLog | None:
        """Its log as of now, or None before it was written."""
        return TableLog.open(self.uri)

    def newest(self) -> tuple[int, str] | None:
        """Its version as of now, and its id."""
        log = self.log()
        return (log.version, str(log.table.metadata().id)) if log else None


class GoldTables(dg.ConfigurableResource):
    """Where the tables are."""

    root_uri: str = Field(description="Root of the lake: a folder.")

    def table(self, key: dg.AssetKey) -> GoldTable:
        """The table of one of the other team's assets."""
        return GoldTable(".".join(key.path), "/".join([self.root_uri, *key.path]))


class GoldReader(DeltaLakePyarrowIOManager):
    """Reads gold through delta-rs as `pyarrow.Table`, or as `pyarrow.RecordBatchReader` what may be large."""

    def create_io_manager(self, context: dg.InitResourceContext) -> CustomDbIOManager:  # noqa: ARG002
        """The reader for one run."""
        return _ReadOnlyTables(
            root_uri=self.root_uri,
            db_client=DeltaLakeDbClient(),
            database="deltalake",
            schema=self.schema_,
            type_handlers=self.type_handlers(),
            default_load_type=self.default_load_type(),
            io_manager_name="GoldReader",
        )


class _ReadOnlyTables(CustomDbIOManager):
    def __init__(self, *, root_uri: str, **configuration: Any) -> None:
        super().__init__(**configuration)
        self._root_uri = root_uri

    def load_input(self, context: dg.InputContext) -> object:
        root = logging.getLogger()
        level = root.level
        # Before it is read: what lands in between does not count as read.
        reads_of(context.step_context).note(GoldTables(root_uri=self._root_uri).table(context.asset_key))
        try:
            return super().load_input(context)
        except TableNotFoundError as error:
            raise GoldMissing(context.asset_key.to_user_string(), self._root_uri) from error
        finally:
            root.setLevel(level)  # dagster-delta turns debug messages on for the whole process

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:  # noqa: ARG002
        raise PermanentError(f"`{context.asset_key.to_user_string()}` belongs to another team: gold is only read here.")


def on_news() -> BuiltinAutomationCondition[Any]:
    """Request an unpartitioned dashboard when any partition of its tables was written, or when it was never made.

    The producer writes days, and several at a time; the dashboard is one document. So writes are collected: while a
    table is being written nothing is requested, and what came in the meantime makes one request. The latch is cleared
    by a request only: what is written during a run asks for another one.
    """
    ac = dg.AutomationCondition
    news = ac.any_deps_match(ac.newly_updated()) | ac.newly_missing()
    there = ac.all_deps_match(~ac.missing())  # some partition of each table
    return (news.since(ac.newly_requested()) & there & ~ac.any_deps_in_progress() & ~ac.in_progress()).with_label(
        "on_news"
    )
