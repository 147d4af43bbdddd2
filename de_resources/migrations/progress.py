"""How far a migration has got, as the table says it: its columns, and one property.

Which sides are stored is told by the columns alone, so that no word can disagree with what a writer must fill. The property
`de.migration.<name>` adds what columns cannot say. Both lie in the table, and not in code or in the orchestrator: every
writer and reader sees one truth, whatever version of the code it runs. Read from the log, without a JVM.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from de_resources.delta.log import TableLog
from de_resources.errors import PermanentError
from de_resources.migrations.migration import Migration, Sides


class Phase(StrEnum):
    """What has been done. Each step leads to the next phase, and a rollback to the one before."""

    NOT_STARTED = "not_started"
    EXPANDED = "expanded"
    MIGRATED = "migrated"
    CONTRACTED = "contracted"


class Unfit(PermanentError):
    """A table that has not the columns which a migration is about."""

    def __init__(self, table: str, migration: str, why: str) -> None:
        self.table, self.migration, self.why = table, migration, why
        super().__init__(f"The migration `{migration}` does not fit `{table}`: {why}. Nothing was changed.")


@dataclass(frozen=True)
class MigrationProgress:
    """The phase of a migration, and what a writer has to fill."""

    phase: Phase
    sides: Sides


def progress_of(log: TableLog, table: str, migration: Migration) -> MigrationProgress:
    """Where the table is. A step that died half-way counts as not done, and what is stored is filled. Raises `Unfit`."""
    names = {f.name for f in log.table.schema().fields}
    said = log.table.metadata().configuration.get(migration.property_name)
    has_old, has_new = names.issuperset(migration.old_names), names.issuperset(migration.new_names)
    if not migration.new:
        return _of_removal(said, has_old=has_old)
    if has_old and has_new:
        return MigrationProgress(Phase.MIGRATED if said == Phase.MIGRATED else Phase.EXPANDED, Sides.BOTH)
    if has_old == has_new:
        lacking = [n for n in (*migration.old_names, *migration.new_names) if n not in names]
        raise Unfit(table, migration.name, f"it has neither side whole and lacks {', '.join(lacking)}")
    return (
        MigrationProgress(Phase.NOT_STARTED, Sides.OLD) if has_old else MigrationProgress(Phase.CONTRACTED, Sides.NEW)
    )


def _of_removal(said: str | None, *, has_old: bool) -> MigrationProgress:
    """Of columns that go without a successor, only the property tells that writers may leave them out."""
    if not has_old:
        return MigrationProgress(Phase.CONTRACTED, Sides.NEW)
    if said in (Phase.EXPANDED, Phase.MIGRATED):
        return MigrationProgress(Phase(said), Sides.BOTH)
    return MigrationProgress(Phase.NOT_STARTED, Sides.OLD)
