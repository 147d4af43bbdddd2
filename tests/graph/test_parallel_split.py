"""`serving/visits_csv` and `serving/visits_export` from one read, by real runs with a branch that is slow, fails or dies."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster_delta import LocalConfig
from deltalake import DeltaTable, write_deltalake
from instances import silent_instance
from processes import OWN_PROJECT
from waiting import waits

from de_assets.partitions import daily, hourly
from de_assets.ranges import range_tags
from de_assets.serving.visits_export import CSV, checks, exported_visits
from de_resources.csv_files import CsvFolders
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.write.crash_points import at
from de_resources.errors import PermanentError, TransientError
from de_resources.lake import Lake
from de_resources.parallel_split import split
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("parallel_split")

TABLE = dg.AssetKey(["serving", "visits_export"])
SOURCE = dg.AssetKey(["silver", "visits"])
DAY, NEXT = daily.get_partition_keys()[1:3]
START = daily.time_window_for_partition_key(DAY).start
CHECK = "equals_legacy_export"
CSV_NAME, TABLE_NAME = "serving.visits_csv", "serving.visits_export"
CANARY = "192.0.2.77"
PAGES = {"v1": 'a "b", c\r\nd', "v2": ""}
PATIENCE = 90.0
BOTH = dg.AssetSelection.assets(CSV, TABLE)
VERDICT = dg.AssetSelection.checks(dg.AssetCheckKey(TABLE, CHECK))
_TYPES = {"string": pa.string(), "timestamp": pa.timestamp("us", tz="UTC"), "boolean": pa.bool_()}
_COLUMNS = (
    "visit_id string, event_time timestamp, user_id string, page string, keep_private boolean, referral string, ad_id string, "
    "ip string, login string, connected_since timestamp, browser string, browser_version string, network_type string, "
    "device_type string, device_version string, is_bot boolean, raw string, event_hour timestamp"
)
SCHEMA = pa.schema([(name, _TYPES[type_]) for name, type_ in map(str.split, _COLUMNS.split(", "))])


class Broken(PermanentError):
    """A branch that fails until somebody mends it."""


class Hiccup(TransientError):
    """A branch that fails once."""


@dataclass
class World:
    """Two days of visits, both branches, and an instance of their own."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance
    more_checks: tuple[dg.AssetChecksDefinition, ...] = ()

    def land(self, pages: dict[str, str | None], hours: int = 30) -> None:
        """One visit per hour with a page each, and a referral as it is told for its number; null where nothing is told.

        By delta-rs: nobody asks how the source was written.
        """
        rows = [
            (
                *(f"v{n}", at, f"u{n % 3}", f"/{n}", None, pages.get(f"v{n}"), None, CANARY, None),
                *(None, "x", None, None, "pc", None, n % 2 == 0, "{}", at.replace(minute=0)),
            )
            for n in range(hours)
            for at in [(START + timedelta(hours=n, minutes=5)).astimezone(UTC)]
        ]
        columns = zip(SCHEMA, zip(*rows, strict=True), strict=True)
        table = pa.table({field.name: pa.array(values, field.type) for field, values in columns})
        write_deltalake(str(self.source), table, partition_by=["event_hour"], mode="overwrite")

    @property
    def source(self) -> Path:
        return self.root / "silver" / "visits"

    def job(self, only: dg.AssetSelection) -> dg.JobDefinition:
        storage: dict[str, Any] = {"root_uri": str(self.root), "storage_options": LocalConfig(), "spark": self.engine}
        return dg.Definitions(
            [exported_visits, dg.AssetSpec(SOURCE, partitions_def=hourly, metadata={"partition_expr": "event_hour"})],
            asset_checks=[*checks, *self.more_checks],
            jobs=[dg.define_asset_job("export", only)],
            resources={
                "io_manager": SparkDeltaIOManager(**storage),
                "lake": Lake(**storage),
                "exports": CsvFolders(root_uri=str(self.root)),
                "spark": self.engine,
            },
            executor=dg.in_process_executor,
        ).resolve_job_def("export")

    def run(
        self, first: str = DAY, last: str | None = None, only: dg.AssetSelection | None = None, **tags: str
    ) -> dg.ExecuteInProcessResult:
        """Both branches without what checks them, or what is asked for."""
        return self.job(only or BOTH.without_checks()).execute_in_process(
            partition_key=None if last else first,
            tags={**(range_tags(first, last) if last else {}), **tags},
            instance=self.instance,
            raise_on_error=False,
        )

    def files(self) -> dict[str, list[dict[str, str]]]:
        """What Python's reader gets of the files."""
        found = {}
        for path in sorted((self.root / "serving" / "visits_csv").glob("*.csv")):
            with path.open(newline="") as lines:
                found[path.stem] = list(csv.DictReader(lines))
        return found

    def table(self) -> list[dict[str, Any]]:
        rows = DeltaTable(self.root / "serving" / "visits_export").to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["event_date"], row["visit_id"]))

    def commits(self) -> int:
        """Of the table: those that wrote rows."""
        history = DeltaTable(self.root / "serving" / "visits_export").history()
        return sum(commit["operation"] == "WRITE" for commit in history)

    def told(self, key: dg.AssetKey, run: str | None = None) -> list[str]:
        """The materialised partitions of an asset in the order of the event log."""
        found = self.instance.fetch_materializations(key, limit=100, ascending=True).records
        return [str(each.partition_key) for each in found if run in (None, each.run_id)]

    def source_gone_after(self, fast: dg.AssetKey) -> Callable[[], None]:
        """Wait until the event log tells of the fast branch; then the files of the source are no longer there."""

        def wait_and_remove() -> None:
            self.until_told(fast)()
            for file in self.source.rglob("*.parquet"):
                file.unlink()

        return wait_and_remove

    def until_told(self, key: dg.AssetKey) -> Callable[[], None]:
        """Wait until the event log tells of the asset."""

        def wait() -> None:
            deadline = time.monotonic() + PATIENCE
            while not self.told(key):
                if time.monotonic() > deadline:
                    raise Broken(f"{key} is held back")
                time.sleep(0.02)

        return wait


