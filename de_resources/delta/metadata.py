"""What every materialisation tells about its write, in Dagster's terms. None of it reads the data again.

Rows, files and bytes come from the commit and the files' statistics, rule counters from the write's observation, column
lineage from the analysed plan, the preview from the first rows of one new file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame

from de_resources.contract import Contract
from de_resources.delta.log import Stored, TableLog
from de_resources.delta.slices import Slice
from de_resources.delta.table import Table, Written
from de_resources.lineage.record import COLUMN_LINEAGE as COLUMN_LINEAGE
from de_resources.lineage.record import LINEAGE_CONDITIONS as LINEAGE_CONDITIONS
from de_resources.lineage.record import LINEAGE_INCOMPLETE as LINEAGE_INCOMPLETE
from de_resources.lineage.record import cell_text, lineage_metadata

VIOLATIONS = "contract/violations"
ROWS_WRITTEN = "contract/rows"
VERSION = "delta/version"
FILES = "delta/files"
BYTES = "delta/bytes"
OF_RUN = "run/"
"""Before the name of a figure: the total of a run over several partitions, which each of them carries."""
FILTER_ROWS_IN = "filter/rows_in"
FILTER_CONDITIONS = "filter/conditions"
DEAD_LETTERS_OPEN = "dead_letters/open"
PREVIEW_ROWS = 5


def record(
    context: dg.OutputContext, table: Table, slice_: Slice | None, written: Written, frame: DataFrame, engine: str
) -> None:
    """Attach metadata, what lies in each partition key, and the data version (Delta's version) to the materialisation."""
    log = table.log()
    if log is None:
        return
    graph = context.step_context.job_def.asset_layer.asset_graph
    root = table.uri.removesuffix("/" + table.name.replace(".", "/"))
    context.add_output_metadata(
        {
            **_write_metadata(table, slice_, written, engine),
            **_figures(table, slice_, written),
            **_description(table, frame, written, log),
            **lineage_metadata(context, frame, context.asset_key, graph, [root]),
        }
    )
    step = context.step_context
    for key, stored in stored_per_key(log, slice_, written).items():
        more = written.per_key.get(key, {})
        if key is None:
            context.add_output_metadata({"dagster/row_count": stored.rows, **_lying_there(stored), **more})
        else:
            entries = {"dagster/partition_row_count": stored.rows, **_lying_there(stored), **more}
            step.add_asset_metadata(entries, context.asset_key, key)
    step.set_data_version(context.asset_key, dg.DataVersion(str(written.version)))


def stored_per_key(log: TableLog, slice_: Slice | None, written: Written) -> dict[str | None, Stored]:
    """What lies in each partition key, from the log; `{None: …}` for an unpartitioned table.

    Where the physical layout does not follow the partition column, files cannot be attributed: a single key then gets
    the number of rows that the write counted, and a range gets nothing rather than a guess.
    """
    if slice_ is None:
        return {None: sum(log.stored_by_partition().values(), Stored())}
    columns = log.partition_columns()
    if set(slice_.columns) <= set(columns):
        found: dict[str | None, Stored] = dict.fromkeys(slice_.keys, Stored())
        for values, stored in log.stored_by_partition().items():
            key = slice_.key_of(dict(zip(columns, values, strict=True)))
            if key is not None:
                found[key] += stored
        return found
    if len(slice_.keys) == 1 and written.rows is not None:
        return {slice_.keys[0]: Stored(written.rows)}
    return {}


def _lying_there(stored: Stored) -> dict[str, int]:
    return {FILES: stored.files, BYTES: stored.bytes} if stored.files else {}


def _write_metadata(table: Table, slice_: Slice | None, written: Written, engine: str) -> dict[str, Any]:
    entries: dict[str, Any] = {
        "dagster/table_name": table.name,
        "dagster/uri": written.shown_at or table.uri,
        VERSION: written.version,
        "delta/operation": written.commit.operation if written.commit else "none",
        "engine": engine,
        **written.details,
    }
    if slice_ is not None:
        entries["slice"] = slice_.describe()
    if written.skipped:
        entries["skipped"] = written.skipped
    return entries


def _figures(table: Table, slice_: Slice | None, written: Written) -> dict[str, Any]:
    """What the write counted. Of a run over several partitions these are totals, which are named so: none is of a partition."""
    entries: dict[str, Any] = {
        "duration_seconds": round(written.seconds, 3),
        **{f"delta/{name}": value for name, value in written.counters().items()},
    }
    if written.rows is not None:
        entries[ROWS_WRITTEN] = written.rows
    if written.violations is not None and table.contract is not None:
        entries[VIOLATIONS] = dg.MetadataValue.json(dict(written.violations))
    if written.changes:
        entries["merge/changes"] = dg.MetadataValue.json(dict(written.changes))
    if slice_ is None or len(slice_.keys) == 1:
        return entries
    totals = {f"{OF_RUN}{name}": value for name, value in entries.items()}
    # A rule that no row of the run broke was broken in none of its partitions.
    if VIOLATIONS in entries and not any((written.violations or {}).values()):
        totals[VIOLATIONS] = entries[VIOLATIONS]
    return {**totals, f"{OF_RUN}partitions": len(slice_.keys)}


def _description(table: Table, frame: DataFrame, written: Written, log: TableLog) -> dict[str, Any]:
    schema = table.contract.table_schema() if table.contract else _plain_schema(frame)
    return {"dagster/column_schema": schema, "preview": _preview([c.name for c in schema.columns], table, written, log)}


def _preview(columns: Sequence[str], table: Table, written: Written, log: TableLog) -> dg.MetadataValue[Any]:
    """Rows that the write just stored. They are committed by now, so a preview that fails must not fail the write."""
    if not written.counters()["files_added"]:
        return dg.MetadataValue.md("The write added no rows.")
    try:
        rows = log.first_rows(columns, PREVIEW_ROWS)
    except (OSError, pa.ArrowException) as error:
        return dg.MetadataValue.text(f"No preview: {type(error).__name__}")
    return dg.MetadataValue.md(markdown_table(columns, rows, table.contract))


def _plain_schema(frame: DataFrame) -> dg.TableSchema:
    return dg.TableSchema(columns=[dg.TableColumn(f.name, f.dataType.simpleString()) for f in frame.schema.fields])


def markdown_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], contract: Contract | None) -> str:
    """A few rows for people: personal values masked, long ones cut, control characters and table signs removed."""
    head = [f"| {' | '.join(map(_cell, columns))} |", f"|{'---|' * len(columns)}"]
    shown = [contract.redact(row) if contract else row for row in rows]
    return "\n".join([*head, *(f"| {' | '.join(_cell(row.get(c)) for c in columns)} |" for row in shown)])


def _cell(value: Any, width: int = 40) -> str:
    if isinstance(value, datetime):
        # Files and log give times with and without a zone; both are UTC.
        value = value.replace(tzinfo=None)
    text = _text(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def _text(value: Any) -> str:
    """Text that ends neither a cell nor a line of a table."""
    return "" if value is None else cell_text(str(value))
