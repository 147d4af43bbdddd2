"""Records of a capture as changes: understood, or explained; nothing raises."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from de_assets.bronze.users_changes import understood_or_explained
from de_assets.transforms.data_ingestion.change_data_capture import CLOCKS_DIFFER, in_log_order, with_truncations
from de_assets.transforms.idempotency.slowly_changing_dimension import versions
from de_resources.capture.envelope import TransactionOrigin, records, snapshot_record, truncation
from de_resources.capture.pgoutput import Relation, RowChange

pytestmark = [pytest.mark.pattern("change_data_capture"), pytest.mark.usefixtures("one_shuffle_partition")]

TABLE = Relation(7, "public.users", (("id", 25), ("login", 25), ("email", 25), ("country", 25), ("updated_at", 1184)))
COMMITTED = datetime(2026, 1, 5, 10, tzinfo=UTC)
NEXT_DAY = COMMITTED + timedelta(days=1)
APPENDED = datetime(2026, 1, 5, 10, 0, 0, 250_000)


def user(login: str, day: int, id_: str = "u1") -> dict[str, str]:
    return {
        "id": id_,
        "login": login,
        "email": f"{login}@example.org",
        "country": "at",
        "updated_at": f"2024-01-0{day} 00:00:00+00",
    }


def produced(*changes: tuple[str, dict[str, str] | None, dict[str, str] | None, str | None]) -> list[bytes | None]:
    """The values that the capture produces for (operation, before, after, event time), one commit each."""
    return [
        record.value
        for lsn, (operation, before, after, event_time) in enumerate(changes, start=1)
        for record in records(
            RowChange(TABLE, operation, before, after), ["id"], TransactionOrigin(lsn, COMMITTED, lsn, event_time), 0
        )
    ]


def read(spark: SparkSession, values: Iterable[bytes | None]) -> DataFrame:
    """The changes that these records are, in one part as the shuffles of these tests: nothing has to be moved."""
    rows = [(value, 0, offset, APPENDED) for offset, value in enumerate(values)]
    schema = "value BINARY, partition INT, offset LONG, timestamp TIMESTAMP"
    return understood_or_explained(spark.createDataFrame(rows, schema).coalesce(1))


def understood(spark: SparkSession, values: list[bytes | None]) -> list[Row]:
    return read(spark, values).orderBy("topic_offset").collect()


def test_the_kinds_of_change_and_their_times(spark: SparkSession) -> None:
    created, updated, deleted = understood(
        spark,
        produced(
            ("I", None, user("a", 1), None),
            ("U", user("a", 1), user("b", 2), None),
            ("D", user("b", 2), None, "2024-01-03T00:00:00+00:00"),
        ),
    )
    assert [row.operation for row in (created, updated, deleted)] == ["c", "u", "d"], "the tombstone is no change"
    assert [row.login for row in (created, updated, deleted)] == ["a", "b", "b"]
    assert [row.changed_at.day for row in (created, updated, deleted)] == [1, 2, 3]
    assert [row.delay_ms for row in (created, updated, deleted)] == [250] * 3
    assert json.loads(updated.before)["login"] == "a"
    assert (created.before, deleted.after) == (None, None)
    assert [(row.commit_lsn, row.sequence) for row in (created, updated, deleted)] == [(1, 0), (2, 0), (3, 0)]


def test_a_time_that_states_no_date_or_an_inconceivable_one_gives_way_to_the_commits(spark: SparkSession) -> None:
    """`10:05` would be today's, and another day's in tomorrow's rerun. Said by the row, and by the application."""
    odd = ("10:05", "T10:05:00Z", "2024", "2024-06", "0001-01-01T00:00:00Z", "2263-01-01")
    rows = [{**user("a", 1), "updated_at": said} for said in odd]
    by_row = [("I", None, row, None) for row in rows]
    by_application = [("U", row, row, said) for row, said in zip(rows, odd, strict=True)]
    found = understood(spark, produced(*by_row, *by_application))
    assert [(row.changed_at, row.error) for row in found] == [(row.commit_time, None) for row in found]
    assert len(found) == 2 * len(odd)


def without(envelope: bytes | None, *path: str, value: Any = None) -> bytes:
    told = json.loads(envelope or b"")
    inner = told
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(told).encode()


def renamed(envelope: bytes | None, column: str, name: str) -> bytes:
    told = json.loads(envelope or b"")
    told["after"][name] = told["after"].pop(column)
    return json.dumps(told).encode()


