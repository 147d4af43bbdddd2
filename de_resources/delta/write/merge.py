"""Merger: insert, update and delete rows by key in one commit, inside one slice, and only where something changed.

The source is compared with the target first (null-safely), so that a replay commits nothing, and so that Delta's MERGE
receives explicit changes only. Rows that vanished from the source are found by the same comparison, which makes a
`WHEN NOT MATCHED BY SOURCE` clause - the one that deletes other partitions when it is written carelessly - unnecessary.
Where there is no table yet, all that is left to do is new rows, and their write creates it.

Source: pattern *Merger*; Delta's `MERGE INTO`. Null-safe comparison `<=>`: SQL:1999 `IS NOT DISTINCT FROM`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from de_resources.delta.log import Commit
from de_resources.delta.slices import Slice
from de_resources.delta.table import CommitInfo, NewTable, Table, Written
from de_resources.delta.write import frames
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.key_elsewhere import require_nowhere_else, told
from de_resources.delta.write.refusals import explained
from de_resources.delta.write.stored_form import AS_IT_IS, StoredForm, is_kept, kept_with
from de_resources.engine.own_commits import USER_METADATA
from de_resources.engine.sessions import only_meanwhile
from de_resources.errors import PermanentError
from de_resources.sql.balanced import balanced
from de_resources.sql.identifiers import identifier
from de_resources.sql.literals import literal

Vanished = Literal["keep", "delete"]
Ties = Literal["refuse", "replace"]
CHANGE = "__de_change"
"""The column in which a comparison says what has to happen to a row."""
_COPIES = "__de_copies"
_NEW = ("insert", "tombstone")
_APPLIED = (*_NEW, "update", "soft_delete", "delete", "vanished")
_NOT_IN_SOURCE = ("delete", "vanished")
_STALE = "coalesce(s.{column} < t.{column}, s.{column} IS NULL AND t.{column} IS NOT NULL)"
_SESSION_CONF = threading.Lock()


@dataclass(frozen=True)
class MergeRule:
    """How rows of one key are reconciled.

    `key`: immutable columns that identify a row. `order`: the column that says which of several changes is the last;
    an older change never overwrites a newer row. `deleted`: boolean column that marks soft-deleted rows; without it a
    delete removes the row. `vanished`: what happens to rows of the slice that the source no longer has.
    `insert`/`update`: switch off one half of the upsert. `ties`: what happens to a row that has the same order as the
    table's and differs: it is refused, or replaces the table's (batches are merged again after a repair).

    A key that comes deleted the first time it is seen is stored as a deleted row where there is an `order`, so that an
    older insert that comes later does not bring it back. Without an order nobody can tell: it is left out, and a later
    insert counts.
    """

    key: tuple[str, ...]
    order: str | None = None
    deleted: str | None = None
    vanished: Vanished = "keep"
    insert: bool = True
    update: bool = True
    ties: Ties = "refuse"


@dataclass(frozen=True)
class BaseState:
    """What a merge builds on in place of the table as it is.

    `rows` is compared with; `lay` makes the table hold these rows. It is called once, when nothing is left to refuse.
    """

    rows: DataFrame
    lay: Callable[[], None]


class UnmergeableRows(PermanentError):
    """Rows that cannot be merged: a null key, or several last changes of one key that differ, here or in the table."""

    def __init__(self, table: str, problem: str, examples: Sequence[str]) -> None:
        self.table, self.problem, self.examples = table, problem, examples
        super().__init__(f"Cannot merge into `{table}`: {problem}: {'; '.join(examples)}. Nothing was written.")


class IncomparableColumn(PermanentError):
    """A column whose values the engine cannot compare, so that nobody can tell whether a row changed."""

    def __init__(self, table: str, column: str, type_: DataType) -> None:
        self.table, self.column, self.type = table, column, type_
        super().__init__(
            f"Cannot merge into `{table}`: the engine compares no values of `{column}`, which is {type_.simpleString()}. "
            "Nothing was written. Store it as an array of entries (`map_entries`, sorted) or as text, or choose another `mode`."
        )


class UnmergeableLayout(PermanentError):
    """A table that is stored by a column whose name Delta's MERGE does not find."""

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self.table, self.columns = table, columns
        super().__init__(
            f"Cannot merge into `{table}`: it is stored by {', '.join(map(repr, columns))}, and Delta's MERGE finds no "
            "partition column with a dot or a back-tick in its name. Nothing was written. Rename the column, or store the "
            "table without partitions (`partitioned_by`: [])."
        )


