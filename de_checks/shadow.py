"""Do two ways of writing the same rows write the same rows? Compared row by row. Pattern: Parallel Split (shadow comparison).

While a new writer runs beside the one that it is to replace, equal numbers prove little: here every row and every column is
compared, nulls and repeated rows too, and what differs is shown by its key with the columns in which it does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject, spec_of
from de_resources.contract import Contract
from de_resources.delta.metadata import VERSION, markdown_table
from de_resources.delta.slices import make_slice
from de_resources.engine.utc_rows import utc_rows
from de_resources.sql.identifiers import identifier

SHOWN = 10
_SURPLUS, _HERE, _THERE = "surplus", "here", "there"
_SIDE, _DIFFERS = "side", "differs in"


@dataclass(frozen=True)
class Shadow:
    """The rows of the other side, in the columns of this one; without any, `why` there are none and what to do."""

    rows: DataFrame | None
    why: str = ""


Sides = Callable[[Any, str], Shadow]
"""From the run's resources and a partition key to the other side."""


@dataclass(frozen=True)
class Differences:
    """How many keys have other columns on the other side, and how many are on one side only."""

    changed: int = 0
    only_here: int = 0
    only_there: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.changed + self.only_here + self.only_there


def shadow_check(
    asset: Subject, other: Sides, *, resources: set[str], name: str = "equals_its_shadow"
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that the asset's rows are those of the other side: all of them, and no others.

    `resources` are the keys of what `other` asks for as attributes of its first argument; `lake` and `spark` are asked for
    anyway. Both sides are read when the check runs, the asset in the version that is judged. A red verdict has the numbers of
    keys that are `changed`, `only_here` and `only_there`, and up to ten of them as `examples`, personal values masked. It
    holds nothing back.
    """
    spec = spec_of(asset)
    contract = Contract.load(spec.metadata["contract"])

    def judge(run: CheckRun, key: Key, current: Materialized) -> Verdict:
        shadow = other(run.resources, str(key))
        if shadow.rows is None:
            return Verdict(False, shadow.why)
        return compare(_own_rows(run, key, current), shadow.rows, contract, current.rows)

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description="Row by row and column by column, both ways of writing the partition have written the same.",
        patterns=["parallel_split"],
        resources={"lake", "spark", *resources},
    )


def _own_rows(run: CheckRun, key: Key, current: Materialized) -> DataFrame:
    rows = run.table().read(run.lake.spark.spark_session, current.metadata.get(VERSION))
    if key is None or run.asset.partitions_def is None:
        return rows
    own = make_slice([key], run.asset.partitions_def, run.asset.metadata["partition_expr"])
    return rows.where(F.expr(own.predicate(rows.schema)))


def compare(here: DataFrame, there: DataFrame, contract: Contract, rows: int | None = None) -> Verdict:
    """The verdict on two sides with the columns of the contract."""
    surplus = unequal_rows(here, there, contract.column_names)
    found = count(surplus, contract.key)
    figures: dict[str, Any] = vars(found) | ({} if rows is None else {"rows": rows})
    if not found.total:
        told = "The" if rows is None else f"All {rows:,}"
        return Verdict(True, f"{told} rows are the same on both sides.", figures)
    return Verdict(
        False,
        f"The two sides differ in {found.total:,} key(s): {found.changed:,} with other values, {found.only_here:,} only here, "
        f"{found.only_there:,} only on the other side. Look at the examples for the columns.",
        {**figures, "examples": dg.MetadataValue.md(examples(surplus, contract))},
    )


def unequal_rows(here: DataFrame, there: DataFrame, columns: Collection[str]) -> DataFrame:
    """Rows that one side has more often than the other, with by how much: `surplus` is above zero for this side.

    Null equals null. One pass over each side, and no join, so that a key that comes twice is no matter.
    """
    names = [identifier(name) for name in columns]
    sides = here.select(*names, F.lit(1).alias(_SURPLUS)).unionByName(there.select(*names, F.lit(-1).alias(_SURPLUS)))
    summed = sides.groupBy(*names).agg(F.sum(_SURPLUS).alias(_SURPLUS))
    return summed.where(F.col(_SURPLUS) != 0)


def count(surplus: DataFrame, key: Sequence[str]) -> Differences:
    """The differences, by key."""
    above, below = F.col(_SURPLUS) > 0, F.col(_SURPLUS) < 0
    keys = surplus.groupBy(*map(identifier, key)).agg(F.max(above).alias(_HERE), F.max(below).alias(_THERE))
    here, there = F.col(_HERE), F.col(_THERE)
    row = keys.agg(
        F.count_if(here & there).alias("changed"),
        F.count_if(here & ~there).alias("only_here"),
        F.count_if(there & ~here).alias("only_there"),
    ).collect()[0]
    return Differences(**row.asDict())


def examples(surplus: DataFrame, contract: Contract, shown: int = SHOWN) -> str:
    """The first keys that differ as Markdown: what each side has, and in which columns; personal values masked."""
    key = [identifier(name) for name in contract.key]
    first = surplus.select(*key).distinct().orderBy(*key).limit(shown)
    joined = [F.col(f"s.{name}").eqNullSafe(F.col(f"f.{name}")) for name in key]
    rows = utc_rows(
        surplus.alias("s").join(F.broadcast(first.alias("f")), joined, "left_semi").orderBy(*key, F.desc(_SURPLUS))
    )
    by_key: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[name] for name in contract.key), []).append(row)
    cells = [cell for of_key in by_key.values() for cell in _cells(of_key, contract)]
    return markdown_table([_SIDE, _DIFFERS, *contract.column_names], cells, contract)


def _cells(rows: Sequence[Mapping[str, Any]], contract: Contract) -> list[dict[str, Any]]:
    sides = [row[_SURPLUS] > 0 for row in rows]
    both = len({*sides}) > 1
    differing = [name for name in contract.column_names if both and len({row[name] for row in rows}) > 1]
    return [
        {
            **{name: "NULL" if row[name] is None else row[name] for name in contract.column_names},
            **{name: None for name in contract.personal if row[name] is None},
            _SIDE: "here" if side else "there",
            _DIFFERS: ", ".join(differing) or "only on this side",
        }
        for row, side in zip(rows, sides, strict=True)
    ]