def test_what_is_not_understood_is_explained_and_keeps_nothing_but_its_place(spark: SparkSession) -> None:
    (good,) = produced(("I", None, user("a", 1), None))
    assert good is not None
    cases = {
        b'{"op": "c", "aft': "not a JSON object of the expected form",
        b"\xff\xfe": "not a JSON object of the expected form",
        without(good, "op", value="x"): "unknown operation x",
        without(good, "op"): "unknown operation (none)",
        without(good, "after"): "a change without a row",
        without(good, "after", "id"): "id is missing",
        renamed(good, "login", "login_name"): "renamed or dropped at the source: login",
        renamed(renamed(good, "country", "land"), "updated_at", "at"): (
            "renamed or dropped at the source: country, updated_at"
        ),
        without(good, "source", "commit_lsn"): "it does not say its position",
        without(good, "source", "commit_time", value="soon"): "commit_time is no timestamp",
        without(good, "source", "commit_time", value="10:05"): "commit_time is no timestamp",
        without(
            good, "source", "unchanged", value=["email"]
        ): "a large value was not sent: the table needs REPLICA IDENTITY FULL",
    }
    rows = understood(spark, [*cases, good])
    assert [row.error for row in rows] == [*cases.values(), None]
    for row in rows[:-1]:
        kept = {name for name, value in row.asDict().items() if value is not None}
        assert kept == {"payload", "error", "topic_partition", "topic_offset", "append_time"}


def test_versions_follow_from_the_set_of_changes_whatever_their_order(spark: SparkSession) -> None:
    """Of three users at once, of each in another order."""

    def moved(case: int) -> list[bytes | None]:
        one, other = f"u{case}", f"v{case}"
        return produced(
            ("I", None, user("a", 1, one), None),
            ("U", user("a", 1, one), user("b", 2, one), None),
            ("U", user("b", 2, one), user("b", 3, other), "2024-01-03T00:00:00+00:00"),
            ("D", user("b", 3, other), None, "2024-01-04T00:00:00+00:00"),
        )

    orders = (moved(0), moved(1)[::-1], moved(2) + moved(2)[:3])
    found = versions_of(read(spark, chain(*orders)))
    expected = {row for n in range(3) for row in ((f"u{n}", "a", 1, 2), (f"u{n}", "b", 2, 3), (f"v{n}", "b", 3, 4))}
    assert {(r.user_id, r.login, r.valid_from.day, r.valid_to.day) for r in found} == expected
    assert len(found) == len(expected)


def versions_of(changes: DataFrame) -> list[Row]:
    """As silver computes them: of changes that bronze has understood and kept."""
    changes = changes.localCheckpoint()
    ordered = in_log_order(with_truncations(changes, "user_id"), "user_id", "changed_at")
    deleted = F.col("operation") == "d"
    return versions(ordered, "user_id", ["login"], "changed_at", deleted, ("commit_lsn", "sequence")).collect()


def emptied(lsn: int, *, snapshot: tuple[dict[str, str], ...] = (), at: datetime = COMMITTED) -> list[bytes | None]:
    """A truncation; with rows, a snapshot, which begins with one."""
    origin = TransactionOrigin(lsn, at, lsn, snapshot=bool(snapshot))
    return [
        truncation(TABLE, origin, 0).value,
        *(snapshot_record(TABLE, row, ["id"], origin, place).value for place, row in enumerate(snapshot, start=1)),
    ]


def test_a_truncation_ends_every_row_that_was_there_and_none_that_came_later(spark: SparkSession) -> None:
    before = produced(("I", None, user("a", 1), None), ("I", None, user("b", 2, "u2"), None))
    (again,) = produced(("I", None, user("c", 3), None))
    later = without(
        without(again, "source", "commit_lsn", value=9), "after", "updated_at", value="2026-01-06T00:00:00Z"
    )
    values = [*before, *emptied(5), later]
    for order in (values * 2, values[::-1]):
        frame = read(spark, order)
        found = sorted((r.user_id, r.login, r.valid_to) for r in versions_of(frame))
        naive = COMMITTED.replace(tzinfo=None)
        assert found == [("u1", "a", naive), ("u1", "c", None), ("u2", "b", naive)]


def test_a_second_snapshot_ends_what_it_does_not_have_and_leaves_what_is_unchanged_as_one_version(
    spark: SparkSession,
) -> None:
    stays, changes, goes = user("a", 1), user("b", 1, "u2"), user("c", 1, "u3")
    changed, new = user("b2", 2, "u2"), user("d", 4, "u4")
    values = [*emptied(1, snapshot=(stays, changes, goes)), *emptied(7, snapshot=(stays, changed, new), at=NEXT_DAY)]
    frame = read(spark, values)
    found = sorted((r.user_id, r.login, r.valid_to) for r in versions_of(frame))
    then = NEXT_DAY.replace(tzinfo=None)
    assert found == [
        ("u1", "a", None), ("u2", "b", then), ("u2", "b2", None), ("u3", "c", then), ("u4", "d", None),
    ]  # fmt: skip