def only(table: str, action: Callable[[], object]) -> Callable[[str], None]:
    return lambda name: (None, action())[0] if name == table else None


def fails(error: Exception, times: int = 99) -> Callable[[], None]:
    left = [error] * times

    def fail() -> None:
        if left:
            raise left.pop()

    return fail


def judged(done: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    (verdict,) = [e for e in done.get_asset_check_evaluations() if e.check_name == CHECK]
    return verdict


@pytest.fixture
def world(engine: SparkEngine, tmp_path: Path) -> Iterator[World]:
    with silent_instance() as instance:
        it = World(engine, tmp_path / "lake", instance)
        it.land(PAGES)
        yield it


def test_both_branches_hold_the_day_of_one_read_and_a_rerun_the_same(world: World) -> None:
    """The files are slow: when they are written the table is told of, and nothing of the source is there any more.

    The branch beside the step is judged as well: its check waits for an output of the step, and was skipped without one.
    """

    @dg.asset_check(asset=CSV, name="file_is_there")
    def file_is_there() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=(world.root / "serving" / "visits_csv" / f"{DAY}.csv").exists())

    world.more_checks = (file_is_there,)
    hours = hourly.get_partition_keys()[24:72]
    for key in hours[1:]:
        world.instance.report_runless_asset_event(dg.AssetMaterialization(SOURCE, partition=key))
    with at("before_commit", only(CSV_NAME, world.source_gone_after(TABLE))):
        done = world.run(DAY, NEXT, BOTH)
    assert done.success, [e.event_specific_data for e in done.get_step_failure_events()]
    assert world.told(CSV) == world.told(TABLE) == [DAY, NEXT], "by the branch, and not by its output as well"
    files = world.files()
    assert {key: [row["visit_id"] for row in rows] for key, rows in files.items()} == {
        DAY: [f"v{n}" for n in range(24)],
        NEXT: [f"v{n}" for n in range(24, 30)],
    }
    assert [files[DAY][n]["referral"] for n in (0, 1, 2)] == ["", 'a "b", c\r\nd', ""]
    assert {row["visit_id"]: row["referral"] for row in world.table()} == {
        f"v{n}": {1: 'a "b", c\r\nd', 2: ""}.get(n) for n in range(30)
    }
    assert [(e.partition, e.passed) for e in done.get_asset_check_evaluations() if e.check_name == CHECK] == [
        (DAY, True),
        (NEXT, True),
    ]
    assert {(e.check_name, e.passed) for e in done.get_asset_check_evaluations()} >= {
        ("file_is_there", True),
        ("rows_meet_contract", True),
    }
    lacks = {(e.asset_key, e.partition): e.materialization.metadata for e in done.get_asset_materialization_events()}
    for key in (CSV, TABLE):
        told = [lacks[key, day]["missing_inputs"].value for day in (DAY, NEXT)]
        assert told == [{hours[0]: "never computed"}, {}]
    (event,) = [e for e in done.get_asset_materialization_events() if (e.asset_key, e.partition) == (CSV, NEXT)]
    assert event.materialization.metadata["dagster/partition_row_count"].value == 6

    world.land(PAGES)
    bytes_, rows = (world.root / "serving" / "visits_csv" / f"{DAY}.csv").read_bytes(), world.table()
    assert world.run(DAY).success
    assert (world.root / "serving" / "visits_csv" / f"{DAY}.csv").read_bytes() == bytes_
    assert world.table() == rows


