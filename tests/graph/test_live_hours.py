"""Live visits by the hour: hours that are over are judged and shown, and a person decides about one that is held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from instances import silent_instance
from lineage_truth import problems
from seeding import seed

from de_assets.automation.maintenance.publication import PUBLISH, ROLL_BACK, NoSuchPartition, publication_jobs
from de_assets.contracts.visits import VisitsStream
from de_assets.gold.traffic_live import traffic_live
from de_assets.partitions import CALENDAR
from de_assets.resources import resources
from de_assets.silver.visits_live_hours import FEW, visits_live_hours
from de_checks.contract import contract_check
from de_checks.publication import NAME, publication_check
from de_resources.contract import Contract
from de_resources.delta.publish.decisions import waiting
from de_resources.delta.publish.staging import staging_of
from de_resources.delta.read_versions import version_read
from de_resources.delta.table import Table
from de_resources.delta.write import crash_points
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("audit_write_audit_publish")

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
ASSET = "silver/visits_live_hours"
BRONZE = dg.AssetSpec(["bronze", "visits_stream"])
CHECKS = [publication_check(visits_live_hours), contract_check(traffic_live)]
"""Those whose verdict is looked at here."""


def at(hour: int, minute: int = 0) -> datetime:
    return CALENDAR.start + timedelta(hours=hour, minutes=minute)


def key(hour: int) -> str:
    return at(hour).strftime("%Y-%m-%d-%H:%M")


@dataclass(frozen=True)
class Visit:
    """What was sent: by whom, when it was viewed, and whether the broker took it before that."""

    id: str
    viewed: datetime
    user: str = "u"
    ahead: bool = False


@dataclass
class Live:
    """A topic as bronze has it, its hours, and who counts them."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance
    sent: int = 0
    shown: dict[int, list[Visit]] = field(default_factory=lambda: defaultdict(list))

    def land(self, *visits: Visit, broken: int = 0) -> None:
        """Bronze takes these records, and some that nobody understands."""
        rows: list[dict[str, Any]] = []
        for visit in visits:
            taken = visit.viewed + (timedelta(hours=-2) if visit.ahead else timedelta(seconds=3))
            viewed = {"visit_id": visit.id, "user_id": visit.user, "page": "p", "event_time": visit.viewed}
            rows.append({**viewed, "append_time": taken, "payload": b"{}"})
        rows += [{"error": "not understood", "append_time": at(0), "payload": b"no JSON"}] * broken
        placed = [{**row, "topic_partition": 0, "topic_offset": self.sent + n} for n, row in enumerate(rows)]
        self.sent += len(placed)
        seed(str(self.root / "bronze/visits_stream"), placed, Contract.of(VisitsStream).struct_type())

    @cached_property
    def resources(self) -> dict[str, Any]:
        """What the runs here ask for."""
        settings = Settings.from_environment({"DE_HOME": str(self.root.parent), "LAKE_ROOT": str(self.root)})
        every = resources(settings, self.engine)
        return {name: every[name] for name in ("io_manager", "lake", "spark")}

    def follow(self, *only: dg.AssetsDefinition) -> dict[str, dg.AssetCheckEvaluation]:
        """A run of the hours and of who counts them, or of these only; the verdicts on the hours."""
        result = dg.materialize(
            [BRONZE, visits_live_hours, traffic_live, *CHECKS],
            instance=self.instance,
            resources=self.resources,
            run_config=QUIET,
            selection=list(only) or None,
        )
        return {f"{e.asset_key.path[-1]}/{e.check_name}": e for e in result.get_asset_check_evaluations()}

    def version_read(self) -> int | None:
        """How far the newest materialisation of the hours says that it has read of bronze."""
        event = self.instance.get_latest_materialization_event(visits_live_hours.key)
        assert event is not None
        assert event.asset_materialization is not None
        stream = DeltaTable(str(self.root / "bronze/visits_stream"))
        return version_read(event.asset_materialization.metadata, "bronze.visits_stream", str(stream.metadata().id))

    def decide(self, job: str, window: str, reason: str = "looked at it") -> dg.ExecuteInProcessResult:
        """A person's decision about one hour."""
        (chosen,) = (j for j in publication_jobs([visits_live_hours]) if j.name == job)
        (op,) = chosen.graph.node_defs
        config = {"table": ASSET, "partition": window, "reason": reason}
        try:
            return chosen.execute_in_process(
                instance=self.instance,
                resources={"lake": self.resources["lake"]},
                run_config={"ops": {op.name: {"config": config}}, **QUIET},
            )
        except dg.DagsterError as error:
            raise error.__cause__ or error from None

    def hours(self, *, engine: bool = False) -> dict[str, list[str]]:
        """The visits that readers see, by hour: without an engine, or by it."""
        if engine:
            rows = self.engine.spark_session.read.format("delta").load(self.table.uri).collect()
            found = [(row.event_hour.replace(tzinfo=UTC), row.visit_id) for row in rows]
        else:
            table = DeltaTable(self.table.uri).to_pyarrow_table(columns=["event_hour", "visit_id"])
            found = [(row["event_hour"], row["visit_id"]) for row in table.to_pylist()]
        seen: dict[str, list[str]] = defaultdict(list)
        for hour, visit in found:
            seen[hour.strftime("%Y-%m-%d-%H:%M")].append(visit)
        return {each: sorted(ids) for each, ids in sorted(seen.items())}

    def traffic(self) -> list[tuple[str, int, int]]:
        rows = DeltaTable(str(self.root / "gold/traffic_live")).to_pyarrow_table().to_pylist()
        return sorted((row["event_hour"].strftime("%Y-%m-%d-%H:%M"), row["visits"], row["users"]) for row in rows)

    @property
    def table(self) -> Table:
        return Table("silver.visits_live_hours", str(self.root / "silver/visits_live_hours"))


