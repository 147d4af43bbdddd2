"""What is done now and then to datasets that the database keeps by week. Pattern: Fast Metadata Cleaner.

Three jobs, started by hand: `freeze_weeks` puts closed weeks into one table, `thaw_week` takes one out again, and
`add_week_columns` adds what the contract has and the tables do not. None of them changes a row that readers see.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from de_assets.automation.maintenance.lake_tables import UnknownTable
from de_assets.dataset import pattern_tags
from de_assets.partitions import calendar_now
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.weekly import Moved, Week, WeeklyView, add_columns, freeze, thaw
from de_resources.postgres.weekly.io_manager import view_of
from de_resources.retries import RETRY_TRANSIENT

BY_WEEK = "weekly_tables"
"""The IO manager that keeps datasets by week."""


class FreezeConfig(dg.Config):
    """Which weeks are closed for good."""

    keep_weeks: int = Field(default=4, ge=0, description="The newest closed weeks that keep tables of their own.")
    tables: list[str] = Field(default=[], description="Asset keys such as `serving/weekly_visits`; none: all.")


class ThawConfig(dg.Config):
    """Which week is to be corrected."""

    table: str = Field(description="Asset key, such as `serving/weekly_visits`.")
    week: str = Field(description="Its Monday, such as 2024-10-07.")


class ColumnsConfig(dg.Config):
    """Which datasets get their new columns."""

    tables: list[str] = Field(default=[], description="Asset keys such as `serving/weekly_visits`; none: all.")


def week_jobs(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> list[dg.JobDefinition]:
    """The jobs over the datasets among `assets` that are kept by week. They refuse unknown names."""
    specs = _by_week(assets)

    @dg.op(out=dg.Out(dg.Nothing), description="Puts closed weeks into one table per dataset.")
    def freeze_closed_weeks(
        context: dg.OpExecutionContext, config: FreezeConfig, database: PostgresDatabase
    ) -> dg.Output[None]:
        before = closed_before(config.keep_weeks)
        moved = _each(specs, config.tables, lambda view: _told(freeze(database, view, before)))
        return _reported(context, specs, moved, {"before": str(before)})

    @dg.op(out=dg.Out(dg.Nothing), description="Gives one frozen week a table of its own.")
    def thaw_one_week(
        context: dg.OpExecutionContext, config: ThawConfig, database: PostgresDatabase
    ) -> dg.Output[None]:
        week = Week.of_key(config.week)
        moved = _each(specs, [config.table], lambda view: _told(thaw(database, view, week)))
        return _reported(context, specs, moved, {})

    @dg.op(out=dg.Out(dg.Nothing), description="Adds declared columns to the tables of all weeks.")
    def add_declared_columns(
        context: dg.OpExecutionContext, config: ColumnsConfig, database: PostgresDatabase
    ) -> dg.Output[None]:
        def added(view: WeeklyView) -> dict[str, Any]:
            return {"weekly/columns_added": ", ".join(add_columns(database, view)) or "none"}

        return _reported(context, specs, _each(specs, config.tables, added), {})

    tags = pattern_tags("fast_metadata_cleaner")

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name="freeze_weeks",
        tags=tags,
        description="Puts closed weeks of the database into one table.",
    )
    def freeze_weeks() -> None:
        freeze_closed_weeks()

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name="thaw_week",
        tags=tags,
        description="Takes a frozen week out, so that it can be run again.",
    )
    def thaw_week() -> None:
        thaw_one_week()

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name="add_week_columns",
        tags=tags,
        description="Adds new optional columns to all weeks of a dataset.",
    )
    def add_week_columns() -> None:
        add_declared_columns()

    return [freeze_weeks, thaw_week, add_week_columns]


def closed_before(keep_weeks: int) -> Week:
    """The first week that is not frozen: the one in which the calendar is, or one of `keep_weeks` before it."""
    return Week.of(calendar_now().date() - timedelta(weeks=keep_weeks))


def _by_week(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> dict[str, dg.AssetSpec]:
    return {
        spec.key.to_user_string(): spec
        for definition in assets
        if isinstance(definition, dg.AssetsDefinition)
        for spec in definition.specs
        if definition.get_io_manager_key_for_asset_key(spec.key) == BY_WEEK
    }


def _each(
    specs: Mapping[str, dg.AssetSpec], names: Sequence[str], work: Callable[[WeeklyView], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    unknown = [name for name in names if name not in specs]
    if unknown:
        raise UnknownTable(unknown[0], list(specs))
    return {name: work(view_of(specs[name].metadata)) for name in names or specs}


def _told(moved: Moved) -> dict[str, Any]:
    return {
        "weekly/moved": ", ".join(map(str, moved.weeks)) or "none",
        "weekly/weeks_moved": len(moved.weeks),
        "weekly/rows_copied": moved.rows,
    }


def _reported(
    context: dg.OpExecutionContext,
    specs: Mapping[str, dg.AssetSpec],
    done: Mapping[str, dict[str, Any]],
    metadata: dict[str, Any],
) -> dg.Output[None]:
    """On the page of each dataset, and in the output of the step."""
    for name, told in done.items():
        context.log.info("%s: %s", name, told)
        context.log_event(dg.AssetObservation(asset_key=specs[name].key, metadata=told))
    return dg.Output(None, metadata={**metadata, **{f"{n}: {key}": v for n, t in done.items() for key, v in t.items()}})