@pytest.mark.parametrize(("slow", "fast"), [(CSV, TABLE), (TABLE, CSV)], ids=["csv is slow", "table is slow"])
def test_the_slow_branch_waits_alone_and_reads_nothing_again(
    world: World, slow: dg.AssetKey, fast: dg.AssetKey
) -> None:
    """The slow one goes on when the log tells of the fast one, and by then the files of the source are gone."""
    with at("before_commit", only(".".join(slow.path), world.source_gone_after(fast))):
        done = world.run()
    assert done.success, [e.event_specific_data for e in done.get_step_failure_events()]
    assert world.told(CSV) == world.told(TABLE) == [DAY]
    assert len(world.files()[DAY]) == len(world.table()) == 24


def test_the_plans_of_both_branches_read_what_is_kept(world: World) -> None:
    plans: dict[str, str] = {}

    def planned(name: str, rows: Any) -> Any:
        plans[name] = rows._jdf.queryExecution().executedPlan().toString()
        return rows

    outs = {
        "one": dg.AssetOut(key=["one"], is_required=False),
        "other": dg.AssetOut(key=["other"], is_required=False, dagster_type=dg.Nothing),
    }

    @dg.multi_asset(outs=outs, can_subset=True)
    def both(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
        rows = world.engine.spark_session.read.format("delta").load(str(world.source))
        yield from split(
            context,
            rows,
            stored={"one": lambda frame: planned("one", frame)},
            beside={"other": lambda frame: (planned("other", frame), {})[1]},
        )

    storage: dict[str, Any] = {"root_uri": str(world.root), "storage_options": LocalConfig(), "spark": world.engine}
    manager = SparkDeltaIOManager(**storage)
    assert dg.materialize([both], instance=world.instance, resources={"io_manager": manager}).success
    assert {name: "InMemoryTableScan" in plan for name, plan in plans.items()} == {"one": True, "other": True}
    assert dg.materialize([both], selection=["one"], instance=world.instance, resources={"io_manager": manager}).success
    assert "InMemoryTableScan" not in plans["one"], "alone there is nobody to keep the rows for"


def test_the_table_fails_and_the_files_are_there(world: World) -> None:
    with at("before_commit", only(TABLE_NAME, fails(Broken("refused")))):
        done = world.run()
    assert not done.success
    (failed,) = done.get_step_failure_events()
    assert "Broken" in str(failed.step_failure_data.error)
    assert world.told(CSV) == [DAY]
    assert world.told(TABLE) == []
    assert len(world.files()[DAY]) == 24


@pytest.mark.parametrize("broken", [CSV_NAME, TABLE_NAME])
def test_a_retry_writes_what_is_missing_and_nothing_twice(world: World, broken: str) -> None:
    file = world.root / "serving" / "visits_csv" / f"{DAY}.csv"
    seen: list[int] = []
    count = lambda: seen.append(file.stat().st_ino) if file.exists() else None  # noqa: E731
    with at("before_commit", only(broken, fails(Hiccup("busy"), 1))), waits(count) as slept:
        done = world.run(only=BOTH.without_checks() | VERDICT)
    assert done.success
    assert len(slept) == 1
    assert world.commits() == 1
    assert seen == ([] if broken == CSV_NAME else [file.stat().st_ino]), (
        "the file of the first attempt is still the one"
    )
    assert len(world.files()[DAY]) == len(world.table()) == 24
    assert judged(done).passed, "what is behind the step goes on"


@pytest.mark.red_check("equals_legacy_export")
def test_a_branch_that_fails_is_asked_for_alone_and_the_check_names_the_rows_that_differ_and_no_person(
    world: World,
) -> None:
    with at("before_switch", only(CSV_NAME, fails(Broken("no room")))):
        done = world.run()
    assert not done.success
    assert world.told(TABLE) == [DAY]
    assert world.told(CSV) == []
    assert (len(world.table()), world.files()) == (24, {}), "nothing half-written is seen"
    # What the UI calls re-execution from asset failure.
    plan = world.instance.get_execution_plan_snapshot(str(done.dagster_run.execution_plan_snapshot_id))
    assets, _ = world.instance.run_domain.get_keys_to_reexecute(done.run_id, plan)
    assert assets == {CSV}

    assert "There is no file of the day" in str(judged(world.run(DAY, DAY, VERDICT)).description)
    again = world.run(only=dg.AssetSelection.assets(CSV))
    assert again.success
    assert world.told(TABLE) == [DAY], "the other branch is not repeated"
    assert world.commits() == 1
    assert len(world.files()[DAY]) == 24
    assert judged(world.run(DAY, DAY, VERDICT)).passed

    world.land({"v1": "elsewhere", "v3": "new"}, hours=23)  # v2 lost its empty text, v23 is gone
    verdict = judged(world.run(only=dg.AssetSelection.assets(TABLE).without_checks() | VERDICT))
    assert not verdict.passed
    assert {n: verdict.metadata[n].value for n in ("changed", "only_here", "only_there")} == {
        "changed": 3,
        "only_here": 0,
        "only_there": 1,
    }
    told = str(verdict.metadata["examples"].value).splitlines()
    lines = {(cells[3], cells[1]): cells for cells in ([c.strip() for c in line.split("|")] for line in told[2:])}
    assert set(lines) == {("v1", "here"), ("v1", "there"), ("v2", "here"), ("v2", "there"), ("v3", "here")} | {
        ("v3", "there"),
        ("v23", "there"),
    }
    assert (lines["v1", "here"][2], lines["v1", "here"][7]) == ("referral", "elsewhere")
    assert (lines["v2", "here"][7], lines["v2", "there"][7]) == ("NULL", "")
    assert lines["v23", "there"][2] == "only on this side"
    everything = "\n".join(str(e) for run in world.instance.get_run_ids() for e in world.instance.all_logs(run))
    assert CANARY not in everything

    with (world.root / "serving" / "visits_csv" / f"{DAY}.csv").open("a") as file:
        file.write("by hand\n")
    assert "not the one that was written" in str(judged(world.run(DAY, DAY, VERDICT)).description), (
        "without a whole file there is nothing to compare"
    )


@pytest.mark.faults
def test_a_killed_branch_leaves_the_other_and_the_retried_run_writes_it_alone(world: World) -> None:
    """The process dies when the table is told of and the new file is complete, but does not have its name yet."""
    assert world.run().success
    world.land({"v1": "changed"})
    arguments = json.dumps({"root": str(world.root), "instance": world.instance.get_ref().to_dict()})
    environment = {**os.environ, **OWN_PROJECT}
    dead = subprocess.run([sys.executable, __file__, arguments], env=environment, timeout=300, check=False)
    assert dead.returncode == -signal.SIGKILL
    (died,) = [run.run_id for run in world.instance.get_runs() if run.status == dg.DagsterRunStatus.STARTED]
    assert world.told(TABLE, died) == [DAY]
    assert world.told(CSV, died) == []
    assert world.files()[DAY][1]["referral"] == 'a "b", c\r\nd', "readers of the file have the old one, whole"
    assert {row["visit_id"]: row["referral"] for row in world.table()}["v1"] == "changed"
    commits = world.commits()

    # As the daemon retries a run whose worker died.
    job = world.job(BOTH)
    run = world.instance.create_run_for_job(
        job,
        parent_run_id=died,
        root_run_id=died,
        tags={"dagster/retry_number": "1", "dagster/partition": DAY},
    )
    retried = execute_run(InMemoryJob(job), run, world.instance, raise_on_error=False)
    assert retried.success
    assert world.commits() == commits, "the table is not written again"
    assert world.files()[DAY][1]["referral"] == "changed"
    left = [path.name for path in (world.root / "serving" / "visits_csv").iterdir() if path.name.startswith(".")]
    assert left == []


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    mortal = SparkEngine(url="local[1]")
    from dagster._core.instance.ref import InstanceRef

    with dg.DagsterInstance.from_ref(InstanceRef.from_dict(told["instance"])) as its:
        here = World(mortal, Path(told["root"]), its)
        before = len(here.told(TABLE))

        def die() -> None:
            deadline = time.monotonic() + PATIENCE
            while len(here.told(TABLE)) == before and time.monotonic() < deadline:
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)

        with at("before_switch", only(CSV_NAME, die)):
            here.run()