def merge(
    session: SparkSession,
    table: Table,
    frame: DataFrame,
    stamp: CommitInfo,
    *,
    rule: MergeRule,
    slice_: Slice | None,
    evolve: bool = False,
    ground: BaseState | None = None,
    form: StoredForm = AS_IT_IS,
) -> Written:
    """Bring the slice up to date with the frame, in one commit, or none where nothing changed. A missing table is created.

    Raises `UnmergeableRows` for null keys and ties, within the frame or with the table, `RowsOutsideSlice` for rows that
    the run does not own, `KeyElsewhere` for new rows whose key is in a partition that the run does not own,
    `IncomparableColumn` for a map, `UnmergeableLayout` for a partition column that MERGE does not find.
    A rerun finds nothing to change and commits nothing. `evolve` lets the table gain columns. `ground` takes the place
    of the table's present rows. Rows are compared as they were meant, and stored in the `form` of the table.
    """
    _require_columns(rule, frame.columns, table.name)
    _require_comparable(frame.schema, table.name)
    _require_layout(table)
    started = time.monotonic()
    crash_point("before_write", table.name)
    keys, merging = slice_.keys if slice_ else (), _Merging(session, table, stamp, rule, slice_, evolve, ground, form)
    with explained(table), table.first_write(session, frame.schema, keys) as new:
        found = merging.merged(frame, new)
    if not found.applied:
        log = table.log()
        return found.written(log.version if log else 0, None, started, skipped="nothing changed")
    crash_point("after_commit", table.name)
    log = table.log()
    commit = log.find(attempt=stamp.attempt) if log else None
    if commit is None:
        raise PermanentError(f"The merge into `{table.name}` reported success but its commit is not in the log.")
    return found.written(commit.version, commit, started)


@dataclass(frozen=True)
class _Found:
    """What a comparison found: rows of the source, rows that break each rule, and rows by what has to happen to them."""

    rows: int | None
    violations: Mapping[str, int] | None
    changes: Mapping[str, int]

    @property
    def applied(self) -> bool:
        """Whether there is anything to commit."""
        return any(self.changes.get(kind) for kind in _APPLIED)

    def written(self, version: int, commit: Commit | None, started: float, skipped: str | None = None) -> Written:
        seconds = time.monotonic() - started
        return Written(version, commit, self.rows, self.violations, seconds, skipped=skipped, changes=self.changes)