MANY = [Visit(f"c{n}", at(2, 10), ahead=True) for n in range(FEW)]
"""An hour of a producer whose clock is ahead."""


@pytest.fixture
def live(engine: SparkEngine, tmp_path: Path) -> Iterator[Live]:
    assert engine.spark_session is not None
    with silent_instance() as instance:
        yield Live(engine, tmp_path / "lake", instance)


@pytest.mark.red_check("is_published")
def test_a_bad_hour_is_held_while_others_are_counted_and_a_person_decides_about_it(live: Live) -> None:
    """An hour with few visits, of which one came twice; one of a producer whose clock is ahead; one that goes on."""
    live.land(
        Visit("a", at(1, 5)), Visit("a", at(1, 5)), Visit("b", at(1, 59), "v"), Visit("e", at(1, 9)), Visit("f", at(1, 9)),
        Visit("g", at(1, 9)), *MANY, Visit("d", at(3, 31)), broken=2,
    )  # fmt: skip
    definitions = dg.Definitions([BRONZE, visits_live_hours, traffic_live], resources=live.resources)
    verdict = live.follow(visits_live_hours)[f"visits_live_hours/{NAME}"]
    assert live.hours() == {key(1): ["a", "a", "b", "e", "f", "g"]}
    assert problems(live.instance, definitions) == {ASSET: {}}, "every column leads to what it is computed from"
    assert (verdict.passed, verdict.blocking) == (False, False)
    told = {name: value.value for name, value in verdict.metadata.items()}
    assert (told["held"], told["shown"], told["open"]) == (key(2), key(1), key(3))
    assert f"| {key(2)}, share dated in the future | fail | It is 1, accepted is " in str(told["audits"])
    assert f"| {key(1)}, share of copies | passed |" in str(told["audits"])
    assert live.version_read() == DeltaTable(str(live.root / "bronze/visits_stream")).version()

    staged = _die_before_the_next_hour_is_shown(live)
    # The next runs go on, and the verdict tells of what waits as long as it waits.
    again = live.follow(visits_live_hours)[f"visits_live_hours/{NAME}"]
    assert live.version_read() == DeltaTable(str(live.root / "bronze/visits_stream")).version()
    assert (again.passed, again.metadata["shown"].value, again.metadata["held"].value) == (False, key(3), key(2))
    assert f"| {key(2)}, share dated in the future | fail |" in str(again.metadata["audits"].value)
    assert [held.key for held in waiting(live.table)] == [key(2)]
    assert DeltaTable(live.table.uri).version() == 2, "two hours were shown, each once"
    assert DeltaTable(staging_of(live.table).uri).version() == staged, "and what was staged is staged once"

    with pytest.raises(NoSuchPartition, match="has no window"):
        live.decide(PUBLISH, "2024-13-01-00:00")
    (output,) = (e for e in live.decide(PUBLISH, key(2)).events_for_node("publish_one") if e.is_successful_output)
    assert output.step_output_data.metadata["publication/bytes_written"].value == 0
    ahead = sorted(visit.id for visit in MANY)
    shown = {key(1): ["a", "a", "b", "e", "f", "g"], key(2): ahead, key(3): ["d"]}
    assert live.hours() == live.hours(engine=True) == shown
    newest = _newest_verdict(live)
    assert (newest.passed, newest.metadata["held"].value, waiting(live.table)) == (True, "none", [])
    counted = live.follow(traffic_live)
    assert live.traffic() == [(key(1), 5, 2), (key(2), FEW, 1), (key(3), 1, 1)]
    assert counted["traffic_live/rows_meet_contract"].passed
    assert problems(live.instance, definitions)["gold/traffic_live"] == {}


