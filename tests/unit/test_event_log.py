"""The event log keeps what Dagster's own keeps, where Dagster's own keeps it."""

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import dagster as dg
import pytest
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from instances import CONFIGURATION, fresh_instance
from waiting import PATIENCE

from de_resources import event_log
from de_resources.event_log import SqliteEventLog

QUIET = {name: CONFIGURATION[name] for name in ("telemetry", "compute_logs")}
OWN = {"event_log_storage": {"module": "de_resources.event_log", "class": "SqliteEventLog", "config": {}}}
DAYS = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-14")


@dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def orders() -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(metadata={"rows": 7})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose databases are there."""
    return Path(shutil.copytree(fresh_instance(), tmp_path / "home"))


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


def test_engines_of_many_runs_are_not_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_KEPT", 3)
    log = SqliteEventLog(str(tmp_path))
    for number in range(5):
        assert log.get_logs_for_run(f"run-{number}") == []
    assert len(log._engines) == 3
    assert log.get_logs_for_run("run-0") == [], "one that was given up is made again"


@dg.asset_check(asset=orders)
def is_there() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


def test_a_new_log_of_a_run_is_as_dagster_makes_it(tmp_path: Path) -> None:
    def described(file: Path) -> list[object]:
        with closing(sqlite3.connect(file)) as found:
            tables = found.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
            figures = [
                found.execute(f"SELECT count(*) FROM {name}").fetchone() for kind, name, *_ in tables if kind == "table"
            ]
            return [
                tables,
                figures,
                *found.execute("SELECT version_num FROM alembic_version"),
                *found.execute("PRAGMA journal_mode"),
            ]

    for kind in (SqliteEventLogStorage, SqliteEventLog):
        log = kind(str(tmp_path / kind.__name__))
        for run in ("first", "second"):
            assert log.get_logs_for_run(run) == []
    logs = [
        tmp_path / kind / f"{run}.db"
        for kind in ("SqliteEventLogStorage", "SqliteEventLog")
        for run in ("first", "second")
    ]
    assert [described(file) for file in logs[1:]] == [described(logs[0])] * 3
    assert {each.name for each in logs[2].parent.iterdir() if each.name.startswith(("first", "second"))} == {
        "first.db",
        "second.db",
    }


def test_the_index_has_all_of_an_event_or_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("in the middle of a verdict")

    with dg.DagsterInstance.local_temp(str(home), overrides={**QUIET, **OWN}) as instance:
        monkeypatch.setattr(SqliteEventLog, "_update_asset_check_evaluation", breaks)
        with pytest.raises(RuntimeError, match="in the middle"):
            dg.materialize([orders, is_there], instance=instance, partition_key="2024-10-10")
        (run,) = instance.get_run_ids()
        kinds = [entry.dagster_event.event_type_value for entry in instance.all_logs(run) if entry.dagster_event]
        with closing(sqlite3.connect(home / "history" / "runs" / "index.db")) as index:
            mirrored = {kind for (kind,) in index.execute("SELECT dagster_event_type FROM event_logs")}
    assert "ASSET_CHECK_EVALUATION" in kinds
    assert "ASSET_MATERIALIZATION" in mirrored
    assert "ASSET_CHECK_EVALUATION" not in mirrored


def everything(logs: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all files, but for the moments at which rows were made."""
    found: dict[str, list[tuple[object, ...]]] = {}
    for file in sorted(logs.glob("*.db")):
        with closing(sqlite3.connect(file)) as opened:
            for (table,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                columns = [name for _, name, *_ in opened.execute(f"PRAGMA table_info({table})")]
                kept = ", ".join(
                    f'"{name}"' for name in columns if name not in ("create_timestamp", "migration_completed")
                )
                found[f"{file.name}/{table}"] = opened.execute(f"SELECT {kept} FROM {table} ORDER BY 1").fetchall()
    return found


@dg.multi_asset(
    specs=[dg.AssetSpec("sold"), dg.AssetSpec("unsold")],
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def trade() -> Iterator[dg.MaterializeResult[None]]:
    for name in ("sold", "unsold"):
        yield dg.MaterializeResult(asset_key=name, metadata={"rows": 7}, tags={"kind": name})


@dg.asset_check(asset=dg.AssetKey("sold"))
def is_sold() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


def test_events_that_come_together_are_stored_as_one_by_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every event of a run over some days, in the lots in which Dagster gives them, in this log and in Dagster's own."""
    monkeypatch.delenv("DAGSTER_EVENT_BATCH_SIZE", raising=False)
    lots: list[list[dg.EventLogEntry]] = []
    stored, together = SqliteEventLog.store_event, SqliteEventLog.store_event_batch

    def one(log: SqliteEventLog, entry: dg.EventLogEntry) -> None:
        lots.append([entry])
        stored(log, entry)

    def some(log: SqliteEventLog, entries: Sequence[dg.EventLogEntry]) -> None:
        before = len(lots)
        together(log, entries)
        lots[before:] = [list(entries)]

    monkeypatch.setattr(SqliteEventLog, "store_event", one)
    monkeypatch.setattr(SqliteEventLog, "store_event_batch", some)
    job = dg.Definitions([trade], asset_checks=[is_sold], executor=dg.in_process_executor)
    whole = job.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.local_temp(str(home), overrides={**QUIET, **OWN}) as instance:
        assert whole.execute_in_process(instance=instance, tags=days("2024-10-10", "2024-10-13")).success
    # What is planned, checks among it, and what either output has of each day.
    assert [len(lot) for lot in lots if len(lot) > 1] == [4 + 4 + 1, 4, 4]
    monkeypatch.undo()
    own, theirs = SqliteEventLog(str(tmp_path / "own")), SqliteEventLogStorage(str(tmp_path / "theirs"))
    for lot in lots:
        own.store_event_batch(lot)
        for entry in lot:
            theirs.store_event(entry)
    own.dispose()
    assert everything(tmp_path / "own") == everything(tmp_path / "theirs")


def test_events_that_come_together_are_all_in_the_index_or_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("in the middle of a lot")

    with dg.DagsterInstance.local_temp(str(home), overrides={**QUIET, **OWN}) as instance:
        monkeypatch.setattr(SqliteEventLog, "_store_asset_event", breaks)
        with pytest.raises(RuntimeError, match="in the middle"):
            dg.materialize([orders], instance=instance, tags=days("2024-10-10", "2024-10-13"))
    with closing(sqlite3.connect(home / "history" / "runs" / "index.db")) as index:
        assert index.execute("SELECT count(*) FROM event_logs WHERE asset_key IS NOT NULL").fetchone() == (0,)


def test_a_process_that_is_killed_leaves_all_that_it_has_told(home: Path) -> None:
    """It is a fork of one that has the log open, which goes on with it."""
    with dg.DagsterInstance.local_temp(str(home), overrides={**QUIET, **OWN}) as instance:
        assert dg.materialize([orders, is_there], instance=instance, partition_key="2024-10-10").success
        child = os.fork()
        if not child:
            dg.materialize([orders, is_there], instance=instance, partition_key="2024-10-11")
            os.kill(os.getpid(), signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert dg.materialize([orders, is_there], instance=instance, partition_key="2024-10-12").success
        assert instance.get_materialized_partitions(orders.key) == {f"2024-10-{day}" for day in (10, 11, 12)}
    with dg.DagsterInstance.local_temp(str(home), overrides=QUIET) as theirs:
        assert theirs.get_materialized_partitions(orders.key) == {f"2024-10-{day}" for day in (10, 11, 12)}
        (summary,) = theirs.event_log_storage.get_asset_check_summary_records([is_there.check_key]).values()
        assert summary.last_check_execution_record is not None
    with closing(sqlite3.connect(home / "history" / "runs" / "index.db")) as index:
        assert index.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_fork_takes_no_open_index_with_it(tmp_path: Path) -> None:
    log = SqliteEventLog(str(tmp_path))
    assert log.all_asset_keys() == []
    index = str(tmp_path / "index.db")
    assert index in open_files(), "it is held open, or SQLite would tidy up behind every event"
    child = os.fork()
    if not child:
        os._exit(index in open_files())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    log.dispose()
    assert index not in open_files()


def open_files() -> set[str]:
    """What this process has open, by name."""
    return {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}


def test_who_watches_a_run_is_told_of_each_event_while_it_is_at_work(home: Path) -> None:
    """As the UI does, by Dagster's own means and in a log of its own."""
    seen = SimpleQueue[str]()

    @dg.asset
    def talking(context: dg.AssetExecutionContext) -> None:
        with dg.DagsterInstance.local_temp(str(home), overrides=QUIET) as theirs:
            theirs.watch_event_logs(context.run.run_id, None, lambda entry, _: seen.put(entry.message))
            for said in ("one", "two", "three"):
                context.instance.report_engine_event(said, context.run)
                while seen.get(timeout=PATIENCE) != said:
                    pass

    with dg.DagsterInstance.local_temp(str(home), overrides={**QUIET, **OWN}) as instance:
        assert dg.materialize([talking], instance=instance).success, "it has heard all three, one after the other"


@pytest.mark.parametrize("fails", [False, True], ids=["ends well", "fails"])
def test_the_log_of_a_run_is_open_while_it_is_at_work_and_complete_in_one_file_after_it(
    home: Path, fails: bool
) -> None:
    logs = home / "history" / "runs"
    held: list[bool] = []

    @dg.asset
    def looking(context: dg.AssetExecutionContext) -> None:
        held.append(str(logs / f"{context.run.run_id}.db") in open_files())
        if fails:
            raise RuntimeError("meant to fail")

    with dg.DagsterInstance.local_temp(str(home), overrides={**QUIET, **OWN}) as instance:
        assert dg.materialize([looking], instance=instance, raise_on_error=False).success is not fails
        (run,) = instance.get_run_ids()
        assert held == [True], "or SQLite would tidy up behind every event"
        assert not {each for each in open_files() if run in each}
        assert [each.name for each in logs.glob(f"{run}*")] == [f"{run}.db"]
        stored = instance.get_run_by_id(run)
        assert stored is not None
        instance.report_engine_event("after it", stored)
        assert not {each for each in open_files() if run in each}


@pytest.mark.pattern("aligned_fan_in")
@pytest.mark.parametrize("partition", ["2024-10-10", None], ids=["a day", "without partitions"])
def test_of_two_runs_at_once_the_verdict_that_was_given_last_is_the_newest(home: Path, partition: str | None) -> None:
    """And not that of the run which was made last: the day would wait for ever, as its newest state was never judged."""
    key, gate = dg.AssetKey("slow"), dg.AssetCheckKey(dg.AssetKey("slow"), "is_good")
    partitions = DAYS if partition else None

    @dg.asset(key=key, partitions_def=partitions)
    def slow(context: dg.AssetExecutionContext) -> None:
        if "overtaken" in context.run.tags:  # begins later, and ends while the first one works
            assert run(context.instance).success

    @dg.asset_check(asset=slow, partitions_def=partitions)
    def is_good(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed="overtaken" in context.run.tags)

    job = dg.Definitions([slow], asset_checks=[is_good], executor=dg.in_process_executor)

    def run(instance: dg.DagsterInstance, **tags: str) -> dg.ExecuteInProcessResult:
        whole = job.resolve_implicit_global_asset_job_def()
        return whole.execute_in_process(instance=instance, partition_key=partition, tags=tags)

    with dg.DagsterInstance.local_temp(str(home), overrides={**QUIET, **OWN}) as instance:
        first = run(instance, overtaken="1")
        log = instance.event_log_storage
        newest = log.get_latest_asset_check_execution_by_key([gate])[gate]
        assert newest.run_id == first.run_id
        assert newest.evaluation is not None
        assert newest.evaluation.passed
        if partition:
            (info,) = log.get_asset_check_partition_info([gate], partition_keys=[partition])
            assert info.is_current, "it is about what is there"
        again = run(instance)
        assert log.get_latest_asset_check_execution_by_key([gate])[gate].run_id == again.run_id