@dataclass(frozen=True)
class _Merging:
    """One merge, but for its rows. A `new` table is one that they create."""

    session: SparkSession
    table: Table
    stamp: CommitInfo
    rule: MergeRule
    slice_: Slice | None
    evolve: bool
    ground: BaseState | None
    form: StoredForm

    def merged(self, frame: DataFrame, new: NewTable | None) -> _Found:
        """Compare, refuse what is to be refused, and commit what is left to do."""
        table, slice_ = self.table, self.slice_
        observation = Observation(f"merge_{uuid4().hex}")
        source = frames.counted(frames.guard(frame, slice_), table.contract, observation)
        present = self._present(frame.schema, new)
        with explained(table, frame, slice_):
            target = _target(table, present, slice_, frame.schema, self.rule, self.form)
            # The optimizer runs a small local frame here, and with it the guard.
            changes = compared(source, target, self.rule).persist()
        try:
            with explained(table, frame, slice_):
                # The one pass over source and target, of which a number for each kind comes here; the rest stays cached for
                # what is committed.
                counts = {row[CHANGE]: row["count"] for row in changes.groupBy(CHANGE).count().collect()}
            _refuse(changes, counts, table, self.rule)
            if new is None and any(counts.get(kind) for kind in _NEW):
                theirs = self.form.decoded(present, table.name, self.rule.key)
                require_nowhere_else(changes.where(F.col(CHANGE).isin(*_NEW)), theirs, table, self.rule.key, slice_)
            # The engine drops the branches of an empty source from its plan, and the observation with them.
            empty = set(counts) <= set(_NOT_IN_SOURCE)
            rows, violations = frames.nothing_observed(table.contract) if empty else frames.observed(observation)
            counts.pop("same", None)
            if self.ground is not None:
                self.ground.lay()
            found = _Found(rows, violations, counts)
            if found.applied:
                crash_point("before_commit", table.name)
                self._commit(changes.where(F.col(CHANGE).isin(*_APPLIED)), new)
            return found
        finally:
            changes.unpersist()

    def _present(self, schema: StructType, new: NewTable | None) -> DataFrame:
        """The rows that are compared with."""
        if self.ground is not None:
            return self.ground.rows
        if new is None:
            return self.table.read_pinned(self.session)
        # By the limit the engine knows that nothing is there, and plans no comparison.
        return self.session.createDataFrame([], schema).limit(0)

    def _commit(self, changes: DataFrame, new: NewTable | None) -> None:
        """By a MERGE, or by the write that creates the table, of which every change is a new row."""
        table, applied = self.table, self.form.encoded(changes, self.table.name, self.slice_)
        with explained(table, applied, self.slice_):
            if new is None:
                statement = _statement(table, applied, self.rule, self.slice_, self.evolve, self.form)
                with _user_metadata(self.session, self.stamp.text()):
                    self.session.sql(statement, changes=applied)
            else:
                # As MERGE does it, the rows of a partition are brought together first.
                together = "true" if new.partitioned_by else "false"
                writer = new.writer(applied.select(*map(identifier, _columns(applied)))).mode("error")
                # Refused where somebody else has created it meanwhile.
                writer.options(userMetadata=self.stamp.text(), optimizeWrite=together).save(table.uri)


def _require_columns(rule: MergeRule, columns: Sequence[str], table: str) -> None:
    if not rule.key:
        raise PermanentError(f"`{table}` is merged but declares no key. Name it in the contract or in `merge_keys`.")
    missing = [c for c in (*rule.key, rule.order, rule.deleted) if c is not None and c not in columns]
    if missing:
        raise PermanentError(
            f"The merge into `{table}` needs {', '.join(missing)}, and the frame has {', '.join(columns)}. "
            "Correct the key, `merge_order` or `merge_deleted`."
        )


def _require_layout(table: Table) -> None:
    log = table.log()
    unfit = [c for c in (log.partition_columns() if log else table.partitioned_by) if "." in c or "`" in c]
    if unfit:
        raise UnmergeableLayout(table.name, unfit)


def _require_comparable(schema: StructType, table: str) -> None:
    for field in schema.fields:
        if _incomparable(field.dataType):
            raise IncomparableColumn(table, field.name, field.dataType)


def _incomparable(type_: DataType) -> bool:
    """Whether the type is one without equality, or has one inside."""
    match type_:
        case StructType():
            return any(_incomparable(f.dataType) for f in type_.fields)
        case ArrayType():
            return _incomparable(type_.elementType)
    return isinstance(type_, MapType | VariantType)


def _target(
    table: Table, present: DataFrame, slice_: Slice | None, schema: StructType, rule: MergeRule, form: StoredForm
) -> DataFrame:
    """The slice as it is. Columns that the table is about to gain are null in it."""
    mine = present if slice_ is None else present.where(F.expr(slice_.predicate(present.schema)))
    target = form.decoded(mine, table.name, rule.key)
    gained = {f.name: F.lit(None).cast(f.dataType) for f in schema if f.name not in target.columns}
    return target.withColumns(gained) if gained else target


