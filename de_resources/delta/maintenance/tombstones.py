"""Forgetting deleted rows that a merge with an order keeps, so that an older insert does not bring them back.

They are kept as long as the contract says (`deleted_days`), or the metadata of an asset (`merge_deleted_days`), counted from
the row's `merge_order`, which has to be a time. Who delivers a change within that time finds the deletion still there: batches
give the same table in any order. A change that comes later than that is taken for new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

from de_resources.contract import Contract
from de_resources.delta.maintenance.statements import stamped
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.lock import commit_lock
from de_resources.delta.write.refusals import explained
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier
from de_resources.sql.literals import clock_literal, literal

DELETED_DAYS = "merge_deleted_days"


class CannotForget(PermanentError):
    """An asset whose deleted rows shall be forgotten, and of which nobody can tell when they were deleted."""

    def __init__(self, table: str, why: str) -> None:
        self.table, self.why = table, why
        super().__init__(
            f"The deleted rows of `{table}` cannot be forgotten: {why}. Correct or remove `{DELETED_DAYS}` of the asset, or "
            "`deleted_days` of its contract."
        )


@dataclass(frozen=True)
class Forgetting:
    """`deleted` marks a deleted row, `order` says of when it is, and `after` how long it is kept."""

    deleted: str
    order: str
    after: timedelta

    @classmethod
    def of(cls, table: str, metadata: Mapping[str, Any]) -> Forgetting | None:
        """What an asset and its contract declare; None where deleted rows are kept for good. Raises `CannotForget`."""
        days = _declared_days(table, metadata)
        if days is None:
            return None
        deleted, order = metadata.get("merge_deleted"), metadata.get("merge_order")
        if not deleted or not order:
            raise CannotForget(table, "it needs `merge_deleted` and `merge_order`")
        if metadata.get("stateful"):
            raise CannotForget(table, "its partitions build on each other, and nothing else may change it")
        if isinstance(days, bool) or not isinstance(days, int | float) or days < 0:
            raise CannotForget(table, f"{days!r} is no number of days")
        return cls(deleted, order, timedelta(days=days))


def _declared_days(table: str, metadata: Mapping[str, Any]) -> Any:
    said, contract = metadata.get(DELETED_DAYS), metadata.get("contract")
    promised = Contract.load(contract).deleted_days if contract else None
    if said is not None and promised is not None and said != promised:
        raise CannotForget(table, f"its contract says {promised} days, and its asset {said}")
    return promised if said is None else said


def forget(
    session: SparkSession, table: Table, rule: Forgetting, stamp: CommitInfo, *, now: datetime, lock_seconds: float = 60
) -> int:
    """Remove the rows that were deleted longer ago than the rule says, in one commit; how many they were.

    Without such a row nothing is committed. A rerun finds none. Raises `CannotForget` where the order is no time,
    `TableBusy` and `ConcurrentWrite`.
    """
    types = {field.name: field.dataType for field in table.read(session).schema.fields}
    missing = [name for name in (rule.deleted, rule.order) if name not in types]
    if missing:
        raise CannotForget(table.name, f"it has no column {missing[0]!r}")
    bound = _bound(table.name, types[rule.order], now - rule.after)
    where = f"{identifier(rule.deleted)} AND {identifier(rule.order)} < {bound}"
    with commit_lock(table.uri, table=table.name, shared=False, timeout=lock_seconds), stamped(session, stamp) as own:
        crash_point("before_commit", table.name)
        with explained(table):
            row = own.sql(f"DELETE FROM {table.sql} WHERE {where}").collect()[0]
        crash_point("after_commit", table.name)
    return int(row["num_affected_rows"])


def _bound(table: str, type_: DataType, moment: datetime) -> str:
    match type_:
        case TimestampType():
            return literal(moment)
        case TimestampNTZType():
            return clock_literal(moment)
        case DateType():
            return literal(moment.astimezone(UTC).date())
    raise CannotForget(table, f"its order is {type_.simpleString()}, which is no time")
