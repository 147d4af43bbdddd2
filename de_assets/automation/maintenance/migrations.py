"""The job `migrate_table`: take one step of a migration, from the UI or by `de migrate`.

Pattern: Schema Migrator - the steps as a person starts them, with the lineage of the instance as the guard of the last one.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from de_assets.automation.maintenance.lake_tables import LakeTables, stamp_for
from de_assets.dataset import pattern_tags
from de_resources.errors import PermanentError
from de_resources.lake import Lake
from de_resources.migrations.migration import Migration, migrations_of
from de_resources.migrations.progress import Phase
from de_resources.retries import RETRY_TRANSIENT

if TYPE_CHECKING:
    from de_resources.migrations.readers import ColumnReader
    from de_resources.migrations.steps import Migrator
    from de_resources.migrations.steps import StepResult as Done

JOB = "migrate_table"


class StepAsked(Enum):
    """What a person can ask for."""

    EXPAND = "expand"
    MIGRATE = "migrate"
    CONTRACT = "contract"
    ROLLBACK = "rollback"


class UnknownMigration(PermanentError):
    """A migration that the table's asset does not name."""

    def __init__(self, table: str, name: str, known: Sequence[str]) -> None:
        self.table, self.name, self.known = table, name, tuple(known)
        super().__init__(f"`{table}` names no migration `{name[:80]}`. There are: {', '.join(known) or 'none'}.")


class MigrationConfig(dg.Config):
    """Which table, which of its migrations, and the step to take."""

    table: str = Field(description="The asset key, such as `silver/devices`.")
    migration: str = Field(description="The name of the migration, as its declaration says it.")
    step: StepAsked = Field(description="`expand`, `migrate`, `contract`, or `rollback` to the phase before.")
    at_most: int | None = Field(default=None, gt=0, description="Fill at most so many partitions, then stop.")
    accept_loss: str = Field(
        default="", description="Contract although values are lost: the reason, for the run's log."
    )
    cleared: list[str] = Field(
        default=[], description="Assets without lineage of which you know that they do not read."
    )
    lock_seconds: float = Field(default=60, ge=0, description="How long to wait for writers of the table.")


def migration_job(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> dg.JobDefinition:
    """The job over the tables among `assets` that name migrations.

    Refuses unknown tables and migrations, and what the step refuses. Who reads a column is asked of the lineage that all assets
    have recorded in this instance; `cleared` leaves out those that have recorded none, and nobody of whom it is known that he
    reads. The contract of the asset counts as well: as long as it declares a column, that column does not go.
    """
    tables = LakeTables.of(assets)
    downstream = _downstream(assets)

    @dg.op(out=dg.Out(dg.Nothing), description="Takes one step of one migration.")
    def take_step(context: dg.OpExecutionContext, config: MigrationConfig, lake: Lake) -> dg.Output[None]:
        # Here and not above: every start of a code server would load them.
        from de_resources.migrations.readers import ColumnReader, readers_of
        from de_resources.migrations.steps import Migrator, StillRead

        spec = tables.named(config.table)
        migration = _named(spec, config.migration)
        table = lake.table(spec.key, spec.metadata)
        stamp = stamp_for(context.run, table.name, JOB)
        migrator = Migrator(lake.spark.spark_session, table, migration, stamp, config.lock_seconds)

        def readers(columns: Sequence[str]) -> "list[ColumnReader]":
            found = readers_of(context.instance, spec.key, columns, downstream.get(spec.key, ()))
            declared = sorted(set(columns) & set(table.contract.column_names if table.contract else ()))
            if declared:
                raise StillRead(
                    table.name, columns, [ColumnReader(f"the contract of {config.table}", tuple(declared)), *found]
                )
            return [r for r in found if r.columns or r.asset not in config.cleared]

        if config.accept_loss:
            context.log.warning("%s: a loss is accepted: %s", config.table, config.accept_loss)
        done = _take(migrator, config, readers)
        context.log.info("%s, %s: %s", config.table, migration.name, done.done)
        return dg.Output(None, metadata=_told(done))

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name=JOB,
        tags=pattern_tags("schema_migrator"),
        description="Takes one step of a migration of a table's columns: expand, migrate, contract, or back.",
    )
    def job() -> None:
        take_step()

    return job


def _take(migrator: "Migrator", config: MigrationConfig, readers: Any) -> "Done":
    migration = migrator.migration
    match config.step:
        case StepAsked.EXPAND:
            return migrator.expand()
        case StepAsked.MIGRATE:
            return migrator.backfill(config.at_most)
        case StepAsked.CONTRACT:
            done = migrator.progress().phase is Phase.CONTRACTED
            return migrator.contract([] if done else readers(migration.old_names), accept_loss=bool(config.accept_loss))
        case StepAsked.ROLLBACK:
            drops = migrator.progress().phase is Phase.EXPANDED and migration.new
            return migrator.rollback(readers(migration.new_names) if drops else [])


def _told(done: "Done") -> Mapping[str, Any]:
    told: dict[str, Any] = {"migration/phase": str(done.phase), "migration/done": done.done, "commits": done.commits}
    if done.measured is not None:
        told |= {"rows": done.measured.rows, "migration/pending": done.measured.pending}
    return told


def _named(spec: dg.AssetSpec, name: str) -> Migration:
    known = {m.name: m for m in migrations_of(spec.metadata)}
    if name not in known:
        raise UnknownMigration(spec.key.to_user_string(), name, sorted(known))
    return known[name]


def _downstream(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> Mapping[dg.AssetKey, set[dg.AssetKey]]:
    """Who depends on each asset."""
    found: dict[dg.AssetKey, set[dg.AssetKey]] = {}
    for definition in assets:
        parts = [definition] if isinstance(definition, dg.AssetSpec) else list(definition.specs)
        for spec in parts:
            for dep in spec.deps:
                found.setdefault(dep.asset_key, set()).add(spec.key)
    return found
