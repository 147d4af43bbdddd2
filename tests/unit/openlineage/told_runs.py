"""Small assets whose runs have all that events tell of: partitions, columns, checks, streams, errors, undeclared datasets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from de_resources.lineage.record import COLUMN_LINEAGE, LINEAGE_CONDITIONS, UNDECLARED
from de_resources.openlineage.relay import Relay, Relayed

SOURCE, VISITS, TOTALS = (dg.AssetKey(["blog", name]) for name in ("source", "visits", "totals"))
DAILY = dg.StaticPartitionsDefinition(["2024-01-01", "2024-01-02"])


@dg.asset(key=VISITS, deps=[SOURCE], partitions_def=DAILY, backfill_policy=dg.BackfillPolicy.single_run())
def visits(context: dg.AssetExecutionContext) -> None:
    for key in context.partition_keys:
        context.add_asset_metadata({"dagster/partition_row_count": 7}, partition_key=key)
    lineage = dg.TableColumnLineage({"id": [dg.TableColumnDep(SOURCE, "value")], "made": []})
    schema = dg.TableSchema([dg.TableColumn("id", "bigint", "Identity"), dg.TableColumn("made", "string")])
    context.add_output_metadata(
        {
            COLUMN_LINEAGE: lineage,
            LINEAGE_CONDITIONS: dg.MetadataValue.json({"blog/source": ["offset"]}),
            UNDECLARED: dg.MetadataValue.json(["`blog/hidden`", "table secrets"]),
            "dagster/column_schema": schema,
            "dagster/uri": "/lake/blog/visits",
        }
    )


@dg.asset(key=TOTALS, deps=[VISITS], check_specs=[dg.AssetCheckSpec("adds_up", asset=TOTALS)])
def totals() -> Iterator[Any]:
    yield dg.MaterializeResult(metadata={"dagster/row_count": 3}, data_version=dg.DataVersion("12"))
    yield dg.AssetCheckResult(
        check_name="adds_up",
        passed=False,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"example": "alice@example.org"},
    )


@dg.asset(key=["blog", "broken"])
def broken() -> None:
    raise ValueError("the row of alice@example.org")


@dg.asset(key=["blog", "live"], deps=[SOURCE])
def live() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"dagster/row_count": 5, "stream/batches": 2})


@dg.asset(key=["blog", "poison"])
def poison() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"dagster/row_count": "many"})


def run(instance: dg.DagsterInstance, asset: Any, first: str = "", last: str = "") -> str:
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last} if first else {}
    return dg.materialize([asset], instance=instance, tags=tags, raise_on_error=False).run_id


def told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def relay(instance: dg.DagsterInstance, folder: Path) -> Relayed:
    return Relay(instance, folder, "blog", {"blog/totals": ["blog/visits"]}).relay()


def cancelled(instance: dg.DagsterInstance) -> str:
    """A run that the daemon cancels while nobody is working on it."""
    run_of = instance.create_run_for_job(dg.Definitions(assets=[totals]).resolve_implicit_global_asset_job_def())
    instance.report_dagster_event(
        dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run_of.job_name), run_id=run_of.run_id
    )
    instance.report_run_canceling(run_of)
    instance.report_run_canceled(run_of)
    return run_of.run_id


def all_kinds(instance: dg.DagsterInstance, folder: Path) -> list[dict[str, Any]]:
    """Events of every kind, with every facet that the platform writes."""
    run(instance, visits, "2024-01-01", "2024-01-02")
    for asset in (totals, live, broken):
        run(instance, asset)
    cancelled(instance)
    relay(instance, folder)
    return told(folder)
