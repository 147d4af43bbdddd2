"""The graph over Spark Connect, broker and database: what is found is what the simulator put in.

Of the landed visits, hour by hour: `test_platform_killed`.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from other_reader import multiset
from platform_world import HOURS, KEYS, WORLD, Lakehouse, Platform, Report, key_of

from de_assets.sources.simulator import Defect, devices, land_devices

pytestmark = pytest.mark.services

ALL_HOURS = {"first": KEYS[0], "last": KEYS[-1]}
DEVICES = {"assets": ["bronze/devices", "silver/devices"]}
STREAM = {"assets": ["bronze/visits_stream"]}
LEGACY: dict[str, Any] = {"assets": ["bronze/legacy_visits"], **ALL_HOURS}
AS_A_WHOLE: list[dict[str, Any]] = [DEVICES, {"assets": ["bronze/users_changes"]}, {"assets": ["silver/users"]}, STREAM]
"""What has no partitions: whatever has, is run again by the matrix, or by the tests that it names."""
RUNS = [LEGACY, *AS_A_WHOLE]
FROM_SERVICES = ("bronze/legacy_visits", "bronze/users_changes", "silver/users", *STREAM["assets"])
"""Their checks are executed here: those of the others, with rows in them, by `de run` in `ui/conftest.py`."""
TABLES = [name for run in AS_A_WHOLE for name in run["assets"]]


class Filled:
    """A lake in which every run was made, those without partitions twice, and then the two that had new input once more."""

    def __init__(self, platform: Platform, lake: Lakehouse) -> None:
        self.platform, self.lake = platform, lake
        # What comes from a service is judged, too: the checks that block let everything pass.
        first = ({**run, "checks": run["assets"][0] in FROM_SERVICES} for run in RUNS)
        self.twice: Report = lake.run(*first, *AS_A_WHOLE).succeeded()
        self.before = {table: self.rows(table) for table in ("bronze/devices", "silver/devices", *STREAM["assets"])}
        self.messages = platform.publish(HOURS[2:3])
        land_devices(platform.landing, WORLD, HOURS[-1] + timedelta(days=30))
        self.more: Report = lake.run(DEVICES, STREAM).succeeded()

    def version(self, table: str, turn: int) -> int:
        """The table's version after the first (0) or second (1) run."""
        run = next(i for i, run in enumerate(RUNS) if table in run["assets"]) + turn * len(AS_A_WHOLE)
        return int(self.twice.materialised(table, run)[0]["delta/version"])

    def rows(self, table: str, turn: int | None = None) -> list[dict[str, Any]]:
        version = None if turn is None else self.version(table, turn)
        found: list[dict[str, Any]] = (
            DeltaTable(str(self.lake.root / table), version=version).to_pyarrow_table().to_pylist()
        )
        return found

    def per_hour(self, table: str, column: str) -> dict[str, int]:
        return dict(Counter(key_of(row[column]) for row in self.rows(table, 0)))


