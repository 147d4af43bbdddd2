"""Frames as weekly views of PostgreSQL: the IO manager of the *Fast Metadata Cleaner*.

    resources={"weekly_tables": WeeklyTables(database=PostgresDatabase(), spark=SparkEngine())}

An asset has `dg.WeeklyPartitionsDefinition` with weeks from Monday (`day_offset=1`), a `contract` in its metadata, whose
`partitioned_by` is the column with the day, and one run per week. Its key `layer/name` becomes the view `layer.name`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import dagster as dg
import pyspark.sql.types as T
from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_resources.contract import Contract
from de_resources.delta.write.crash_points import crash_point
from de_resources.errors import PermanentError
from de_resources.iso_week import Week
from de_resources.lineage.inputs import read_as
from de_resources.lineage.record import lineage_metadata
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.transaction import Relation
from de_resources.postgres.view_swap import LockWait
from de_resources.postgres.weekly.view import WeeklyView
from de_resources.postgres.weekly.write import write_week
from de_resources.spark import SparkEngine
from de_resources.sql.identifiers import identifier

# To the microsecond and with its offset: unambiguous in whatever zone the server, the engine or this process is.
_MOMENT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"

_PARTITION_TAGS = ("dagster/partition", "dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


class NotWeekly(PermanentError):
    """An asset or a run that does not write one whole week."""

    def __init__(self, asset: str, why: str) -> None:
        self.asset, self.why = asset, why
        super().__init__(f"`{asset}` is kept by week: {why}. Nothing was written.")


class WeeklyTables(dg.ConfigurableIOManager):
    """Writes a week of a frame as a table behind the asset's view; a rerun replaces it.

    Rows go from the engine to the database through this process, as a stream.
    """

    services: ClassVar[tuple[str, ...]] = PostgresDatabase.services

    database: dg.ResourceDependency[PostgresDatabase]
    spark: dg.ResourceDependency[SparkEngine]
    patience_seconds: float = Field(default=60, gt=0, description="How long to try to swap a view that is being read.")

    def handle_output(self, context: dg.OutputContext, obj: DataFrame) -> None:
        """Write and record. Raises `NotWeekly`, `NotAWeek`, and what `write_week` raises."""
        view = view_of(context.definition_metadata or {})
        week = week_of(context)
        patience = LockWait(total_seconds=self.patience_seconds)
        with self.spark.watched():
            rows = _copyable(obj, view)
            done = write_week(self.database, view, week, rows, run_id=context.run_id, patience=patience)
        graph = context.step_context.job_def.asset_layer.asset_graph
        context.add_output_metadata(
            {
                "dagster/table_name": view.name,
                "dagster/partition_row_count": done.rows,
                "week": str(week),
                "weekly/table": done.table,
                "weekly/load_seconds": round(done.load_seconds, 3),
                "weekly/swap_seconds": round(done.swap_seconds, 3),
                "weekly/swap_attempts": done.attempts,
                **lineage_metadata(context, obj.select(*map(identifier, view.declared)), context.asset_key, graph),
                **self.database.description(),
            }
        )
        crash_point("recorded", view.name)

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """The view's rows of the weeks that the partition mapping names, or all of them; lazily, by JDBC."""
        assert context.upstream_output is not None  # noqa: S101 - an IO manager reads what it wrote
        view = view_of(context.upstream_output.definition_metadata or {})
        stored = self.spark.spark_session.read.format("jdbc").options(**self.database.jdbc_options(view.name)).load()
        frame = read_as(stored, context.asset_key)
        if not context.has_asset_partitions:
            return frame
        day = F.col(identifier(view.relation.slice_column))
        weeks = [Week.of_key(key) for key in context.asset_partition_keys]
        wanted = F.lit(False)
        for week in weeks:
            wanted = wanted | ((day >= F.lit(week.start)) & (day < F.lit(week.end)))
        return frame.where(wanted)


def view_of(metadata: Mapping[str, Any]) -> WeeklyView:
    """The view of an asset with this metadata. Raises `NotByWeek`, and `NotWeekly` for one without a contract."""
    if not metadata.get("contract"):
        raise NotWeekly(str(metadata.get("dagster/table_name", "the asset")), "its metadata has no `contract`")
    return WeeklyView(Relation.of(Contract.load(metadata["contract"])))


def week_of(context: dg.OutputContext) -> Week:
    """The week of a run. Raises `NotWeekly` for several, and `NotAWeek` for a part of one."""
    asset = context.asset_key.to_user_string()
    if not context.has_asset_partitions:
        raise NotWeekly(asset, "it has no partitions. Give it `dg.WeeklyPartitionsDefinition(..., day_offset=1)`")
    keys, partitions = list(context.asset_partition_keys), context.asset_partitions_def
    if len(keys) != 1:
        raise NotWeekly(asset, f"this run has {len(keys)} weeks. Backfill it with one run per week")
    # Dagster takes a run that names another day by its tag for one of the week after it.
    for key in _named(context.step_context.dagster_run.tags):
        Week.of_key(key)
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        raise NotWeekly(asset, f"its partitions are {type(partitions).__name__}. Give it weekly ones from Monday")
    window = partitions.time_window_for_partition_key(keys[0])
    return Week.of_window(window.start, window.end)


def _named(tags: Mapping[str, str]) -> list[str]:
    """The partition keys that a run was started with, as they were written."""
    return [tags[name] for name in _PARTITION_TAGS if name in tags]


def _copyable(frame: DataFrame, view: WeeklyView) -> Iterator[tuple[Any, ...]]:
    """The declared columns of all rows, task by task of the engine; computed when the first one is asked for."""
    moments = {field.name for field in frame.schema.fields if isinstance(field.dataType, T.TimestampType)}
    own = {name: F.col(identifier(name)) for name in view.declared}
    columns = [F.date_format(at, _MOMENT).alias(name) if name in moments else at for name, at in own.items()]
    yield from frame.select(*columns).toLocalIterator()
