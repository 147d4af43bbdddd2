"""The steps of a migration, each taken by a person: expand, backfill, contract, and back.

| step       | the table gets                                       | refused while                                         |
|------------|------------------------------------------------------|-------------------------------------------------------|
| `expand`   | the new columns, nullable                            | it is stored by one of the columns, or types differ   |
| `backfill` | the missing side in old rows, partition by partition | rows say different things on both sides               |
| `contract` | rid of the old columns                               | rows disagree or would lose something, somebody reads |
| `rollback` | back to the phase before                             | it would lose what only the other side says           |

A step takes the table's lock for each of its commits, and nothing longer. One that was killed is taken again: what was done
is found done. The backfill is an `UPDATE`, which Delta checks against writers that know no lock; it changes no value that any
reader of the old columns sees.

Pattern: Schema Migrator. Source: Delta's `ALTER TABLE`, column mapping and its removal.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from de_resources.delta.log import TableLog
from de_resources.delta.maintenance.compaction import insist
from de_resources.delta.maintenance.statements import stamped
from de_resources.delta.table import CommitInfo, Table, TableMissing
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.lock import commit_lock
from de_resources.delta.write.refusals import explained
from de_resources.errors import PermanentError
from de_resources.migrations.measure import MeasuredSides, Partition, measure
from de_resources.migrations.migration import MigratedField, Migration
from de_resources.migrations.progress import MigrationProgress, Phase, Unfit, progress_of
from de_resources.migrations.readers import ColumnReader
from de_resources.sql.identifiers import column_texts, identifier, type_text
from de_resources.sql.literals import literal

_ATTEMPTS = 3
_MODE = "delta.columnMapping.mode"
_MAPPED = "de.migration.mapped"
"""Property of a table whose names are mapped only for the time in which a column is dropped."""


class WrongPhase(PermanentError):
    """A step that does not follow on the phase in which the migration is."""

    def __init__(self, table: str, migration: str, step: str, phase: Phase, do: str) -> None:
        self.table, self.migration, self.step, self.phase = table, migration, step, phase
        super().__init__(f"`{step}` of `{migration}` on `{table}`, which is {phase}: {do}. Nothing was changed.")


class SidesDiffer(PermanentError):
    """Rows whose two sides say different things: dropping either would lose something."""

    def __init__(self, table: str, migration: Migration, found: MeasuredSides) -> None:
        self.table, self.migration, self.pending, self.differing = table, migration.name, found.pending, found.differing
        sides = f"{', '.join(migration.old_names)} and {', '.join(migration.new_names)}"
        super().__init__(
            f"In `{table}` {sides} do not agree: {found.pending:,} row(s) are filled on one side only, and {found.differing:,} "
            "differ. No column was dropped. Take the step `migrate`, which fills the first kind; correct the second by an "
            "UPDATE, or set the side that is wrong to null and migrate: somebody writes around the platform."
        )


class WouldLose(PermanentError):
    """Values of the old columns that the new ones do not hold."""

    def __init__(self, table: str, migration: Migration, rows: int) -> None:
        self.table, self.migration, self.rows = table, migration.name, rows
        super().__init__(
            f"{rows:,} row(s) of `{table}` have values in {', '.join(migration.old_names)} that "
            f"{', '.join(migration.new_names)} cannot hold. Nothing was changed. Correct the rows, or say `accept_loss`."
        )


class StillRead(PermanentError):
    """Columns that cannot go, for somebody reads them or may do so."""

    def __init__(self, table: str, columns: Sequence[str], readers: Sequence[ColumnReader]) -> None:
        self.table, self.columns, self.readers = table, tuple(columns), tuple(readers)
        super().__init__(
            f"{', '.join(columns)} of `{table}` cannot be dropped: {'; '.join(r.told for r in readers)}. Nothing was changed. "
            "Change these assets and materialise them, so that their lineage says so; one without any can be `cleared`."
        )


class ValuesGone(PermanentError):
    """A rollback whose columns nothing says any more."""

    def __init__(self, table: str, migration: Migration) -> None:
        self.table, self.migration = table, migration.name
        super().__init__(
            f"{', '.join(migration.old_names)} of `{table}` were removed, and no other column holds their values. Nothing was "
            "changed. Versions of the table from before the contraction hold them as long as its retention says."
        )


@dataclass(frozen=True)
class StepResult:
    """What a step did. `phase` is the one after it; `done` says what for people, and `commits` counts the backfill's."""

    phase: Phase
    done: str
    commits: int = 0
    measured: MeasuredSides | None = None


