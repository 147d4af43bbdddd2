"""One column's share in a slice: the values that belong to partition keys, as a typed predicate and as a test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier
from de_resources.sql.literals import Scalar, clock_literal, literal


class UnusablePartitionColumn(PermanentError):
    """The type of a column cannot hold the partitions that the asset declares on it."""

    def __init__(self, column: str, type_: DataType, why: str) -> None:
        self.column, self.type, self.why = column, type_, why
        super().__init__(f"The column `{column}` of type {type_.simpleString()} cannot carry these partitions: {why}.")


class KeyStoredAsNull(PermanentError):
    """A partition key that no partition can have: Delta stores a partition of this name as null."""

    def __init__(self, column: str, key: str) -> None:
        self.column, self.key = column, key
        super().__init__(
            f"The partition key {key!r} cannot be used: as a value of the partition column `{column}` it is stored as null, "
            "so that no run would find its rows again. Rename the key, and the value in the data."
        )


# Sources: Delta's protocol (an empty string is null in partition values), and Hive's name of the folder of nulls.
_STORED_AS_NULL = ("", "__HIVE_DEFAULT_PARTITION__")


@dataclass(frozen=True)
class TimeRange:
    """Half-open interval `[start, end)` of aware datetimes; `keys` are the partition keys inside it."""

    column: str
    start: datetime
    end: datetime
    keys: tuple[str, ...]

    def predicate(self, type_: DataType, prefix: str = "") -> str:
        """SQL for rows inside. Raises `UnusablePartitionColumn` where the type cannot express the bounds."""
        name = prefix + identifier(self.column)
        if isinstance(type_, StringType):
            return f"{name} IN ({', '.join(literal(k) for k in self.keys)})"
        low, high = (self._bound(b, type_) for b in (self.start, self.end))
        return f"({name} >= {low} AND {name} < {high})"

    def contains(self, value: Any) -> bool:
        """Whether a Python value of the column (datetime, date or string) lies inside."""
        if isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return instant(self.start) <= instant(aware) < instant(self.end)
        if isinstance(value, date):
            return self.start.date() <= value < self.end.date()
        return value in self.keys

    def _bound(self, bound: datetime, type_: DataType) -> str:
        if isinstance(type_, DateType):
            if bound.timetz().replace(tzinfo=None) != time():
                raise UnusablePartitionColumn(
                    self.column, type_, f"{bound} is not a midnight, so a DATE cannot express it"
                )
            return literal(bound.date())
        if isinstance(type_, TimestampType):
            return literal(bound)
        if isinstance(type_, TimestampNTZType):
            # A cast to TIMESTAMP would take the session's zone for the column's, which is UTC.
            return clock_literal(bound)
        raise UnusablePartitionColumn(self.column, type_, "time partitions need TIMESTAMP, DATE or STRING")


@dataclass(frozen=True)
class Members:
    """A set of static or dynamic partition keys."""

    column: str
    keys: tuple[str, ...]

    def predicate(self, type_: DataType, prefix: str = "") -> str:
        """SQL for rows inside, with the keys rendered in the column's own type.

        Raises `UnusablePartitionColumn` where the type has no such value, `KeyStoredAsNull` where a partition cannot have it.
        """
        return f"{prefix}{identifier(self.column)} IN ({', '.join(literal(self._typed(k, type_)) for k in self.keys)})"

    def contains(self, value: Any) -> bool:
        """Whether a Python value of the column is one of the keys."""
        return any(value_like(value, k) == value for k in self.keys)

    def _typed(self, key: str, type_: DataType) -> Scalar:
        try:
            if isinstance(type_, IntegralType):
                return int(key)
            if isinstance(type_, DateType):
                return date.fromisoformat(key)
        except ValueError:
            raise UnusablePartitionColumn(
                self.column, type_, f"the partition key {key[:80]!r} is no such value"
            ) from None
        if isinstance(type_, BooleanType) and key.lower() in ("true", "false"):
            return key.lower() == "true"
        if isinstance(type_, StringType):
            if key in _STORED_AS_NULL:
                raise KeyStoredAsNull(self.column, key)
            return key
        raise UnusablePartitionColumn(self.column, type_, f"the partition key {key[:80]!r} is no such value")


@dataclass(frozen=True)
class PositionInterval:
    """The interval `(after, last]` of a stream's positions in one of its sources."""

    column: str
    after: int
    last: int

    @property
    def keys(self) -> tuple[str, ...]:
        """None of them is a partition's."""
        return ()

    def predicate(self, type_: DataType, prefix: str = "") -> str:  # noqa: ARG002 - positions are numbers
        """SQL for rows inside."""
        name = prefix + identifier(self.column)
        return f"({name} > {literal(self.after)} AND {name} <= {literal(self.last)})"

    def contains(self, value: Any) -> bool:
        """Whether a position lies inside."""
        return self.after < int(value) <= self.last


Dimension = TimeRange | Members | PositionInterval
Box = tuple[Dimension, ...]


def instant(moment: datetime) -> float:
    """Datetimes of one zone compare by their clock, which shows an hour twice as summer time ends; instants do not."""
    return moment.timestamp()


def value_like(value: Any, key: str) -> Any:
    """A member's key as a value of the same type as `value`, so that the two compare as the engine compares them."""
    try:
        match value:
            case bool():
                return {"true": True, "false": False}.get(key.lower())
            case int():
                return int(key)
            case date() if not isinstance(value, datetime):
                return date.fromisoformat(key)
    except ValueError:
        return None
    return key
