"""From captured changes to versions, and along their change data feed to counts: what is kept equals what is computed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable, write_deltalake
from instances import silent_instance
from red_checks import told

from de_assets.bronze.users_changes import checks, understood_or_explained
from de_assets.contracts.users import UsersChanges
from de_assets.gold.users_by_country import users_by_country
from de_assets.resources import resources
from de_assets.silver.users import users
from de_checks.lag import version_lag_check
from de_resources.capture.envelope import TransactionOrigin, records, snapshot_record, truncation
from de_resources.capture.pgoutput import Relation, RowChange
from de_resources.contract import Contract
from de_resources.delta.log.feed import CHANGE_TYPE, FeedUnavailable, changes
from de_resources.delta.read_versions import READ
from de_resources.delta.table import Table
from de_resources.lake import Lake
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("change_data_capture")

TABLE = Relation(7, "public.users", (("id", 25), ("login", 25), ("email", 25), ("country", 25), ("updated_at", 1184)))
START = datetime(2026, 1, 5, tzinfo=UTC)
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class Users:
    """A table of users as its database has it, what was captured of it, and the lake that follows."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance
    now: dict[str, dict[str, str]] = field(default_factory=dict)
    captured: list[tuple[bytes | None, int]] = field(default_factory=list)
    lsn: int = 0

    def put(self, id_: str, country: str, new_id: str | None = None) -> None:
        """Create, change, or move to another key."""
        before = self.now.pop(id_, None)
        after = {"id": new_id or id_, "login": id_, "email": f"{id_}@example.org", "country": country}
        self.now[after["id"]] = after
        self._capture("U" if before else "I", before, after)

    def remove(self, id_: str) -> None:
        self._capture("D", self.now.pop(id_), None)

    def _capture(self, operation: str, before: dict[str, str] | None, after: dict[str, str] | None) -> None:
        self.lsn += 1
        time = START + timedelta(minutes=self.lsn)
        origin = TransactionOrigin(self.lsn, time, self.lsn, event_time=time.isoformat())
        change = RowChange(TABLE, operation, *({**r, "updated_at": f"{time}"} if r else None for r in (before, after)))
        self.captured += [(record.value, self.lsn) for record in records(change, ["id"], origin, 0)]

    def truncate(self) -> None:
        self.now.clear()
        self._emptied(snapshot=False)

    def snapshot(self) -> None:
        """All that there is, as a capture tells it that begins again."""
        origin = self._emptied(snapshot=True)
        for place, row in enumerate(self.now.values(), start=1):
            record = snapshot_record(TABLE, {**row, "updated_at": f"{START}"}, ["id"], origin, place)
            self.captured.append((record.value, self.lsn * 100 + place))

    def _emptied(self, *, snapshot: bool) -> TransactionOrigin:
        self.lsn += 1
        origin = TransactionOrigin(self.lsn, START + timedelta(minutes=self.lsn), self.lsn, snapshot=snapshot)
        self.captured.append((truncation(TABLE, origin, 0).value, self.lsn))
        return origin

    def load(self, values: list[tuple[bytes | None, int]] | None = None) -> None:
        """Append to bronze what was captured since the last load, or these records (again)."""
        if values is None:
            values, self.captured = self.captured, []
        rows = [(value, 0, offset, START + timedelta(days=1, minutes=self.lsn)) for value, offset in values]
        frame = self.engine.spark_session.createDataFrame(
            rows, "value BINARY, partition INT, offset LONG, timestamp TIMESTAMP"
        )
        # Understood by the engine, as bronze does it, and stored without it.
        write_deltalake(
            str(self.root / "bronze/users_changes"), understood_or_explained(frame).toArrow(), mode="append"
        )

    @property
    def resources(self) -> dict[str, Any]:
        settings = Settings.from_environment({"DE_HOME": str(self.root.parent), "LAKE_ROOT": str(self.root)})
        return resources(settings, self.engine)

    def run(self) -> dict[str, Any]:
        """Materialise versions and counts; their metadata by asset."""
        upstream = dg.AssetSpec(["bronze", "users_changes"], metadata={"contract": Contract.of(UsersChanges).path})
        result = dg.materialize(
            [upstream.with_io_manager_key("io_manager"), users, users_by_country],
            instance=self.instance,
            resources=self.resources,
            run_config=QUIET,
        )
        return {
            event.asset_key.path[-1]: {k: v.value for k, v in event.materialization.metadata.items()}
            for event in result.get_asset_materialization_events()
        }

    def unread(self) -> int:
        """Commits of users that the counts have not taken in, as their check says."""
        check = version_lag_check(users_by_country, users.specs)
        job = dg.define_asset_job("look", selection=dg.AssetSelection.checks(check))
        looked = dg.Definitions([users_by_country], asset_checks=[check], jobs=[job], resources=self.resources)
        run = looked.resolve_job_def("look").execute_in_process(instance=self.instance)
        (found,) = run.get_asset_check_evaluations()
        return int(str(found.metadata["lag/commits_max"].value))

    def counted(self) -> Counter[str]:
        rows = DeltaTable(str(self.root / "gold/users_by_country")).to_pyarrow_table().to_pylist()
        return Counter({row["country"]: row["users"] for row in rows})

    def expected(self) -> Counter[str]:
        return Counter(user["country"] for user in self.now.values())

    @property
    def versions(self) -> Table:
        return Table("silver.users", str(self.root / "silver/users"))


