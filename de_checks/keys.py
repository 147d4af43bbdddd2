"""Is every key there once, and does every reference lead somewhere? Pattern *Constraints Enforcer*: what Delta cannot hold.

A database refuses a second row of a key, and a reference to nothing. A Delta table takes both; these checks look, at what
somebody wrote around the platform as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_checks.contract import NoContract
from de_checks.factory import CheckRun, check_per_key
from de_checks.patterns import KEPT_BY_CHECK
from de_checks.per_key import Key, Materialized, Verdict, newest_version
from de_checks.subject import Subject, spec_of
from de_resources.contract import REDACTED, Contract
from de_resources.delta.attribution import KeyGroups
from de_resources.delta.log.changed_partitions import written_around
from de_resources.delta.slices import Slice, make_slice
from de_resources.delta.table import Table
from de_resources.errors import PermanentError
from de_resources.lake import Lake
from de_resources.sql.identifiers import identifier

KEY_IS_UNIQUE = "key_is_unique"
COMMITS = 1000
"""How many of a table's newest commits are looked at for one that was made around the platform."""
_EXACT = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}


class NoKey(PermanentError):
    """A check of keys on a dataset whose contract names none."""

    def __init__(self, contract: str) -> None:
        self.contract = contract
        super().__init__(f"The contract `{contract}` names no key to check. Add `key` to its `Config.metadata`.")


@dataclass(frozen=True)
class Repeated:
    """Keys that come more than once: how many, in how many rows, and one of them as text."""

    keys: int = 0
    rows: int = 0
    example: str = ""


def unique_key_check(asset: Subject, *, lake: str = "lake", blocking: bool = True) -> dg.AssetChecksDefinition:
    """A check, per partition key, that the contract's key identifies a row: no two rows have the same, null included.

    In a partitioned dataset it looks inside each partition; the column schema in the UI says so (*unique within …*). Without
    partitions, and where they build on each other (`stateful`), it looks at the whole table. `lake` is the resource that
    holds it.

    Costs one grouped query over the key's columns of what the run wrote, whatever the number of partitions.
    Metadata of a verdict where it fails: `keys`, `rows` (of these keys), `example` (masked where the key is personal).
    Raises `NoContract` and `NoKey` at definition.
    """
    definition = spec_of(asset)
    contract = _contract_of(definition)
    if not contract.key:
        raise NoKey(contract.name)

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        found = repeated_by_key(*_rows_of(run, materialized, lake), contract.key)
        # Of a table as a whole, each partition that was run has the same to say.
        return {key: _verdict(contract, found.get(key) or found.get(None) or Repeated()) for key in materialized}

    return check_per_key(
        asset,
        KEY_IS_UNIQUE,
        judge,
        description=f"No two rows have the same {_listed(contract.key)}{_within(contract)}.",
        patterns=["constraints_enforcer"],
        blocking=blocking,
        resources=[lake],
        about={KEPT_BY_CHECK: True},
    )


def repeated_by_key(frame: DataFrame, slice_: Slice | None, key: Sequence[str]) -> dict[Key, Repeated]:
    """The values of `key` that several rows have, by partition key (None: the frame as a whole). One query.

    Partition keys without any are left out.
    """
    groups = KeyGroups(slice_.by_key, frame.schema) if slice_ else None
    inside = frame if slice_ is None else frame.where(F.expr(slice_.predicate(frame.schema)))
    by = [F.expr(expression).alias(f"by_{n}") for n, expression in enumerate(groups.expressions)] if groups else []
    own = [column.alias(f"key_{n}") for n, column in enumerate(values_to_compare(inside, key))]
    counted = inside.groupBy(*by, *own).agg(F.count(F.lit(1)).alias("times"))
    several = counted.where("times > 1").groupBy(*(f"by_{n}" for n in range(len(by))))
    figures = several.agg(F.count(F.lit(1)), F.sum("times"), F.min(example_of(key))).collect()
    found: dict[Key, Repeated] = {}
    for *group, keys, rows, example in figures:
        if keys:
            found[groups.key_of(group) if groups else None] = Repeated(keys, rows, example)
    return found


def values_to_compare(frame: DataFrame, key: Sequence[str]) -> list[Column]:
    """The columns of the key as values that the engine can group by, `key_0` and on; what it cannot compare is text."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    columns = [(name, F.col(identifier(name))) for name in key]
    # As text a key loses what JSON does not say: two instants of one millisecond would be one.
    return [F.to_json(F.struct(c)) if "variant" in types.get(name, "") else c for name, c in columns]


def example_of(key: Sequence[str]) -> Column:
    """Grouped values of `values_to_compare` as text for people, with the names of the key's columns."""
    return F.to_json(F.struct(*(F.col(f"key_{n}").alias(name) for n, name in enumerate(key))), _EXACT)