@pytest.fixture(scope="module")
def filled(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    fed_platform.up()
    return Filled(fed_platform, Lakehouse(fed_platform.services, tmp_path_factory.mktemp("truth")))


def test_the_rows_per_partition_that_a_range_run_reports_are_the_rows_there_are(filled: Filled) -> None:
    reported = {m["partition"]: m["rows"] for m in filled.twice.materialised("bronze/legacy_visits", 0)}
    assert reported == filled.per_hour("bronze/legacy_visits", "ingestion_hour")


def test_runs_are_on_the_server_and_never_say_its_token(filled: Filled) -> None:
    services = filled.platform.services
    endpoint = services.endpoint("spark_connect")
    assert endpoint is not None
    engines = {m["engine"] for run in filled.twice.runs for m in run["materialised"]}
    assert engines == {f"sc://{endpoint.address}"}
    secrets = [file.read_text().strip() for file in services.settings.secrets.iterdir()]
    told = [filled.twice.output, filled.more.output]
    told += [file.read_bytes().decode(errors="replace") for file in filled.lake.instance.rglob("*") if file.is_file()]
    told += [file.read_text() for file in filled.lake.root.rglob("_delta_log/*.json")]
    assert not [i for i, text in enumerate(told) if any(secret in text for secret in secrets)]


@pytest.mark.pattern("incremental_loader")
def test_an_hour_of_the_database_has_the_rows_that_it_received_in_the_hour(filled: Filled) -> None:
    received = dict(
        filled.platform.query(
            "SELECT to_char(ingestion_time, 'YYYY-MM-DD-HH24:00'), count(*) FROM legacy_visits "
            "WHERE ingestion_time >= '2024-10-10 00:00Z' AND ingestion_time < '2024-10-10 06:00Z' GROUP BY 1"
        )
    )
    assert len(received) == len(KEYS)
    assert filled.per_hour("bronze/legacy_visits", "ingestion_hour") == received


def test_users_have_a_version_for_every_change_but_deletions(filled: Filled) -> None:
    ((changes,),) = filled.platform.query("SELECT count(*) FROM users_history WHERE operation <> 'D'")
    assert len(filled.rows("silver/users", 0)) == changes > 0


@pytest.mark.pattern("change_data_capture")
def test_the_current_users_are_those_of_the_database(filled: Filled) -> None:
    expected = set(filled.platform.query("SELECT id, login, email, country FROM users"))
    current = [row for row in filled.rows("silver/users", 0) if row["is_current"]]
    assert {(row["user_id"], row["login"], row["email"], row["country"]) for row in current} == expected
    assert len(current) == len(expected)


@pytest.mark.pattern("full_loader", "merger", "checkpointer")
@pytest.mark.parametrize("table", TABLES)
def test_a_second_run_leaves_the_same_rows(filled: Filled, table: str) -> None:
    first, second = (multiset(filled.rows(table, turn)) for turn in (0, 1))
    assert first == second
    assert first


@pytest.mark.pattern("merger")
def test_a_merge_that_changes_nothing_commits_nothing(filled: Filled) -> None:
    assert filled.version("silver/devices", 0) == filled.version("silver/devices", 1)
    (again,) = filled.twice.materialised("silver/devices", len(RUNS))
    assert again["skipped"] == "nothing changed"


@pytest.mark.pattern("full_loader", "merger")
def test_a_new_dump_replaces_the_old_one_and_is_merged(filled: Filled) -> None:
    expected = {(d.type, d.version) for d in devices(WORLD, HOURS[-1] + timedelta(days=30))}
    assert len(expected) > len(filled.before["bronze/devices"])
    for table in ("bronze/devices", "silver/devices"):
        assert {(row["type"], row["version"]) for row in filled.rows(table)} == expected
        assert len(filled.rows(table)) == len(expected)
    (merged,) = filled.more.materialised("silver/devices", 0)
    assert merged["skipped"] is None


@pytest.mark.pattern("dead_letter")
def test_the_stream_has_every_message_once_and_explains_each_defect(filled: Filled) -> None:
    everything, ends = filled.before["bronze/visits_stream"], filled.platform.fed
    rows = [row for row in everything if row["topic_offset"] < ends[row["topic_partition"]]]
    truth = [filled.platform.stream_truth.hour(hour) for hour in HOURS[:2]]
    assert len(rows) == sum(hour.lines for hour in truth)
    assert len({(row["topic_partition"], row["topic_offset"]) for row in rows}) == len(rows)
    defects = sum(hour.counts[Defect.MALFORMED] + hour.counts[Defect.MISSING] for hour in truth)
    assert sum(row["error"] is not None for row in rows) == defects > 0
    assert all((row["error"] is None) == (row["visit_id"] is not None) for row in rows)
    (told,) = filled.twice.materialised("bronze/visits_stream", len(RUNS) - 1)
    assert (told["skipped"], told["contract/rows"]) == (None, len(everything))


@pytest.mark.pattern("checkpointer")
def test_an_increment_of_the_stream_has_exactly_the_new_messages(filled: Filled) -> None:
    (idle,) = filled.twice.materialised("bronze/visits_stream", len(RUNS) + len(AS_A_WHOLE) - 1)
    assert idle["skipped"] == idle["observer/not_observed"] == "nothing new at the source"
    old = multiset(filled.before["bronze/visits_stream"])
    new = multiset(filled.rows("bronze/visits_stream"))
    assert old < new
    assert (new - old).total() == filled.messages == filled.platform.stream_truth.hour(HOURS[2]).lines


@pytest.mark.pattern("online_observer")
def test_an_increment_of_the_stream_tells_what_its_own_messages_were_like(filled: Filled) -> None:
    (told,) = filled.more.materialised("bronze/visits_stream", 1)
    hour = filled.platform.stream_truth.hour(HOURS[2])
    defects = hour.counts[Defect.MALFORMED] + hour.counts[Defect.MISSING]
    assert told["observer/not_observed"] is None
    assert (told["observer/rows"], told["observer/error/nulls"]) == (hour.lines, hour.lines - defects)