def _die_before_the_next_hour_is_shown(live: Live) -> int:
    """A run has staged and judged another hour when it dies: readers see nothing of it. The version of what it has staged."""

    def die(_: str) -> None:
        raise RuntimeError("killed")

    before = live.hours()
    live.land(Visit("h", at(4, 40)))
    with crash_points.at("before_switch", die), pytest.raises(Exception, match="killed"):
        live.follow(visits_live_hours)
    assert live.hours() == before
    staged = DeltaTable(staging_of(live.table).uri)
    ids = staged.to_pyarrow_table(columns=["visit_id"])["visit_id"].to_pylist()
    assert sorted(ids) == sorted(["a", "a", "b", "e", "f", "g", *(visit.id for visit in MANY), "d", "h"])
    return staged.version()


def test_a_late_visit_has_its_hour_judged_again_and_the_hour_is_taken_back(live: Live) -> None:
    live.land(Visit("a", at(1, 5)), Visit("b", at(2, 31)))
    assert live.follow()[f"visits_live_hours/{NAME}"].passed
    live.land(Visit("late", at(1, 6)), *[Visit("b", at(2, 40))] * FEW, Visit("c", at(4)))
    verdict = live.follow()[f"visits_live_hours/{NAME}"]
    assert live.hours() == {key(1): ["a", "late"]}
    assert verdict.metadata["held"].value == key(2), "nothing but copies of one visit"
    assert live.traffic() == [(key(1), 2, 1)]

    live.decide(ROLL_BACK, key(1), reason="the late one is no visit")
    assert live.hours() == {key(1): ["a"]}
    assert not _newest_verdict(live).passed, "another hour waits still"
    live.follow()
    assert (live.hours(), live.traffic()) == ({key(1): ["a"]}, [(key(1), 1, 1)])


def test_visits_of_no_hour_of_the_calendar_are_told_and_never_shown(live: Live) -> None:
    year = timedelta(days=365)
    live.land(Visit("a", at(1, 5)), Visit("past", at(0) - year), Visit("future", at(0) + year), Visit("b", at(2, 40)))
    live.follow()
    assert live.hours() == {key(1): ["a"]}
    newest = live.instance.fetch_materializations(dg.AssetKey(ASSET.split("/")), limit=1).records[0]
    assert newest.asset_materialization is not None
    assert newest.asset_materialization.metadata["windows/rows_outside"].value == 2


def _newest_verdict(live: Live) -> dg.AssetCheckEvaluation:
    check = dg.AssetCheckKey(dg.AssetKey(ASSET.split("/")), NAME)
    (record,) = live.instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    newest = live.instance.fetch_materializations(dg.AssetKey(ASSET.split("/")), limit=1).records[0]
    assert record.evaluation is not None
    target = record.evaluation.target_materialization_data
    assert target is not None
    assert target.storage_id == newest.storage_id
    return record.evaluation
