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

from de_resources.delta.literals import Scalar, identifier, literal
from de_resources.errors import PermanentError


class UnusablePartitionColumn(PermanentError):
    """The type of a column cannot hold the partitions that the asset declares on it."""

    def __init__(self, column: str, type_: DataType, why: str) -> None:
        self.column, self.type, self.why = column, type_, why
        super().__init__(f"The column `{column}` of type {type_.simpleString()} cannot carry these partitions: {why}.")


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
        low, high = (literal(self._bound(b, type_)) for b in (self.start, self.end))
        cast = f"CAST({name} AS TIMESTAMP)" if isinstance(type_, TimestampNTZType) else name
        return f"({cast} >= {low} AND {cast} < {high})"

    def contains(self, value: Any) -> bool:
        """Whether a Python value of the column (datetime, date or string) lies inside."""
        if isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return instant(self.start) <= instant(aware) < instant(self.end)
        if isinstance(value, date):
            return self.start.date() <= value < self.end.date()
        return value in self.keys

    def _bound(self, bound: datetime, type_: DataType) -> Scalar:
        if isinstance(type_, DateType):
            if bound.timetz().replace(tzinfo=None) != time():
                raise UnusablePartitionColumn(
                    self.column, type_, f"{bound} is not a midnight, so a DATE cannot express it"
                )
            return bound.date()
        if isinstance(type_, TimestampType | TimestampNTZType):
            return bound
        raise UnusablePartitionColumn(self.column, type_, "time partitions need TIMESTAMP, DATE or STRING")


@dataclass(frozen=True)
class Members:
    """A set of static or dynamic partition keys."""

    column: str
    keys: tuple[str, ...]

    def predicate(self, type_: DataType, prefix: str = "") -> str:
        """SQL for rows inside, with the keys rendered in the column's own type."""
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
            return key
        raise UnusablePartitionColumn(self.column, type_, f"the partition key {key[:80]!r} is no such value")


@dataclass(frozen=True)
class Positions:
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


Dimension = TimeRange | Members | Positions
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
