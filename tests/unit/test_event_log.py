"""The event log keeps what Dagster's own keeps, where Dagster's own keeps it."""

from pathlib import Path

import dagster as dg
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from de_resources.event_log import SqliteEventLog

OWN = {"event_log_storage": {"module": "de_resources.event_log", "class": "SqliteEventLog", "config": {}}}
QUIET = {"telemetry": {"enabled": False}}
DAYS = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-14")


@dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def orders() -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(metadata={"rows": 7})


def told(instance: dg.DagsterInstance) -> tuple[set[str], list[object], list[str]]:
    """What the instance knows of the asset: partitions, their metadata, and the kinds of events of its newest run."""
    run = instance.get_runs(limit=1)[0]
    found = instance.fetch_materializations(orders.key, limit=10).records
    events = [entry.dagster_event.event_type_value for entry in instance.all_logs(run.run_id) if entry.dagster_event]
    rows = [
        record.event_log_entry.asset_materialization.metadata["rows"].value
        for record in found
        if record.event_log_entry.asset_materialization
    ]
    return instance.get_materialized_partitions(orders.key), rows, events


def days(first: str, last: str) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def test_each_reads_what_the_other_one_wrote(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides={**QUIET, **OWN}) as own:
        assert isinstance(own.event_log_storage, SqliteEventLog)
        assert dg.materialize([orders], instance=own, tags=days("2024-10-10", "2024-10-11")).success
        written = told(own)
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=QUIET) as theirs:
        assert type(theirs.event_log_storage) is SqliteEventLogStorage
        assert told(theirs) == written
        assert written[0] == {"2024-10-10", "2024-10-11"}
        assert dg.materialize([orders], instance=theirs, tags=days("2024-10-12", "2024-10-13")).success
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides={**QUIET, **OWN}) as own:
        partitions, rows, events = told(own)
        assert (partitions, rows, events) == (set(DAYS.get_partition_keys()), [7] * 4, written[2])


def test_engines_of_many_runs_are_not_kept_for_ever(tmp_path: Path) -> None:
    log = SqliteEventLog(str(tmp_path))
    for number in range(70):
        assert log.get_logs_for_run(f"run-{number}") == []
    assert len(log._engines) == 64
    assert log.get_logs_for_run("run-0") == [], "one that was given up is made again"