def compared(source: DataFrame, target: DataFrame, rule: MergeRule) -> DataFrame:
    """The source's last row per key, and vanished target rows, each with what has to happen to it.

    Rows that are the same stay in: a plan whose result is empty loses its observation.
    """
    columns = source.columns
    last = _last_per_key(source, rule)
    mine, theirs = last.alias("s"), target.alias("t")
    same_key = balanced(Column.__and__, (_c("s", k) == _c("t", k) for k in rule.key))
    joined = mine.join(theirs, same_key, "left").select(
        *(_c("s", c) for c in columns), *kept_with(target, "t"), _kind(columns, rule).alias(CHANGE)
    )
    if rule.vanished == "keep":
        return joined
    # Rows that are soft-deleted already have vanished before.
    alive = F.lit(True) if rule.deleted is None else ~F.coalesce(_c("t", rule.deleted), F.lit(False))
    gone = theirs.where(alive).join(mine, same_key, "left_anti")
    kept = [F.lit(True).alias(c) if c == rule.deleted else F.col(identifier(c)) for c in columns]
    kind = F.lit("delete" if rule.deleted is None else "vanished").alias(CHANGE)
    vanished = gone.select(*kept, *kept_with(target, "t"), kind)
    return joined.unionByName(vanished)


def _last_per_key(source: DataFrame, rule: MergeRule) -> DataFrame:
    """Reduce several changes of one key to the last; exact repetitions are one. What still differs is a tie."""
    keys = [F.col(identifier(k)) for k in rule.key]
    last = source
    if rule.order is not None:
        newest_first = Window.partitionBy(*keys).orderBy(F.col(identifier(rule.order)).desc_nulls_last())
        last = source.withColumn(_COPIES, F.rank().over(newest_first)).where(F.col(_COPIES) == 1)
    last = last.drop(_COPIES).dropDuplicates(source.columns)
    return last.withColumn(_COPIES, F.count(F.lit(1)).over(Window.partitionBy(*keys)))


def _kind(columns: Sequence[str], rule: MergeRule) -> Column:
    matched = _c("t", rule.key[0]).isNotNull()
    null_key = balanced(Column.__or__, (_c("s", k).isNull() for k in rule.key))
    deleted, was_deleted = (
        F.lit(False) if rule.deleted is None else F.coalesce(_c(side, rule.deleted), F.lit(False)) for side in "st"
    )
    # Half an upsert has no use for it: without inserts nothing can come back, without updates no delete counts.
    remembered = rule.order is not None and rule.insert and rule.update
    return (
        F.when(null_key, "null_key")
        .when(F.col(f"s.{_COPIES}") > 1, "tie")
        .when(~matched & deleted, "tombstone" if remembered else "arrived_deleted")
        .when(~matched, "insert" if rule.insert else "ignored")
        .when(_same([c for c in columns if c not in rule.key]), "same")
        .when(_stale(rule), "stale")
        .when(~F.lit(rule.update), "ignored")
        .when(_contradicts(columns, rule), "contradiction")
        .when(deleted & ~was_deleted, "soft_delete")
        .otherwise("update")
    )


def _stale(rule: MergeRule) -> Column:
    """Whether the source's row is older than the target's. One without an order is older than one that has it."""
    if rule.order is None:
        return F.lit(False)
    return F.expr(_STALE.format(column=identifier(rule.order)))


def _contradicts(columns: Sequence[str], rule: MergeRule) -> Column:
    """Whether a row that differs from the target's says the same order, so that neither is the last."""
    if rule.order is None or rule.ties == "replace":
        return F.lit(False)
    same_order = _c("s", rule.order).eqNullSafe(_c("t", rule.order))
    if rule.deleted is None or rule.vanished == "keep":
        return same_order
    # A row that vanished was marked with the order that it had, and comes back as it was.
    revived = _c("t", rule.deleted) & ~F.coalesce(_c("s", rule.deleted), F.lit(False))
    as_it_was = _same([c for c in columns if c not in (*rule.key, rule.deleted)])
    return same_order & ~F.coalesce(revived & as_it_was, F.lit(False))


