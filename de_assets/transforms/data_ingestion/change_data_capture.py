"""Changes of a table from the records of a capture: every column, or the reason why not. Pattern: Change Data Capture."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from de_assets.contracts.topics import UserChangeRecord
from de_assets.transforms.error_management.stated_time import conceivable_time
from de_resources.contract import Contract

ERROR = "error"
CLOCKS_DIFFER = timedelta(hours=1)
"""How far an application's clock may be ahead of the database's before its time is not believed."""
_TRUNCATED = "t"
_OPERATIONS = ("r", "c", "u", "d", _TRUNCATED)
_ENVELOPE = Contract.of(UserChangeRecord).struct_type().add("_corrupt", StringType())


def parse_changes(
    records: DataFrame, payload: str, *, key: str, columns: Sequence[str], stamp: str, append_time: str
) -> DataFrame:
    """The change of each record with a binary column `payload`; records without a value (tombstones) are left out.

    Adds `operation` (r, c, u, d; t: the table was emptied), `key` and `columns` as text from the row after the change,
    or before a deletion, `changed_at` (what the application said, else the row's own `stamp`, else the commit's time; what
    states no date, or none that every reader can hold, is passed over), `commit_time`, `commit_lsn`, `sequence`, `before`
    and `after` as JSON, `delay_ms` from commit to `append_time`, and `error`: null where the record was understood. Of one that
    was not, all these are null but the error. A row without one of `columns` or `stamp` is not understood: a column that was
    renamed at the source is no column of nulls. Nothing raises.
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    text = F.make_valid_utf8(F.col(payload).cast("string"))
    read = records.where(F.col(payload).isNotNull()).withColumn("_c", F.from_json(text, _ENVELOPE, options))
    row = F.coalesce(F.col("_c.after"), F.col("_c.before"))
    told = read.withColumns(
        {
            "_row": row,
            "_commit_time": conceivable_time(F.col("_c.source.commit_time")),
            "_changed_at": F.coalesce(
                conceivable_time(F.col("_c.source.event_time")),
                F.when(F.col("_c.op") != "d", conceivable_time(row[stamp])),
                conceivable_time(F.col("_c.source.commit_time")),
            ),
        }
    ).withColumn(ERROR, _error(key, columns, stamp))
    valid = F.col(ERROR).isNull()

    def understood(value: Column) -> Column:
        return F.when(valid, value)

    delay = F.unix_millis(append_time) - F.unix_millis("_commit_time")
    return told.select(
        *(F.col(c) for c in records.columns),
        understood(F.col("_c.op")).alias("operation"),
        *(understood(F.col("_row")[c]).alias(c) for c in (key, *columns)),
        understood(F.col("_changed_at")).alias("changed_at"),
        understood(F.col("_commit_time")).alias("commit_time"),
        understood(F.col("_c.source.commit_lsn")).alias("commit_lsn"),
        understood(F.col("_c.source.sequence")).alias("sequence"),
        understood(F.to_json("_c.before")).alias("before"),
        understood(F.to_json("_c.after")).alias("after"),
        understood(F.when(F.col("_c.op") != "r", delay)).alias("delay_ms"),
        ERROR,
    )


def with_truncations(changes: DataFrame, key: str) -> DataFrame:
    """The changes, with each truncation as the deletion of every `key` that had a change before it in the log.

    A snapshot begins with one, so that rows which were deleted while nobody read the log are gone as well.
    """
    place = F.struct("commit_lsn", "sequence")
    emptied = changes.where(F.col("operation") == _TRUNCATED)
    rows = changes.where(F.col("operation") != _TRUNCATED)
    known = rows.groupBy(key).agg(F.min(place).alias("_first"))
    gone = (
        F.broadcast(emptied.drop(key).withColumn("_at", place))
        .join(known, F.col("_first") < F.col("_at"))
        .withColumn("operation", F.lit("d"))
    )
    return rows.unionByName(gone.select(*rows.columns))


def in_log_order(changes: DataFrame, key: str, at: str) -> DataFrame:
    """The changes with the time `at` made true and monotonic: no change of a `key` is earlier than one before it in the log.

    Clocks go back, and an application's time is not a commit's; the order of `(commit_lsn, sequence)` is what happened.
    What is committed has happened: a time more than `CLOCKS_DIFFER` after `commit_time` gives way to that, so that one
    change from the future does not take all that follow it along.
    """
    so_far = Window.partitionBy(key).orderBy("commit_lsn", "sequence").rowsBetween(Window.unboundedPreceding, 0)
    return changes.withColumn(at, F.max(_believed(at)).over(so_far))


def _believed(at: str) -> Column:
    """The application's time, or the commit's where that is too long before it."""
    return F.when(F.col(at) > F.col("commit_time") + F.lit(CLOCKS_DIFFER), F.col("commit_time")).otherwise(F.col(at))


def _error(key: str, columns: Sequence[str], stamp: str) -> Column:
    """The first thing that is wrong."""
    truncated = F.col("_c.op") == _TRUNCATED
    # Of a deletion, the database may send the key only.
    missing = F.when(F.col("_c.op") != "d", F.array_except(F.array(*map(F.lit, (*columns, stamp))), F.map_keys("_row")))
    broken = (
        (F.col("_c").isNull() | F.col("_c._corrupt").isNotNull(), F.lit("not a JSON object of the expected form")),
        (
            ~F.coalesce(F.col("_c.op").isin(*_OPERATIONS), F.lit(False)),
            F.concat(F.lit("unknown operation "), F.coalesce(F.col("_c.op"), F.lit("(none)"))),
        ),
        (F.col("_row").isNull() & ~truncated, F.lit("a change without a row")),
        (F.col("_row")[key].isNull() & ~truncated, F.lit(f"{key} is missing")),
        (
            F.col("_c.source.commit_lsn").isNull() | F.col("_c.source.sequence").isNull(),
            F.lit("it does not say its position"),
        ),
        (
            F.coalesce(F.arrays_overlap("_c.source.unchanged", F.array(*map(F.lit, columns))), F.lit(False)),
            F.lit("a large value was not sent: the table needs REPLICA IDENTITY FULL"),
        ),
        (
            F.size(missing) > 0,
            F.concat(F.lit("renamed or dropped at the source: "), F.array_join(missing, ", ")),
        ),
        (F.col("_commit_time").isNull(), F.lit("commit_time is no timestamp")),
    )
    error = F.lit(None).cast("string")
    for condition, reason in reversed(broken):
        error = F.when(condition, reason).otherwise(error)
    return error
