"""A run started from the UI: taken from the queue, worked off by a process of its own, visible in the table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from other_reader import multiset
from seeding import seed
from web_ui import LOCATION, METADATA, DagsterProcess, WebUI, entry, until

from de_assets.contracts.visits import VisitsStream
from de_resources.contract import Contract
from de_resources.delta.log import TableLog

pytestmark = pytest.mark.ui

HOUR, DAY = "2024-10-10-09:00", "2024-10-10"
STEPS = """query Steps($run: ID!) { runOrError(runId: $run) { ... on Run { stepStats { stepKey status } } } }"""
STATUS = """query Run($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"""
VERDICT = (
    """query Verdict($key: AssetKeyInput!, $partition: String) {
    assetCheckExecutions(assetKey: $key, checkName: "is_published", partition: $partition, limit: 1) {
    status runId evaluation { targetMaterialization { runId timestamp } """
    + METADATA
    + " } } }"
)
ERRORS = """query Errors($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events {
    ... on ErrorEvent { error { message causes { message } } } } } } }"""


def test_one_hour_launched_from_the_ui_is_recomputed(
    web: WebUI, daemon: DagsterProcess, lakehouse: dict[str, str]
) -> None:
    table = Path(lakehouse["DE_HOME"]) / "lake" / "silver" / "visits"
    before = _log(table)

    run = _launch(web, HOUR, "silver/visits", "silver/visits_late")
    assert _ended(web, daemon, run) == "SUCCESS", web.ask(ERRORS, run=run)

    after = _log(table)
    assert after.version > before.version
    assert after.rows_by_partition() == before.rows_by_partition(), "a rerun of an hour gives the same rows"
    fields = "latestMaterializationByPartition(partitions: $partitions) { runId " + METADATA + " }"
    (event,) = web.asset("silver/visits", fields, partitions=[HOUR])["latestMaterializationByPartition"]
    assert event["runId"] == run
    assert int(entry(event, "delta/version")["intRepr"]) == after.version


@pytest.mark.pattern("exclusive_choice")
def test_the_writer_that_is_not_chosen_is_shown_as_skipped(
    web: WebUI, daemon: DagsterProcess, lakehouse: dict[str, str]
) -> None:
    """What the run's view is drawn from. The day lies before the cut-over."""
    file = Path(lakehouse["DE_HOME"], "lake", "serving", "page_counts", f"{DAY}.csv")
    before = file.read_bytes()
    run = _launch(web, DAY, "serving/page_counts")
    assert _ended(web, daemon, run) == "SUCCESS", web.ask(ERRORS, run=run)
    stats = web.ask(STEPS, run=run)["runOrError"]["stepStats"]
    steps = {each["stepKey"].rpartition(".")[2]: each["status"] for each in stats if "page_counts." in each["stepKey"]}
    chosen = {"choose_writer": "SUCCESS", "legacy_writer": "SUCCESS", "new_writer": "SKIPPED", "written": "SUCCESS"}
    assert steps == chosen
    assert file.read_bytes() == before, "the layout of its side"
    assert file.read_text().splitlines()[0] == '"page","views"'


@pytest.mark.pattern("audit_write_audit_publish")
def test_the_verdict_that_is_shown_is_on_the_materialisation_of_the_staged_version_that_was_judged(
    web: WebUI, daemon: DagsterProcess, lakehouse: dict[str, str]
) -> None:
    """The day is there already: a verdict that came before its materialisation would point at the older one."""
    cube = "gold/visits_cube_daily"
    fields = "latestMaterializationByPartition(partitions: $partitions) { runId timestamp " + METADATA + " }"

    def newest() -> dict[str, Any]:
        event: dict[str, Any]
        (event,) = web.asset(cube, fields, partitions=[DAY])["latestMaterializationByPartition"]
        return event

    before = newest()
    run = _launch(web, DAY, cube)
    assert _ended(web, daemon, run) == "SUCCESS", web.ask(ERRORS, run=run)

    after = newest()
    (execution,) = web.ask(VERDICT, key={"path": cube.split("/")}, partition=DAY)["assetCheckExecutions"]
    verdict = execution["evaluation"]
    assert (execution["status"], execution["runId"], after["runId"]) == ("SUCCEEDED", run, run)
    assert float(before["timestamp"]) < float(after["timestamp"])
    assert verdict["targetMaterialization"]["runId"] == run
    assert verdict["targetMaterialization"]["timestamp"] * 1000 == pytest.approx(float(after["timestamp"]), abs=1)

    staged = int(entry(after, "publication/staged_version")["intRepr"])
    assert int(entry(verdict, "staged_version")["intRepr"]) == staged
    assert staged > int(entry(before, "publication/staged_version")["intRepr"])
    assert staged == _log(Path(lakehouse["DE_HOME"], "lake", cube, "_staged")).version
    assert "| audit | verdict |" in entry(verdict, "audits")["mdStr"]


@pytest.mark.pattern("audit_write_audit_publish")
def test_the_checks_tab_tells_of_each_window_of_a_stream_and_a_person_publishes_one_and_takes_one_back(
    web: WebUI, daemon: DagsterProcess, lakehouse: dict[str, str]
) -> None:
    """Two hours of a stream are over, and one of them has dates of the future."""
    hours, lake = "silver/visits_live_hours", Path(lakehouse["DE_HOME"], "lake")
    _land(lake / "bronze" / "visits_stream", [(1, 0), (2, 30), (3, 0)])

    def follow() -> None:
        run = web.launch(LOCATION, hours)
        assert _ended(web, daemon, run) == "SUCCESS", web.ask(ERRORS, run=run)

    def decide(job: str, op: str, hour: int, reason: str) -> tuple[str, str]:
        config = {"table": hours, "partition": f"{DAY}-{hour:02}:00", "reason": reason}
        run = web.launch(LOCATION, job=job, config={"ops": {op: {"config": config}}})
        return _ended(web, daemon, run), str(web.ask(ERRORS, run=run))

    def verdict() -> tuple[str, dict[str, str], str]:
        (newest,) = web.ask(VERDICT, key={"path": hours.split("/")})["assetCheckExecutions"]
        said = newest["evaluation"]
        windows = {each: entry(said, each)["text"] for each in ("shown", "held", "open")}
        return newest["status"], windows, entry(said, "audits")["mdStr"]

    def seen() -> set[str]:
        return {str(hour)[11:13] for (hour,) in _log(lake / hours).rows_by_partition()}

    follow()
    status, windows, audits = verdict()
    assert (status, seen()) == ("FAILED", {"01"})
    assert windows == {"shown": f"{DAY}-01:00", "held": f"{DAY}-02:00", "open": f"{DAY}-03:00"}
    assert f"| {DAY}-02:00, share dated in the future | fail |" in audits
    assert f"| {DAY}-01:00, share dated in the future | passed |" in audits

    assert decide("publish_partition", "publish_one", 2, "the broker's clock was behind")[0] == "SUCCESS"
    assert (verdict()[0], verdict()[1]["held"], seen()) == ("SUCCEEDED", "none", {"01", "02"})

    # A late visit, and the other two reactions: an hour with far more visits than the last, of which one breaks a rule.
    _land(lake / "bronze" / "visits_stream", [(1, 0), (5, 0), *[(4, 0)] * 11], page_of={70: ""})
    follow()
    audits = verdict()[2]
    assert f"| {DAY}-04:00, rows | annotate |" in audits
    assert f"| {DAY}-04:00, contract | dispatch |" in audits
    first = {str(hour)[11:13]: rows for (hour,), rows in _log(lake / hours).rows_by_partition().items()}["01"]
    assert decide("roll_back_partition", "roll_back_one", 1, "those were no visits")[0] == "SUCCESS"
    after = {str(hour)[11:13]: rows for (hour,), rows in _log(lake / hours).rows_by_partition().items()}["01"]
    assert (first, after) == (60, 30)


@pytest.mark.pattern("schema_migrator")
def test_a_person_begins_a_migration_and_takes_it_back(
    web: WebUI, daemon: DagsterProcess, lakehouse: dict[str, str]
) -> None:
    table = Path(lakehouse["DE_HOME"], "lake", "silver/devices")
    before = _people(table)
    for step, stored in (("EXPAND", True), ("ROLLBACK", False)):
        status, why = _take_step(web, daemon, step)
        assert status == "SUCCESS", why
        assert ("title" in {field.name for field in DeltaTable(str(table)).schema().fields}) is stored
    assert _people(table) == before, "nothing else has changed"


@pytest.mark.pattern("schema_migrator")
def test_a_person_takes_the_steps_of_a_migration_the_last_is_refused_while_lineage_has_a_reader_and_all_are_taken_back(
    web: WebUI, daemon: DagsterProcess, lakehouse: dict[str, str]
) -> None:
    """Of the devices, whose `full_name` becomes `title`, with a run of theirs in between."""
    devices = "silver/devices"
    table = Path(lakehouse["DE_HOME"], "lake", devices)
    before = _people(table)

    for step in ("EXPAND", "MIGRATE"):
        status, why = _take_step(web, daemon, step)
        assert status == "SUCCESS", why
    run = web.launch(LOCATION, devices)
    assert _ended(web, daemon, run) == "SUCCESS", web.ask(ERRORS, run=run)
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["full_name", "title"]).to_pylist()
    assert len(rows) == sum(before.values()) > 0
    assert all(row["title"] == row["full_name"] for row in rows)

    status, why = _take_step(web, daemon, "CONTRACT")
    assert (status, "`silver/visits_enriched` reads full_name" in why) == ("FAILURE", True), why
    assert {"full_name", "title"} <= {field.name for field in DeltaTable(str(table)).schema().fields}
    for _ in range(2):
        status, why = _take_step(web, daemon, "ROLLBACK")
        assert status == "SUCCESS", why
    assert "title" not in {field.name for field in DeltaTable(str(table)).schema().fields}
    assert _people(table) == before, "nothing else has changed"


def _take_step(web: WebUI, daemon: DagsterProcess, step: str) -> tuple[str, str]:
    """A step of the migration of the devices: how its run ended, and its errors."""
    config = {"table": "silver/devices", "migration": "title_for_full_name", "step": step}
    run = web.launch(LOCATION, job="migrate_table", config={"ops": {"take_step": {"config": config}}})
    return _ended(web, daemon, run), str(web.ask(ERRORS, run=run))


def _people(table: Path) -> Counter[str]:
    """All rows but for the columns of a migration that has begun."""
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return multiset({name: value for name, value in row.items() if name != "title"} for row in rows)


def _land(bronze: Path, hours: Sequence[tuple[int, int]], page_of: Mapping[int, str] | None = None) -> None:
    """Thirty visits of each hour, at its 40th minute; so many of them are dated an hour after the broker had taken them.

    `page_of` names other pages for some, by their number among the visits.
    """
    log = TableLog.open(str(bronze))
    known = sum(log.rows_by_partition().values()) if log else 0
    rows = []
    for hour, ahead in hours:
        for n in range(30):
            viewed = datetime(2024, 10, 10, hour, 40, n, tzinfo=UTC)
            place = {"topic_partition": 0, "topic_offset": known + len(rows)}
            taken = viewed - timedelta(hours=1) if n < ahead else viewed
            visit = {
                "visit_id": f"live {known + len(rows)}",
                "user_id": "u",
                "page": (page_of or {}).get(len(rows), "p"),
                "event_time": viewed,
            }
            rows.append({**visit, **place, "append_time": taken, "payload": b"{}"})
    seed(str(bronze), rows, Contract.of(VisitsStream).struct_type())


def _launch(web: WebUI, partition: str, *assets: str) -> str:
    return web.launch(LOCATION, *assets, tags={"dagster/partition": partition})


def _ended(web: WebUI, daemon: DagsterProcess, run: str) -> str:
    """Wait until the run ends; how it did."""
    until(
        lambda: _status(web, run) in ("SUCCESS", "FAILURE", "CANCELED"),
        240,
        lambda: f"the run ends; it is {_status(web, run)}, and the daemon said: {daemon.output()}",
    )
    return _status(web, run)


def _status(web: WebUI, run: str) -> str:
    status: str = web.ask(STATUS, run=run)["runOrError"]["status"]
    return status


def _log(table: Path) -> TableLog:
    log = TableLog.open(str(table))
    assert log is not None
    return log