def _same(columns: Sequence[str]) -> Column:
    """Whether source and target agree on the columns, nulls included."""
    return balanced(Column.__and__, [_c("s", c).eqNullSafe(_c("t", c)) for c in columns] or [F.lit(True)])


def _c(alias: str, column: str) -> Column:
    return F.col(f"{alias}.{identifier(column)}")


def _refuse(changes: DataFrame, counts: Mapping[str, int], table: Table, rule: MergeRule) -> None:
    problems = {
        "null_key": f"{counts.get('null_key', 0)} row(s) have no {' and '.join(rule.key)}",
        "tie": "several different rows share the key"
        + (f" and the newest `{rule.order}`" if rule.order else "; declare an ordering column, or deduplicate"),
        "contradiction": f"{counts.get('contradiction', 0)} row(s) have the `{rule.order}` of the table's row and other "
        "content; correct the source, or let the batch replace it by `merge_ties`: `replace`",
    }
    hidden = table.contract.personal if table.contract else frozenset()
    for kind, problem in problems.items():
        if counts.get(kind):
            keys = changes.where(F.col(CHANGE) == kind).select(*map(identifier, rule.key)).distinct().limit(5).collect()
            shown = [told(row, rule.key, hidden) for row in keys]
            raise UnmergeableRows(table.name, problem, sorted(shown))


def _statement(
    table: Table, changes: DataFrame, rule: MergeRule, slice_: Slice | None, evolve: bool, form: StoredForm
) -> str:
    columns = _columns(changes)
    on = " AND ".join(f"t.{identifier(k)} = {stored}" for k, stored in form.key_now(rule.key).items())
    if slice_ is not None:
        # The slice in the match condition lets Delta skip the files of other partitions, and their concurrent writers.
        on += f" AND ({slice_.predicate(changes.schema, 't.')})"
    assignments = ", ".join(f"{identifier(c)} = s.{identifier(c)}" for c in columns if c not in rule.key)
    names = ", ".join(map(identifier, columns))
    values = ", ".join(f"s.{identifier(c)}" for c in columns)
    # A row that somebody else inserted since the comparison is matched now: it is updated, unless theirs is newer.
    kinds = ["update", "soft_delete", "vanished", *(_NEW if rule.update else [])]
    newer = "" if rule.order is None else f" AND NOT ({_STALE.format(column=identifier(rule.order))})"
    updated = f"s.{CHANGE} IN ({', '.join(map(literal, kinds))})"
    clauses = [
        f"WHEN MATCHED AND s.{CHANGE} = 'delete' THEN DELETE",
        *([f"WHEN MATCHED AND {updated}{newer} THEN UPDATE SET {assignments}"] if assignments else []),
        f"WHEN NOT MATCHED AND s.{CHANGE} IN ({', '.join(map(literal, _NEW))}) THEN INSERT ({names}) VALUES ({values})",
    ]
    evolution = "WITH SCHEMA EVOLUTION " if evolve else ""
    head, tail = f"MERGE {evolution}INTO {table.sql} t USING ", f" s ON {on} {' '.join(clauses)}"
    # Python fills `{changes}`, so that the braces of a location or a name have to be doubled.
    return f"{_doubled(head)}{{changes}}{_doubled(tail)}"


def _columns(changes: DataFrame) -> list[str]:
    """The columns that are stored."""
    return [c for c in changes.columns if c != CHANGE and not is_kept(c)]


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@contextmanager
def _user_metadata(session: SparkSession, text: str) -> Iterator[None]:
    """MERGE takes its commit metadata from the session only, which threads of one process share."""
    with _SESSION_CONF, only_meanwhile(session, {USER_METADATA: text}):
        yield
