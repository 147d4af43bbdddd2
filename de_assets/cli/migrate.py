"""`de migrate`: where the migrations of the tables are, and one step of one of them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from de_assets.cli.terminal import console, explained
from de_resources.errors import PermanentError, PlatformError
from de_resources.settings import Settings

if TYPE_CHECKING:
    import dagster as dg


class StepName(StrEnum):
    """The steps as the job knows them, by the same names; it is loaded when one is taken."""

    EXPAND = "expand"
    MIGRATE = "migrate"
    CONTRACT = "contract"
    ROLLBACK = "rollback"


class WhichStep(PermanentError):
    """A table or a migration without the rest."""

    def __init__(self) -> None:
        super().__init__("Say all three: `de migrate TABLE MIGRATION STEP`. `de migrate` alone shows what there is.")


def migrate(
    table: Annotated[str, typer.Argument(help="The asset key, such as silver/devices.")] = "",
    migration: Annotated[str, typer.Argument(help="The name of the migration.")] = "",
    step: Annotated[
        StepName | None, typer.Argument(help="rollback leads to the phase before.", show_default=False)
    ] = None,
    at_most: Annotated[int, typer.Option(min=0, help="Fill at most so many partitions; 0: all.")] = 0,
    accept_loss: Annotated[str, typer.Option(help="Contract although values are lost: the reason.")] = "",
    cleared: Annotated[list[str] | None, typer.Option(help="An asset without lineage that does not read.")] = None,
) -> None:
    """Take one step of a migration of a table's columns, as the job `migrate_table` does; or show how far each has got."""
    with explained():
        if not table:
            console.print(_standing())
            return
        if not migration or step is None:
            raise WhichStep
        config: dict[str, Any] = {"table": table, "migration": migration, "step": step.name}
        config |= {"accept_loss": accept_loss, "cleared": cleared or []} | ({"at_most": at_most} if at_most else {})
        console.print(_taken(config), highlight=False)


def _standing() -> Table:
    """Every migration of the graph with its phase, from the tables' logs."""
    from de_assets.definitions import defs
    from de_resources.delta.log import TableLog
    from de_resources.migrations.migration import migrations_of
    from de_resources.migrations.progress import progress_of

    root = Settings.from_environment().lake_root
    shown = Table("table", "migration", "kind", "old", "new", "phase")
    for spec in sorted(defs.resolve_all_asset_specs(), key=lambda s: s.key):
        for migration in migrations_of(spec.metadata):
            name = spec.key.to_user_string()
            log = TableLog.open(f"{root}/{name}")
            phase = progress_of(log, name, migration).phase if log else "no table"
            sides = (", ".join(migration.old_names), ", ".join(migration.new_names) or "-")
            shown.add_row(name, migration.name, migration.kind, *sides, phase)
    return shown


def _taken(config: dict[str, Any]) -> str:
    """Run the job here, recorded in the instance like any other run; what was done, in a sentence."""
    from de_assets.automation.maintenance.migrations import JOB
    from de_assets.cli.own_words import own_words
    from de_assets.cli.run import dagster_instance
    from de_assets.definitions import defs
    from de_resources.spark import close_connections

    settings = Settings.from_environment()
    with own_words(settings), dagster_instance(settings) as instance:
        try:
            result = defs.resolve_job_def(JOB).execute_in_process(
                run_config={"ops": {"take_step": {"config": config}}}, instance=instance, raise_on_error=False
            )
        finally:
            close_connections()
    return _told(result)


def _told(result: dg.ExecuteInProcessResult) -> str:
    for event in result.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            raise StepRefused(error.cause.message if error and error.cause else str(error))
    (output,) = [e for e in result.all_events if e.is_successful_output]
    return str(output.step_output_data.metadata["migration/done"].value)


class StepRefused(PlatformError):
    """What the job said when it refused the step."""