@pytest.fixture
def world(engine: SparkEngine, tmp_path: Path) -> Iterator[Users]:
    assert engine.spark_session is not None
    with silent_instance() as instance:
        yield Users(engine, tmp_path / "lake", instance)


@dataclass
class Followed:
    """A first run over all users, one over what has changed since, and one over records that came again: what each has told,
    counted and left unread."""

    world: Users
    told: list[dict[str, Any]] = field(default_factory=list)
    counted: list[Counter[str]] = field(default_factory=list)
    expected: list[Counter[str]] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)

    def run(self, values: list[tuple[bytes | None, int]] | None = None) -> None:
        self.world.load(values)
        self.told.append(self.world.run())
        self.counted.append(self.world.counted())
        self.expected.append(self.world.expected())
        self.unread.append(self.world.unread())


@pytest.fixture(scope="module")
def followed(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    with silent_instance() as instance:
        world = Users(engine, tmp_path_factory.mktemp("followed") / "lake", instance)
        found = Followed(world)
        for number in range(20):
            world.put(f"u{number}", ("at", "pl", "fr")[number % 3])
        every = list(world.captured)
        found.run()
        world.put("u0", "fr")  # moves
        world.put("u1", "pl", new_id="u100")  # has another key
        world.remove("u2")
        world.put("u200", "se")
        for number in range(3, 20, 3):
            world.remove(f"u{number}")  # a country loses its last user
        every += world.captured
        found.run()
        found.run(every[::-1])
        yield found


def test_counts_follow_the_changes_and_equal_those_of_the_database(followed: Followed) -> None:
    first, second, _ = followed.told
    assert first["users_by_country"]["computed"].startswith("from all users")
    assert second["users_by_country"]["computed"].startswith("from the changes of versions")
    assert followed.counted == followed.expected
    assert "at" not in followed.counted[1]
    world = followed.world
    newest = DeltaTable(str(world.root / "silver/users")).version()
    assert second["users_by_country"][READ]["silver.users"]["version"] == newest > first["users"]["delta/version"]

    log = world.versions.log()
    assert log is not None
    told = changes(world.engine.spark_session, world.versions, log, int(first["users"]["delta/version"]))
    kinds = Counter(row[CHANGE_TYPE] for row in told.collect())
    assert kinds["update_preimage"] == kinds["update_postimage"] > 0
    assert kinds["insert"] == 3, "a moved user, a new key, a new user: nothing else is written"


@pytest.mark.pattern("lag_detector")
def test_after_each_run_the_counts_are_level_with_the_users(followed: Followed) -> None:
    assert followed.unread == [0, 0, 0]


def test_records_that_come_again_change_nothing(followed: Followed) -> None:
    _, before, after = followed.told
    assert after["users"]["skipped"] == "nothing changed"
    assert after["users_by_country"]["computed"].startswith("nothing")
    assert after["users_by_country"]["delta/version"] == before["users_by_country"]["delta/version"]
    assert followed.counted[2] == followed.counted[1]


def test_users_end_with_a_truncation_and_with_a_snapshot_that_does_not_have_them(world: Users) -> None:
    world.put("u1", "at")
    world.put("u2", "pl")
    world.truncate()
    world.put("u3", "fr")
    world.put("u4", "se")
    world.load()
    world.run()
    assert world.counted() == world.expected() == {"fr": 1, "se": 1}

    world.remove("u3")
    world.captured.clear()  # nobody read the log
    world.snapshot()
    world.load()
    world.run()
    assert world.counted() == world.expected() == {"se": 1}


@pytest.mark.red_check("changes_are_understood")
def test_a_renamed_column_is_red_until_a_snapshot_made_up_for_it(world: Users) -> None:
    check = next(each for each in checks if "changes_are_understood" in str(next(iter(each.check_keys)).name))

    def judged() -> dg.AssetCheckResult:
        with dg.build_op_context({"lake": Lake(root_uri=str(world.root), spark=world.engine)}) as context:
            verdict = check(context)
        told("changes_are_understood", passed=verdict.passed)
        return verdict

    world.put("u1", "at")
    world.load()
    assert judged().passed

    world.put("u1", "pl")
    ((value, place),) = world.captured
    world.captured = [((value or b"").replace(b'"country"', b'"land"'), place)]
    world.load()
    red = judged()
    assert not red.passed
    assert "renamed or dropped at the source: country" in str(red.description)
    assert "capture_anew" in str(red.description)
    world.run()
    assert world.counted() == {"at": 1}, "no null is counted as a country"

    world.snapshot()
    world.load()
    assert judged().passed
    world.run()
    assert world.counted() == world.expected() == {"pl": 1}


def test_without_the_feed_the_counts_are_computed_anew_and_say_so(world: Users) -> None:
    world.put("u1", "at")
    world.load()
    world.run()
    world.engine.spark_session.sql(
        f"ALTER TABLE {world.versions.sql} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')"
    )
    log = world.versions.log()
    assert log is not None
    with pytest.raises(FeedUnavailable, match="enableChangeDataFeed"):
        changes(world.engine.spark_session, world.versions, log, 0)

    world.put("u2", "pl")
    world.load()
    assert world.run()["users_by_country"]["computed"].startswith("from all users: `delta.enableChangeDataFeed`")
    assert world.counted() == world.expected()
