"""The decoder on what a PostgreSQL server really sent: `tests/data/pgoutput.json`, one transaction per step.

`people` has REPLICA IDENTITY FULL, `things` the default, that is the primary key; `notes` is stored apart when it is long.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from de_resources.capture.envelope import TransactionOrigin, records
from de_resources.capture.pgoutput import (
    Begin,
    Commit,
    Decoded,
    Decoder,
    Message,
    Relation,
    RowChange,
    Truncate,
    Unchanged,
    UnknownMessage,
)

pytestmark = pytest.mark.pattern("change_data_capture")

RECORDED = Path(__file__).parents[2] / "data" / "pgoutput.json"
UNSENT = Unchanged.VALUE
ROW = {"id": "1", "name": 'Ä "x"', "seen": "2024-02-29 10:00:00.5+00", "notes": None}


@pytest.fixture(scope="module")
def transactions() -> dict[str, list[Decoded]]:
    """All of the stream, in its order, by the statement that it came from."""
    decoder = Decoder()
    steps = json.loads(RECORDED.read_text())["steps"]
    decoded = {step["sql"]: [decoder.decode(bytes.fromhex(m)) for m in step["messages"]] for step in steps}
    return {sql: [message for message in messages if message is not None] for sql, messages in decoded.items()}


def change_of(transactions: dict[str, list[Decoded]], statement: str) -> RowChange:
    """The one change of the one step whose statement contains the text."""
    (messages,) = [messages for sql, messages in transactions.items() if statement in sql]
    (change,) = [message for message in messages if isinstance(message, RowChange)]
    return change


def test_a_transaction_says_when_it_committed_and_how_far_the_log_goes(
    transactions: dict[str, list[Decoded]],
) -> None:
    ends = [(messages[0], messages[-1]) for messages in transactions.values()]
    for begin, commit in ends:
        assert isinstance(begin, Begin)
        assert isinstance(commit, Commit)
        assert begin.lsn == commit.lsn < commit.end_lsn
        assert begin.commit_time.tzinfo is UTC
        assert begin.commit_time > datetime(2025, 1, 1, tzinfo=UTC)
    positions = [begin.lsn for begin, _ in ends if isinstance(begin, Begin)]
    assert positions == sorted(set(positions))


@pytest.mark.parametrize(
    ("statement", "operation", "before", "after"),
    [
        ("INSERT INTO people VALUES", "I", None, ROW),
        ("UPDATE people SET name", "U", ROW, {**ROW, "name": None}),
        ("UPDATE people SET id", "U", {**ROW, "name": None}, {**ROW, "id": "2", "name": None}),
        ("DELETE FROM people", "D", {**ROW, "id": "2", "name": None}, None),
    ],
)
def test_with_the_full_identity_both_images_are_whole(
    transactions: dict[str, list[Decoded]], statement: str, operation: str, before: object, after: object
) -> None:
    change = change_of(transactions, statement)
    assert (change.relation.name, change.operation) == ("public.people", operation)
    assert (change.before, change.after) == (before, after)


@pytest.mark.parametrize(
    ("statement", "before", "after"),
    [
        ("INSERT INTO things", None, {"id": "1", "label": "a", "notes": "x" * 3000}),
        ("UPDATE things SET label", None, {"id": "1", "label": "b", "notes": UNSENT}),
        ("UPDATE things SET id", {"id": "1"}, {"id": "2", "label": "b", "notes": UNSENT}),
        ("DELETE FROM things", {"id": "2"}, None),
    ],
)
def test_with_the_default_identity_the_old_image_is_the_key_and_no_nulls(
    transactions: dict[str, list[Decoded]], statement: str, before: object, after: object
) -> None:
    change = change_of(transactions, statement)
    assert (change.before, change.after) == (before, after)


def test_a_value_that_was_not_sent_is_named_in_the_record_also_when_the_key_changed(
    transactions: dict[str, list[Decoded]],
) -> None:
    moved = change_of(transactions, "UPDATE things SET id")
    found = records(moved, ["id"], TransactionOrigin(1, datetime(2026, 1, 5, tzinfo=UTC), 1), 0)
    deleted, _, created = [json.loads(r.value) if r.value else None for r in found]
    assert deleted["before"] == {"id": 1}
    assert created["after"] == {"id": 2, "label": "b"}
    assert created["source"]["unchanged"] == ["notes"]


def test_the_table_is_described_ahead_of_its_first_change_and_after_each_alteration(
    transactions: dict[str, list[Decoded]],
) -> None:
    shapes = [
        [name for name, _ in message.columns]
        for messages in transactions.values()
        for message in messages
        if isinstance(message, Relation) and message.name == "public.people"
    ]
    assert shapes[0] == ["id", "name", "seen", "notes"]
    assert ["id", "name", "seen", "notes", "is_active"] in shapes
    assert ["id", "name", "seen", "is_active"] in shapes
    assert shapes[-1] == ["id", "label", "seen", "is_active"]


def test_rows_have_the_shape_that_the_table_had_then(transactions: dict[str, list[Decoded]]) -> None:
    added, dropped = change_of(transactions, "ADD COLUMN"), change_of(transactions, "DROP COLUMN")
    assert added.after == {"id": "4", "name": None, "seen": None, "notes": None, "is_active": "t"}
    assert dropped.after == {"id": "5", "name": None, "seen": None, "is_active": "f"}
    renamed = change_of(transactions, "RENAME COLUMN")
    assert renamed.before == {"id": "5", "label": None, "seen": None, "is_active": "f"}
    assert renamed.after == {"id": "5", "label": "z", "seen": None, "is_active": "f"}


def test_an_applications_message_comes_ahead_of_the_changes_that_follow_it(
    transactions: dict[str, list[Decoded]],
) -> None:
    (messages,) = [messages for sql, messages in transactions.items() if "emit_message" in sql]
    said, changed = [m for m in messages if isinstance(m, Message | RowChange)]
    assert said == Message("event_time", b"2024-03-01T00:00:00+00:00")
    assert isinstance(changed, RowChange)


def test_a_truncation_names_all_its_tables(transactions: dict[str, list[Decoded]]) -> None:
    (truncated,) = [m for messages in transactions.values() for m in messages if isinstance(m, Truncate)]
    assert {relation.name for relation in truncated.relations} == {"public.people", "public.things"}


def test_a_message_that_the_protocol_does_not_have_stops_the_capture() -> None:
    with pytest.raises(UnknownMessage, match="`z`"):
        Decoder().decode(b"z")


def test_what_concerns_other_consumers_is_passed_over() -> None:
    assert Decoder().decode(b"O") is None
    assert Decoder().decode(b"Y") is None
