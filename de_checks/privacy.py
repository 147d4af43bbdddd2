"""Is a replica free of personal columns? Asked of what is stored, and not of the code that stored it.

Pattern: Transformation Replicator. Looked at are the table's schema and every data file in its folder, also those that no
reader sees any more: an earlier version that can be travelled to has left production, too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
from pandera.pyspark import DataFrameModel
from pyarrow.fs import FileSelector, FileSystem

from de_checks.factory import CheckRun, check_per_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject
from de_resources.compat.delta_tables import filesystem_of
from de_resources.contract import Contract
from de_resources.delta.log import TableLog


def privacy_check(
    asset: Subject,
    source: type[DataFrameModel],
    *,
    lake: str = "lake",
    name: str = "holds_no_personal_column",
    blocking: bool = True,
) -> dg.AssetChecksDefinition:
    """A check that the asset's table stores no column but those that `source`'s contract lets leave.

    `lake` is the key of the resource that knows the table. No engine is started and no row is read: one footer per file.
    Metadata of a verdict: `files`, and where red `columns`, {column: files that hold it}.
    """
    contract = Contract.of(source)

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        return dict.fromkeys(materialized, inspect(run.table(lake).log(), contract))

    return check_per_key(
        asset,
        name,
        judge,
        description=f"Schema and files hold no column that `{contract.name}` tags as personal or does not classify.",
        patterns=["transformation_replicator"],
        blocking=blocking,
        resources=[lake],
    )


def inspect(log: TableLog | None, contract: Contract) -> Verdict:
    """The verdict on a stored table."""
    if log is None:
        return Verdict(False, "There is no table to look at. Materialise it, then check it.")
    allowed = {c for c in contract.column_names if c not in contract.personal}
    in_schema = set(log.table.schema().to_arrow().names)
    files = list(_stored_columns(log))
    found = Counter(column for columns in files for column in columns - allowed)
    leaked = {column: found[column] for column in sorted({*found, *(in_schema - allowed)})}
    figures: dict[str, Any] = {"files": len(files)}
    if not leaked:
        return Verdict(
            True, f"Schema and {len(files):,} file(s) hold nothing but the {len(allowed)} allowed columns.", figures
        )
    listed = ", ".join(f"`{column}` ({_kind(column, contract)})" for column in leaked)
    return Verdict(
        False,
        f"The replica stores what must not leave: {listed}. Remove the replica with its log and replicate again.",
        {**figures, "columns": dg.MetadataValue.json(leaked)},
    )


def _kind(column: str, contract: Contract) -> str:
    return "personal" if column in contract.personal else "not classified"


def _stored_columns(log: TableLog) -> Iterator[set[str]]:
    """The columns of every Parquet file of the table's folder, live or not."""
    filesystem: FileSystem = filesystem_of(log.table)
    for info in filesystem.get_file_info(FileSelector("", recursive=True)):
        if info.path.endswith(".parquet") and "_delta_log/" not in info.path:
            with filesystem.open_input_file(info.path) as handle:
                yield set(pq.read_schema(handle).names)
