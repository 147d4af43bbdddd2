"""How the two sides of a table under migration stand to each other: one scan of their columns, and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_resources.delta.table import Table
from de_resources.migrations.migration import Migration
from de_resources.sql.identifiers import identifier

Partition = tuple[Any, ...]
"""Values of the table's physical partition columns, in their order; empty for a table without any."""


@dataclass(frozen=True)
class MeasuredSides:
    """Rows of one version, by what is wrong with them; no row is counted twice but for `losing`.

    `old_alone`, `new_alone`: that side is filled and the other can be computed; `differing`: both are filled and disagree;
    `losing`: the new side does not hold all of the old one. `pending_in`: the partitions with rows of one side, in order.
    """

    version: int
    rows: int
    old_alone: int
    new_alone: int
    differing: int
    losing: int
    pending_in: tuple[Partition, ...]

    @property
    def pending(self) -> int:
        """Rows that a backfill fills."""
        return self.old_alone + self.new_alone

    @property
    def agree(self) -> bool:
        """Whether every row says the same on both sides."""
        return not self.pending and not self.differing


def measure(session: SparkSession, table: Table, migration: Migration) -> MeasuredSides:
    """Count, on the table's newest version, which stores both sides."""
    log = table.log()
    assert log is not None  # noqa: S101 - a phase was read from it
    version, columns = log.version, log.partition_columns()
    if not migration.new:
        return MeasuredSides(version, 0, 0, 0, 0, 0, ())
    counts = {
        "old_alone": migration.old_alone,
        "new_alone": migration.new_alone,
        "differing": migration.differs,
        "losing": migration.loses,
    }
    found = (
        table.read(session, version)
        .groupBy(*(F.col(identifier(c)) for c in columns))
        .agg(F.count(F.lit(1)).alias("rows"), *(F.count_if(F.expr(sql)).alias(n) for n, sql in counts.items()))
        .collect()
    )
    parts: list[tuple[Partition, Mapping[str, int]]] = [
        (tuple(row[: len(columns)]), dict(zip(("rows", *counts), row[len(columns) :], strict=True))) for row in found
    ]
    total = {name: sum(part[name] for _, part in parts) for name in ("rows", *counts)}
    pending = sorted((values for values, part in parts if part["old_alone"] or part["new_alone"]), key=repr)
    return MeasuredSides(version, pending_in=tuple(pending), **total)
