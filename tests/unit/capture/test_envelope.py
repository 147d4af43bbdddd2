"""Changes as records: pure, from rows as the stream has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from de_resources.capture import CaptureSource
from de_resources.capture.envelope import (
    ChangeRecord,
    Position,
    TransactionOrigin,
    records,
    snapshot_record,
    truncation,
)
from de_resources.capture.history import parse_lsn
from de_resources.capture.pgoutput import Decoder, Relation, RowChange, Unchanged, UnknownMessage, Value
from de_resources.capture.source import UnusableCaptureName

pytestmark = pytest.mark.pattern("change_data_capture")

PEOPLE = Relation(7, "public.people", (("id", 20), ("name", 25), ("seen", 1184), ("active", 16), ("score", 701)))
ORIGIN = TransactionOrigin(100, datetime(2026, 1, 5, tzinfo=UTC), tx_id=3)
ROW: Mapping[str, Value] = {"id": "1", "name": "a", "seen": "2026-01-05 10:00:00.25+00", "active": "t", "score": "1.5"}


def values(found: list[ChangeRecord]) -> list[Any]:
    return [json.loads(record.value) if record.value is not None else None for record in found]


def test_types_become_jsons_where_json_has_them() -> None:
    (created,) = values(list(records(RowChange(PEOPLE, "I", None, ROW), ["id"], ORIGIN, 0)))
    assert created["after"] == {
        "id": 1, "name": "a", "seen": "2026-01-05T10:00:00.25+00:00", "active": True, "score": 1.5,
    }  # fmt: skip
    assert created["source"]["commit_time"] == "2026-01-05T00:00:00+00:00"


@pytest.mark.parametrize(
    ("column", "text", "plain"),
    [
        ("score", "NaN", "NaN"),
        ("score", "-Infinity", "-Infinity"),
        ("seen", "infinity", "infinity"),
        ("seen", "-infinity", "-infinity"),
        ("active", "f", False),
        ("name", None, None),
        ("name", "", ""),
    ],
)
def test_what_json_cannot_say_stays_text(column: str, text: str | None, plain: object) -> None:
    (created,) = values(list(records(RowChange(PEOPLE, "I", None, {**ROW, column: text}), ["id"], ORIGIN, 0)))
    assert created["after"][column] == plain


def test_a_deletion_is_followed_by_a_tombstone_with_the_same_place() -> None:
    deleted, tombstone = records(RowChange(PEOPLE, "D", ROW, None), ["id"], ORIGIN, 4)
    assert tombstone.value is None
    assert (deleted.key, deleted.position) == (tombstone.key, tombstone.position) == (b'{"id": 1}', Position(100, 4))


def test_a_changed_key_is_a_deletion_and_a_creation() -> None:
    found = list(records(RowChange(PEOPLE, "U", ROW, {**ROW, "id": "2"}), ["id"], ORIGIN, 0))
    assert [(record.key, record.position.sequence) for record in found] == [
        (b'{"id": 1}', 0), (b'{"id": 1}', 0), (b'{"id": 2}', 1),
    ]  # fmt: skip
    assert [value and value["op"] for value in values(found)] == ["d", None, "c"]


def test_a_large_value_that_was_not_sent_comes_from_the_old_image_or_is_named() -> None:
    after = {**ROW, "name": Unchanged.VALUE}
    (known,) = values(list(records(RowChange(PEOPLE, "U", ROW, after), ["id"], ORIGIN, 0)))
    assert known["after"]["name"] == "a"
    assert "unchanged" not in known["source"]
    (named,) = values(list(records(RowChange(PEOPLE, "U", None, after), ["id"], ORIGIN, 0)))
    assert "name" not in named["after"]
    assert named["source"]["unchanged"] == ["name"]


def test_snapshots_and_truncations_are_marked() -> None:
    (row,) = values([snapshot_record(PEOPLE, ROW, ["id"], ORIGIN, 9)])
    assert (row["op"], row["source"]["snapshot"], row["source"]["sequence"]) == ("r", True, 9)
    (gone,) = values([truncation(PEOPLE, ORIGIN, 1)])
    assert (gone["op"], gone["before"], gone["after"]) == ("t", None, None)


def test_a_message_that_the_protocol_does_not_have_stops_the_capture() -> None:
    with pytest.raises(UnknownMessage, match="`z`"):
        Decoder().decode(b"z")
    assert Decoder().decode(b"O") is None


def test_positions_are_numbers() -> None:
    assert parse_lsn("16/B374D848") == 0x16B374D848
    assert Position(5, 9) < Position(6, 0)


@pytest.mark.parametrize("name", ["", "Users", "1st", "a-b", "x" * 60])
def test_a_capture_has_the_name_of_a_slot(name: str) -> None:
    with pytest.raises(UnusableCaptureName):
        CaptureSource(name, ("public.people",), "people")