@dataclass(frozen=True)
class Migrator:
    """The steps of one migration on one table, in the name of `stamp`.

    Every method raises `TableMissing`, `TableBusy`, `ConcurrentWrite`, `Unfit` and `WrongPhase` besides its own errors, before
    anything is changed. A rerun of a step that is done does nothing and says so.
    """

    session: SparkSession
    table: Table
    migration: Migration
    stamp: CommitInfo
    lock_seconds: float = 60

    def progress(self) -> MigrationProgress:
        """Where the table is."""
        return progress_of(self._log(), self.table.name, self.migration)

    def expand(self) -> StepResult:
        """Add the new columns. From this commit on every `DualWrite` fills both sides; old rows follow by `backfill`."""
        m = self.migration
        with self._alone():
            phase = self.progress().phase
            if phase is Phase.CONTRACTED:
                raise self._wrong("expand", phase, "it is over; `rollback` begins it again")
            if phase is not Phase.NOT_STARTED and self._property() is not None:
                return StepResult(phase, "The table stores both sides already.")
            self._require_fit()
            if phase is Phase.NOT_STARTED and m.new:
                self._add(m.new)
            crash_point("before_switch", self.table.name)
            self._say(Phase.EXPANDED)
        return StepResult(
            Phase.EXPANDED, f"Both sides are stored: {', '.join(m.new_names) or 'writers may leave the column out'}."
        )

    def backfill(self, at_most: int | None = None) -> StepResult:
        """Fill the side that is missing, one partition and commit at a time; `at_most` so many partitions, then stop.

        Writers get their turn between the partitions. Values that are there are never changed. When no row is pending any
        more the phase is `migrated`. Raises `SidesDiffer` for rows whose sides contradict each other, after all others are
        filled.
        """
        phase = self.progress().phase
        if phase not in (Phase.EXPANDED, Phase.MIGRATED):
            raise self._wrong(
                "migrate", phase, "take the step `expand` first" if phase is Phase.NOT_STARTED else "it is over"
            )
        found = measure(self.session, self.table, self.migration)
        pending = found.pending_in[:at_most]
        for values in pending:
            insist(partial(self._fill, values), _ATTEMPTS)
            crash_point("after_commit", self.table.name)
        commits = len(pending)
        if commits:  # writers had their turns meanwhile
            found = measure(self.session, self.table, self.migration)
        if found.pending:
            left = len(found.pending_in)
            return StepResult(
                Phase.EXPANDED, f"{found.pending:,} row(s) in {left} partition(s) are left.", commits, found
            )
        if found.differing:
            raise SidesDiffer(self.table.name, self.migration, found)
        if phase is not Phase.MIGRATED:
            with self._alone():
                self._say(Phase.MIGRATED)
        return StepResult(Phase.MIGRATED, f"All {found.rows:,} row(s) say the same on both sides.", commits, found)

    def contract(self, readers: Sequence[ColumnReader], *, accept_loss: bool = False) -> StepResult:
        """Drop the old columns. `readers` are those of the old columns (`readers_of`), but for whom a person has cleared.

        Raises `StillRead` where there is any, `SidesDiffer`, and `WouldLose` without `accept_loss`. Writers of the platform
        wait meanwhile; for a foreign one the column is dropped on the version whose rows were counted, or not at all.
        """
        with self._alone():
            phase = self.progress().phase
            if phase is Phase.CONTRACTED:
                self._unmap()
                return StepResult(phase, "The old columns are gone already.")
            if phase is not Phase.MIGRATED:
                raise self._wrong("contract", phase, "take the steps `expand` and `migrate` first")
            self._require_unread(self.migration.old_names, readers)
            found = self._require_agreement()
            if found.losing and not accept_loss:
                raise WouldLose(self.table.name, self.migration, found.losing)
            self._drop(self.migration.old_names, found)
        return StepResult(Phase.CONTRACTED, f"{', '.join(self.migration.old_names)} are dropped.", measured=found)

    def rollback(self, readers: Sequence[ColumnReader] = ()) -> StepResult:
        """Back to the phase before. `readers` are those of the new columns, which go when an expansion is taken back.

        From `contracted`: the old columns are added and computed from the new ones. One that was killed in between is refused
        (`SidesDiffer`) until the step `migrate` has filled what is left. Raises `ValuesGone` for a removal,
        `StillRead`, and `SidesDiffer` where only the new side says something.
        """
        phase = self.progress().phase
        if phase is Phase.CONTRACTED:
            return self._bring_back()
        if phase is Phase.NOT_STARTED and self.table.properties_now().keys().isdisjoint(self._left):
            return StepResult(phase, "Nothing had begun.")
        with self._alone():
            if phase is Phase.NOT_STARTED:
                self._unmap()  # a rollback died after it had dropped the columns
            elif phase is Phase.MIGRATED:
                self._say(Phase.EXPANDED)
                return StepResult(Phase.EXPANDED, "The table stores both sides, as before.")
            elif self.migration.new:
                # Old rows that were not filled yet lose nothing; what only the new side says would be lost.
                self._require_unread(self.migration.new_names, readers)
                self._drop(self.migration.new_names, self._require_agreement(both=False))
            self._forget()
        return StepResult(Phase.NOT_STARTED, "The table is as it was before the expansion.")

    @property
    def _left(self) -> set[str]:
        """The properties that a table has only while a migration is under way."""
        return {_MAPPED, self.migration.property_name}

    def _bring_back(self) -> StepResult:
        if not self.migration.new:
            raise ValuesGone(self.table.name, self.migration)
        with self._alone():
            self._unmap()
            # The word before the columns: who dies in between finds one side stored, and never both with one of them empty
            # in a table that says it is migrated.
            self._say(Phase.EXPANDED)
            crash_point("before_switch", self.table.name)
            self._add(self.migration.old)
        crash_point("after_switch", self.table.name)
        return self.backfill()

    def _require_agreement(self, *, both: bool = True) -> MeasuredSides:
        """Count, and refuse unless the old side says all that the new one does; with `both`, the other way round as well."""
        found = measure(self.session, self.table, self.migration)
        if found.differing or found.new_alone or (both and found.old_alone):
            raise SidesDiffer(self.table.name, self.migration, found)
        return found

    def _require_fit(self) -> None:
        m, schema = self.migration, self.table.read(self.session).schema
        physical = sorted(set(self._log().partition_columns()) & {*m.old_names, *m.new_names})
        if physical:
            raise Unfit(self.table.name, m.name, f"it is stored by {', '.join(physical)}, which cannot be dropped")
        half = [n for n in m.new_names if n in schema.names and not set(m.new_names) <= set(schema.names)]
        if half:
            raise Unfit(self.table.name, m.name, f"it has {', '.join(half)} already")
        for field in m.fields(self.progress().sides):
            if type_text(schema[field.name].dataType) != type_text(field.type):
                told = schema[field.name].dataType.simpleString()
                raise Unfit(self.table.name, m.name, f"`{field.name}` is {told} and not {field.type.simpleString()}")

    def _fill(self, values: Partition) -> None:
        m = self.migration
        sides = ((m.old, m.new_alone), (m.new, m.old_alone))
        assignments = ", ".join(
            f"{identifier(f.name)} = CASE WHEN {when} THEN {f.computed} ELSE {identifier(f.name)} END"
            for fields, when in sides
            for f in fields
        )
        pairs = zip(self._log().partition_columns(), values, strict=True)
        where = [f"{identifier(c)} <=> {'NULL' if v is None else literal(v)}" for c, v in pairs]
        where.append(f"({m.old_alone} OR {m.new_alone})")
        with self._alone():
            crash_point("before_commit", self.table.name)
            self._run(f"UPDATE {self.table.sql} SET {assignments} WHERE {' AND '.join(where)}")

    def _require_unread(self, columns: Sequence[str], readers: Sequence[ColumnReader]) -> None:
        if readers:
            raise StillRead(self.table.name, columns, readers)

    def _drop(self, columns: Sequence[str], found: MeasuredSides) -> None:
        if self._log().version != found.version:
            raise Unfit(self.table.name, self.migration.name, "somebody wrote around the platform meanwhile. Try again")
        alter = f"ALTER TABLE {self.table.sql}"
        if (self.table.properties_now().get(_MODE) or "none") == "none":
            # Without a mapping Delta can drop no column; a reader who knows no mapping is shut out until it is removed.
            self._run(f"{alter} SET TBLPROPERTIES ({literal(_MODE)} = 'name', {literal(_MAPPED)} = 'true')")
        crash_point("before_commit", self.table.name)
        self._run(f"{alter} DROP COLUMNS ({', '.join(map(identifier, columns))})")
        crash_point("after_commit", self.table.name)
        self._unmap()

    def _unmap(self) -> None:
        """Give the columns their plain names in the files again, where a drop has mapped them: the files are written again."""
        if self.table.properties_now().get(_MAPPED) is None:
            return
        alter = f"ALTER TABLE {self.table.sql}"
        self._run(f"{alter} SET TBLPROPERTIES ({literal(_MODE)} = 'none')", **{"columnMapping.allowRemoval": "true"})
        self._run(f"{alter} UNSET TBLPROPERTIES IF EXISTS ({literal(_MAPPED)})")

    def _add(self, fields: Sequence[MigratedField]) -> None:
        schema = StructType([StructField(f.name, f.type) for f in fields])
        texts = column_texts(schema, mapped=(self.table.properties_now().get(_MODE) or "none") != "none")
        self._run(f"ALTER TABLE {self.table.sql} ADD COLUMNS ({', '.join(texts.values())})")

    def _say(self, phase: Phase) -> None:
        name = literal(self.migration.property_name)
        self._run(f"ALTER TABLE {self.table.sql} SET TBLPROPERTIES ({name} = {literal(phase)})")

    def _forget(self) -> None:
        name = literal(self.migration.property_name)
        self._run(f"ALTER TABLE {self.table.sql} UNSET TBLPROPERTIES IF EXISTS ({name})")

    def _property(self) -> str | None:
        return self.table.properties_now().get(self.migration.property_name)

    def _run(self, statement: str, **options: str) -> None:
        with explained(self.table), stamped(self.session, self.stamp, **options) as own:
            own.sql(statement).collect()

    def _alone(self) -> AbstractContextManager[None]:
        return commit_lock(self.table.uri, table=self.table.name, shared=False, timeout=self.lock_seconds)

    def _wrong(self, step: str, phase: Phase, do: str) -> WrongPhase:
        return WrongPhase(self.table.name, self.migration.name, step, phase, do)

    def _log(self) -> TableLog:
        log = self.table.log()
        if log is None:
            raise TableMissing(self.table.name)
        return log
