"""Two streams joined within a bound of time: whatever the order of arrival, what plain Python finds in all of it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from de_assets.transforms.data_value.dynamic_joiner import StreamSide, TimeBound, join_streams
from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write.stream import run_available_now, state_size

pytestmark = pytest.mark.pattern("dynamic_joiner")

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
BOUND = TimeBound(timedelta(minutes=2), timedelta(minutes=30), timedelta(hours=2), timedelta(minutes=5))
VISITS = "visit STRING, page STRING, viewed TIMESTAMP, taken TIMESTAMP, text STRING"
ADS = "ad STRING, ad_page STRING, shown TIMESTAMP, ad_taken TIMESTAMP"


class Record(NamedTuple):
    """Seconds after the start, and when it was taken where that was not at once."""

    id: str | None
    page: str | None
    second: float | None
    taken: float | None = None

    def row(self, *names: str) -> dict[str, object]:
        taken = (self.second or 0) if self.taken is None else self.taken
        moment = None if self.second is None else at(self.second).isoformat()
        return dict(zip(names, (self.id, self.page, moment, at(taken).isoformat()), strict=True))


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


Pairs = Counter[tuple[str, str | None]]
"""Visits with an ad, or without."""


@dataclass
class Streams:
    """Two folders, of which a micro-batch takes the next file each, and the table into which their join is drained."""

    spark: SparkSession
    root: Path
    came: int = 0

    def come(self, visits: Sequence[Record], ads: Sequence[Record]) -> None:
        self.came += 1
        self._land("visits", [{"text": f"text of {v.id}", **v.row("visit", "page", "viewed", "taken")} for v in visits])
        self._land("ads", [ad.row("ad", "ad_page", "shown", "ad_taken") for ad in ads])

    def _land(self, name: str, rows: Sequence[dict[str, object]]) -> None:
        path = self.root / name / f"{self.came}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (self.came, self.came))  # by which the engine puts them in order

    def read(self, name: str, schema: str) -> DataFrame:
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.root / name))

    def joined(self) -> DataFrame:
        left = StreamSide(self.read("visits", VISITS), "viewed", "visit", "taken")
        right = StreamSide(self.read("ads", ADS), "shown", "ad", "ad_taken")
        return join_streams(left, right, ("page", "ad_page"), BOUND)

    def drain(self) -> Written:
        """Into a table, as the platform does it."""
        run = uuid4().hex
        stamp = CommitInfo("silver.joined", "joined", "all", run, run, run)
        return run_available_now(self.spark, Table("silver.joined", str(self.root / "joined")), self.joined(), stamp)

    def rows(self) -> Pairs:
        return pairs(DeltaTable(str(self.root / "joined")).to_pyarrow_table().to_pylist())

    def watch(self) -> tuple[Pairs, Mapping[str, object]]:
        """What comes out, and what is told of the state, without a table: a commit for each micro-batch is most of its time."""
        name = f"joined_{uuid4().hex}"
        to_memory = self.joined().writeStream.format("memory").queryName(name)
        to_memory = to_memory.option("checkpointLocation", str(self.root / name))
        query = to_memory.trigger(availableNow=True).start()
        query.awaitTermination()
        return pairs(row.asDict() for row in self.spark.table(name).collect()), state_size(query.recentProgress)


def pairs(found: Iterable[Mapping[str, Any]]) -> Pairs:
    rows = list(found)
    assert all(row["text"] == f"text of {row['visit']}" for row in rows)
    return Counter((row["visit"], row["ad"]) for row in rows)


@pytest.fixture
def streams(spark: SparkSession, lake: Path, one_shuffle_partition: None) -> Streams:
    return Streams(spark, lake)


def truth(visits: Sequence[Record], ads: Sequence[Record]) -> Pairs:
    """Every visit that has a name and a time against every ad, each once; how they came is not looked at."""
    known = {v.id: v for v in visits if v.id and v.second is not None}
    shown = {a.id: a for a in ads if a.id and a.second is not None}
    found: Pairs = Counter()
    for name, visit in known.items():
        matches = [
            ad.id
            for ad in shown.values()
            if visit.page is not None and ad.page == visit.page and 0 <= ad.second - visit.second <= 120  # type: ignore[operator]
        ]
        found.update((name, match) for match in matches or [None])
    return found


ARRIVALS = 2
MOMENTS = st.sampled_from([0, 1, 59.999, 60, 119.999, 120, 120.001, 121, 179, 180, 240, 240.001])
MADE = st.tuples(MOMENTS, st.sets(st.integers(0, ARRIVALS - 1), min_size=1))
Side = list[tuple[float, set[int]]]


def some_pages(number: int) -> list[tuple[Side, Side]]:
    """Visits and ads of as many pages: a stream costs seconds to start, and pages have nothing to do with each other."""
    found: list[tuple[Side, Side]] = []

    @given(st.lists(MADE, max_size=4), st.lists(MADE, max_size=4))
    @settings(max_examples=number, deadline=None, database=None)
    def collect(visits: Side, ads: Side) -> None:
        found.append((visits, ads))

    collect()
    return found


def test_any_arrivals_give_what_plain_python_finds_and_leave_no_state(streams: Streams) -> None:
    """On the bound and around it, either side first, copies, no page at all.

    No ad follows in the end, only a visit of much later: the side on which nothing happens holds nothing up.
    """
    pages = some_pages(150)
    arrivals: list[tuple[list[Record], list[Record]]] = [([], []) for _ in range(ARRIVALS)]
    for number, sides in enumerate(pages):
        for side, records in enumerate(sides):
            for place, (second, when) in enumerate(records):
                record = Record(f"{number}.{place}", f"p{number}" if number else None, second)
                for arrival in when:
                    arrivals[arrival][side].append(record)
    arrivals[0][0].extend([Record(None, "p1", 60), Record("no time", "p1", None)])
    arrivals[0][1].extend([Record(None, "p1", 60), Record("no time", "p1", None)])
    for arrived in arrivals[:-1]:
        streams.come(*arrived)
    # The end comes with the last of them: nothing is late until a batch is over.
    visits, ads = arrivals[-1]
    streams.come([*visits, Record("end", "p1", 10 * 3600)], ads)
    done = streams.drain()
    assert streams.rows() == truth(*([r for each in arrivals for r in each[side]] for side in (0, 1)))
    assert done.rows == streams.rows().total(), "also of batches to which nothing came"
    # The visit that waits, and its name.
    assert (done.details["stream/state_rows"], done.details["stream/rows_too_late"]) == (2, 0)


def test_the_state_does_not_grow_and_what_is_too_late_or_of_tomorrow_is_counted_or_left_out(streams: Streams) -> None:
    last = 2
    for step in range(last + 1):
        base, numbers = step * 4000, range(20)
        visits = [Record(f"{step}.{n}", f"p{n}", base + n) for n in numbers]
        ads = [Record(f"{step}.{n}", f"p{n}", base + 60) for n in numbers if n % 2]
        if step == last:
            visits.append(Record("three hours ago", "p0", base - 3 * 3600, taken=base))
            ads.append(Record("of tomorrow", "p0", base + 86_400, taken=base))
        streams.come(visits, ads)
    found, told = streams.watch()
    # What the last step brought, twice: until nothing can match it any more, and until it cannot come again.
    assert (told["stream/state_rows"], told["stream/rows_too_late"]) == (2 * (20 + 10), 1)
    assert 0 < int(told["stream/state_bytes"]) < 100_000  # type: ignore[call-overload]
    # Half an hour behind the side that is behind: the last visit, at second 19, and not the ad at second 60.
    assert told["stream/watermark"] == f"{at(last * 4000 + 19 - 1800):%Y-%m-%dT%H:%M:%S}.000Z"
    waiting = {f"{last}.{n}" for n in range(20) if n % 2 == 0}
    expected = {(f"{s}.{n}", f"{s}.{n}" if n % 2 else None) for s in range(last + 1) for n in range(20)}
    assert set(found) == {pair for pair in expected if pair[0] not in waiting}


@pytest.mark.parametrize("empty", ["ads", "visits"])
def test_a_side_that_never_had_a_record_holds_the_other_one_up_no_longer_than_an_idle_one(
    streams: Streams, empty: str
) -> None:
    """Not one record, whatever comes on the other side: visits come out alone, ads alone do not, and none is kept for ever."""
    came = [Record("a", "p", 0), Record("b", "q", 60), Record("a", "p", 0), Record("end", "p", 10 * 3600)]
    streams.come(*((came, []) if empty == "ads" else ([], came)))
    found, told = streams.watch()
    assert found == (Counter({("a", None): 1, ("b", None): 1}) if empty == "ads" else Counter())
    # The last one, and its name: what came before can neither be matched nor come again.
    assert (told["stream/state_rows"], told["stream/rows_too_late"]) == (2, 0)