def reference_check(
    asset: Subject, column: str, to: dg.AssetKey, to_column: str, *, blocking: bool = True
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that every value of `column` is a `to_column` of the dataset `to`; a null refers to nothing.

    Needs the resource `lake`; both are tables of it. Costs one anti-join over the two columns. Metadata where it fails:
    `rows`, of which `values` are distinct, and `reference`, which names both sides. Raises `NoContract` at definition.
    """
    definition = spec_of(asset)
    contract = _contract_of(definition)
    reference = f"{contract.name}.{column} → {'.'.join(to.path)}.{to_column}"

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        frame, slice_ = _rows_of(run, materialized)
        target = run.lake.table(to).read(run.lake.spark.spark_session)
        lost = dangling_by_key(frame, slice_, column, target, to_column)
        return {key: _reference_verdict(reference, lost.get(key, (0, 0))) for key in materialized}

    return check_per_key(
        asset,
        f"{column}_is_in_{'_'.join(to.path)}",
        judge,
        description=f"Every `{column}` is a `{to_column}` of `{'.'.join(to.path)}`.",
        patterns=["constraints_enforcer"],
        blocking=blocking,
        resources=["lake"],
        about={KEPT_BY_CHECK: True},
    )


def dangling_by_key(
    frame: DataFrame, slice_: Slice | None, column: str, target: DataFrame, to_column: str
) -> dict[Key, tuple[int, int]]:
    """By partition key: how many rows refer to nothing, and by how many values. Partition keys without any are left out."""
    groups = KeyGroups(slice_.by_key, frame.schema) if slice_ else None
    inside = frame if slice_ is None else frame.where(F.expr(slice_.predicate(frame.schema)))
    by = [F.expr(expression).alias(f"by_{n}") for n, expression in enumerate(groups.expressions)] if groups else []
    mine = inside.select(*by, F.col(identifier(column)).alias("value")).where("value IS NOT NULL")
    there = target.select(F.col(identifier(to_column)).alias("value")).distinct()
    lost = mine.join(there, "value", "left_anti").groupBy(*(f"by_{n}" for n in range(len(by))))
    rows = lost.agg(F.count(F.lit(1)), F.count_distinct("value")).collect()
    return {groups.key_of(group) if groups else None: (rows_, values) for *group, rows_, values in rows if rows_}


def _contract_of(definition: dg.AssetSpec) -> Contract:
    if not definition.metadata.get("contract"):
        raise NoContract(definition.key)
    return Contract.load(definition.metadata["contract"])


def _rows_of(
    run: CheckRun, materialized: Mapping[Key, Materialized], lake: str = "lake"
) -> tuple[DataFrame, Slice | None]:
    """The table as the newest of the writes left it, the platform's or a foreign one, and the slice that these keys are."""
    resource: Lake = getattr(run.resources, lake)
    table = resource.table(run.asset.key, run.asset.metadata)
    version = _version_to_judge(table, newest_version(materialized.values()))
    session = resource.spark.spark_session
    if run.asset.partitions_def is None or run.asset.metadata.get("stateful"):
        return table.read(session, version), None
    chosen = [key for key in materialized if key is not None]
    slice_ = make_slice(chosen, run.asset.partitions_def, run.asset.metadata["partition_expr"])
    return table.limited_to(chosen).read(session, version), slice_


def _version_to_judge(table: Table, written: int | None) -> int | None:
    """The version that the platform wrote; the newest one where somebody wrote around it since, who has no materialisation."""
    log = table.log() if type(table) is Table else None
    if written is None or log is None or log.version <= written:
        return written
    return log.version if written_around(log, max(written, log.version - COMMITS)) else written


def _verdict(contract: Contract, found: Repeated) -> Verdict:
    if not found.keys:
        return Verdict(True, f"No two rows have the same {_listed(contract.key)}.", {})
    figures: dict[str, Any] = {"keys": found.keys, "rows": found.rows}
    figures["example"] = REDACTED if contract.personal & set(contract.key) else found.example
    told = f"{found.keys:,} keys ({_listed(contract.key)}) of `{contract.name}` come in {found.rows:,} rows."
    return Verdict(False, told, figures)


def _reference_verdict(reference: str, lost: tuple[int, int]) -> Verdict:
    rows, values = lost
    if not rows:
        return Verdict(True, f"Every reference leads somewhere: {reference}.", {})
    told = f"{rows:,} rows refer to nothing, by {values:,} values: {reference}."
    return Verdict(False, told, {"rows": rows, "values": values, "reference": reference})


def _listed(key: Sequence[str]) -> str:
    return ", ".join(f"`{column}`" for column in key)


def _within(contract: Contract) -> str:
    return f" within {_listed(contract.unique_within)}" if contract.unique_within else ""
