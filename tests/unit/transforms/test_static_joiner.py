"""Joins that are right in time: any history and any events give what looking each event up by hand gives."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import generated
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from de_assets.transforms.data_value.static_joiner import (
    UNMATCHED,
    count_unmatched,
    current_and_history,
    join_current_or_history,
    join_reference,
    join_valid_at,
)
from de_checks.intervals import History, Interval, history_of

pytestmark = pytest.mark.pattern("static_joiner")

Version = tuple[str, int, int | None, int]
"""Whose, from, until (None: still), and what it says."""
SCHEMA = "who STRING, valid_from INT, valid_to INT, says INT"
EVENTS = "id INT, who STRING, t INT"


@st.composite
def histories(draw: st.DrawFn) -> list[Version]:
    """Of each of some keys, intervals that do not overlap: side by side or apart, the last one open or not."""
    found: list[Version] = []
    for who in draw(st.sets(st.sampled_from("abcde"))):
        cuts = sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=6)))
        spans = [(begin, end) for begin, end in pairwise(cuts) if draw(st.booleans())]
        last = [(cuts[-1], None)] if draw(st.booleans()) else []
        found += [(who, begin, end, number) for number, (begin, end) in enumerate([*spans, *last])]
    return found


def by_hand(versions: list[Version], who: str | None, t: int | None) -> tuple[int | None, bool]:
    """What the one version says that was valid then, and whether there is one."""
    said = [v[3] for v in versions if t is not None and v[0] == who and v[1] <= t and (v[2] is None or t < v[2])]
    assert len(said) <= 1
    return (said[0], True) if said else (None, False)


def told(joined: DataFrame) -> dict[int, tuple[int | None, bool]]:
    rows = joined.collect()
    found = {row.id: (row.said, row.known) for row in rows}
    assert len(found) == len(rows), "no event comes twice"
    return found


SEEN = st.lists(st.tuples(st.sampled_from([*"abcdex", None]), st.integers(-1, 21) | st.none()), max_size=40)


def test_any_history_and_any_events_give_what_looking_up_by_hand_gives(spark: SparkSession) -> None:
    """Twenty-four worlds in one query each: a world is a part of its keys."""
    versions: list[Version] = []
    seen: list[tuple[str | None, int | None]] = []
    for world, (those, asked) in enumerate(generated(st.tuples(histories(), SEEN), 24)):
        versions += [(f"{who}{world}", *rest) for who, *rest in those]
        seen += [(who and f"{who}{world}", t) for who, t in asked]
        # Where one version ends and the next one begins.
        seen += [(f"{who}{world}", t) for who, *span, _ in those for t in span if t is not None]
    events = spark.createDataFrame([(n, *each) for n, each in enumerate(seen)], EVENTS)
    dimension = spark.createDataFrame(versions, SCHEMA)
    expected = {n: by_hand(versions, *each) for n, each in enumerate(seen)}
    assert {known for _, known in expected.values()} == {True, False}
    assert told(join_valid_at(events, dimension, "who", "t", {"says": "said"}, matched="known")) == expected
    current, history = current_and_history(dimension)
    assert "valid_to" not in current.columns
    in_two = join_current_or_history(events, current, history, "who", "t", {"says": "said"}, matched="known")
    assert told(in_two) == expected


def test_an_unknown_key_matches_no_unknown_key_and_an_empty_side_leaves_every_event(spark: SparkSession) -> None:
    """Null on both sides is no match, also in one part of a key; two unknown versions would repeat an event."""
    seen = [(1, "a", 3), (2, None, 3), (3, "b", 3)]
    versions = [("a", 0, None, 7), (None, 0, None, 8), (None, 0, 9, 9)]
    events, dimension = spark.createDataFrame(seen, EVENTS), spark.createDataFrame(versions, SCHEMA)
    alone = {1: (None, False), 2: (None, False), 3: (None, False)}

    def joined(left: DataFrame, right: DataFrame) -> dict[int, tuple[int | None, bool]]:
        return told(join_valid_at(left, right, "who", "t", {"says": "said"}, matched="known"))

    assert joined(events, dimension) == {**alone, 1: (7, True)}
    assert joined(events, dimension.limit(0)) == alone
    assert joined(events.limit(0), dimension) == {}

    on = {"who": "who", "t": "valid_from"}
    reference = spark.createDataFrame([("a", 3, None, 7), (None, 3, None, 8), (None, 3, None, 9)], SCHEMA)
    for side, found in ((reference, {1: 7, 2: None, 3: None}), (reference.limit(0), dict.fromkeys((1, 2, 3)))):
        rows = join_reference(events, side, on, {"says": "said"}).collect()
        assert sorted((row.id, row.said) for row in rows) == sorted(found.items())


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ([], History(0, 0, 0)),
        ([("a", 0, 5, 1), ("a", 5, None, 2), ("b", 3, 4, 1)], History(0, 0, 0)),
        ([("a", 0, 4, 1), ("a", 5, None, 2)], History(0, 0, 1)),
        ([("a", 0, 6, 1), ("a", 5, None, 2)], History(1, 1, 0)),
        ([("a", 0, None, 1), ("a", 5, None, 2)], History(1, 1, 0)),
        ([("a", 0, 5, 1), ("a", 0, 5, 1)], History(1, 1, 0)),
        # The first one covers both that follow.
        ([("a", 0, 9, 1), ("a", 2, 3, 2), ("a", 4, 5, 3), ("b", 0, 2, 1), ("b", 1, 2, 2)], History(2, 2, 1)),
        ([(None, 0, 9, 1), (None, 0, 9, 2)], History(0, 0, 0)),
    ],
)
def test_what_overlaps_and_what_is_left_open(spark: SparkSession, versions: list[Any], found: History) -> None:
    assert history_of(spark.createDataFrame(versions, SCHEMA), Interval(["who"])) == found


def test_a_stream_joins_with_what_is_there_when_it_comes(spark: SparkSession, tmp_path: Path) -> None:
    """The difference to a batch: an event that came before its version stays without a match."""
    events, versions = tmp_path / "events", tmp_path / "versions"
    events.mkdir()
    versions.mkdir()
    found: dict[int, tuple[int | None, bool]] = {}
    kinds = pa.schema([("who", pa.string()), *((name, pa.int32()) for name in ("valid_from", "valid_to", "says"))])

    def know(who: str, begin: int, end: int | None, says: int) -> None:
        row = {"who": who, "valid_from": begin, "valid_to": end, "says": says}
        pq.write_table(pa.Table.from_pylist([row], kinds), versions / f"{says}.parquet")

    def happen(name: str, *seen: tuple[int, str, int]) -> None:
        lines = (json.dumps({"id": number, "who": who, "t": at}) for number, who, at in seen)
        (events / name).write_text("\n".join(lines))

    def take(joined: DataFrame, _batch: int) -> None:
        came = told(joined)
        assert not found.keys() & came.keys()
        found.update(came)

    def follow() -> None:
        stream = spark.readStream.schema(EVENTS).json(str(events))
        dimension = spark.read.parquet(str(versions))
        joined = join_valid_at(stream, dimension, "who", "t", {"says": "said"}, matched="known")
        done = joined.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "positions"))
        done.trigger(availableNow=True).start().awaitTermination()

    know("a", 0, 5, 1)
    happen("first", (1, "a", 3), (2, "a", 7))
    follow()
    know("a", 5, None, 2)
    happen("second", (3, "a", 8))
    follow()
    assert found == {1: (1, True), 2: (None, False), 3: (2, True)}
    came, dimension = spark.read.schema(EVENTS).json(str(events)), spark.read.parquet(str(versions))
    batch = join_valid_at(came, dimension, "who", "t", {"says": "said"}, matched="known")
    assert told(batch) == {1: (1, True), 2: (2, True), 3: (2, True)}


def test_what_found_no_match_is_counted_by_window(spark: SparkSession) -> None:
    hours = [datetime(2024, 10, 10, hour, tzinfo=UTC) for hour in range(3)]
    rows = [(hours[0], True), (hours[0], False), (hours[1], False), (hours[1], False)]
    joined = spark.createDataFrame(rows, "hour TIMESTAMP, `was.known` BOOLEAN")
    told = count_unmatched(joined, "was.known", window="hour", expected=hours)
    assert told.frame.count() == len(rows)
    assert told.metadata() == {hour: {UNMATCHED: n} for hour, n in zip(hours, (1, 2, 0), strict=True)}