NOON = "2024-01-05T12:00:00+00:00"


def test_the_log_and_not_the_clock_says_what_came_last(spark: SparkSession) -> None:
    """The history of a user for each case, all of them in one log."""

    def one(case: int, login: str, day: int) -> dict[str, str]:
        return user(login, day, f"u{case}")

    histories: list[list[Any]] = [
        # One instant: deleted and created again; changed twice, the greater content first.
        [("I", None, one(0, "a", 1), None), ("D", one(0, "a", 1), None, NOON), ("I", None, one(0, "b", 1), NOON)],
        [
            ("I", None, one(1, "a", 1), NOON),
            ("U", one(1, "a", 1), one(1, "z", 1), NOON),
            ("U", one(1, "z", 1), one(1, "c", 1), NOON),
        ],
        # The row's own stamp is older than the commit that deleted the one before it; and a clock that goes back.
        [("I", None, one(2, "a", 1), None), ("D", one(2, "a", 1), None, None), ("I", None, one(2, "b", 2), None)],
        [("I", None, one(3, "a", 3), None), ("U", one(3, "a", 3), one(3, "b", 2), None)],
    ]
    frame = read(spark, produced(*chain(*histories)))
    current = {row.user_id: row.login for row in versions_of(frame) if row.is_current}
    assert current == {"u0": "b", "u1": "c", "u2": "b", "u3": "b"}


MICROSECOND = timedelta(microseconds=1)
COMMITS = {hour: datetime(2026, 1, 5, hour) for hour in range(10, 18)}
SAID_AND_TRUE = {
    10: (COMMITS[10] - timedelta(minutes=1), COMMITS[10] - timedelta(minutes=1)),
    11: (datetime(2099, 1, 1), COMMITS[11]),
    12: (COMMITS[12] - timedelta(minutes=1), COMMITS[12] - timedelta(minutes=1)),
    13: (COMMITS[13] + CLOCKS_DIFFER, COMMITS[14]),
    14: (COMMITS[14] - timedelta(minutes=1), COMMITS[14]),
    15: (COMMITS[15] + CLOCKS_DIFFER + MICROSECOND, COMMITS[15]),
    16: (COMMITS[16], COMMITS[16]),
    17: (datetime(9999, 12, 31, 23, 59, 59), COMMITS[17]),
}
"""What the application said of the change that was committed in an hour, and when it happened."""


def test_a_time_after_the_commit_is_not_believed_and_moves_no_later_change(spark: SparkSession) -> None:
    assert timedelta(hours=1) == CLOCKS_DIFFER
    rows = [
        (user, hour, 0, COMMITS[hour], said)
        for user in ("u1", "u2")
        for hour, (said, _) in SAID_AND_TRUE.items()
        if user == "u1" or hour == 16
    ]
    schema = "user_id STRING, commit_lsn LONG, sequence INT, commit_time TIMESTAMP, changed_at TIMESTAMP"
    found = in_log_order(spark.createDataFrame(rows, schema).coalesce(1), "user_id", "changed_at").collect()
    expected = {("u1", hour): true for hour, (_, true) in SAID_AND_TRUE.items()} | {("u2", 16): COMMITS[16]}
    assert {(row.user_id, row.commit_lsn): row.changed_at for row in found} == expected


def test_a_change_of_the_year_2099_begins_and_ends_when_it_was_committed(spark: SparkSession) -> None:
    """From records of the capture, also where a deletion says its time."""
    changes = [
        ("I", None, user("a", 1), None),
        ("U", user("a", 1), user("b", 2), "2099-01-01T00:00:00+00:00"),
        ("D", user("b", 2), None, "2099-01-02T00:00:00+00:00"),
        ("I", None, user("c", 3), None),
    ]
    values = [
        without(value, "source", "commit_time", value=str(COMMITTED + timedelta(days=place)))
        for place, value in enumerate(value for value in produced(*changes) if value is not None)
    ]
    frame = read(spark, values)
    found = sorted((row.login, row.valid_from, row.valid_to) for row in versions_of(frame))
    naive = COMMITTED.replace(tzinfo=None)
    second, third = naive + timedelta(days=1), naive + timedelta(days=2)
    assert found == [("a", datetime(2024, 1, 1), second), ("b", second, third), ("c", third, None)]
