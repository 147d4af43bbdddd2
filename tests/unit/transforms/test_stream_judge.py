"""A stream judged in increments: the published example, what must not move a watermark, and the same rows for any cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from stream_reference import Record, cuts, simulated, verdicts

from de_assets.transforms.error_management.stream_judge import (
    VERDICTS,
    Extent,
    JudgedRecords,
    JudgeState,
    RecordRule,
    judge,
    next_state,
    totals,
)
from de_assets.transforms.error_management.watermark import Across, Future, Lateness, Stream

STREAM = Stream("source", "position", "arrived", "event")
RULE = RecordRule(
    STREAM, Lateness(timedelta(minutes=30)), key=("id",), remember=timedelta(minutes=30), understood="event IS NOT NULL"
)
RECORDS = "source INT, position LONG, arrived LONG, event LONG, id STRING"
STATE = (
    "entry STRING, source INT, position LONG, records LONG, valid LONG, late LONG, future LONG, duplicates LONG, "
    "malformed LONG, tracked TIMESTAMP, seen TIMESTAMP, newest_tracked TIMESTAMP, newest_seen TIMESTAMP, batch TIMESTAMP, "
    "watermark TIMESTAMP, id STRING, remembered_until TIMESTAMP"
)


def seconds(moment: datetime) -> int:
    """Since 1970, of a time as Spark gives it to Python."""
    return int(moment.timestamp() // 1)


def clock(text: str) -> int:
    return int(datetime.fromisoformat(f"2026-01-05T{text}+00:00").timestamp())


class Judge:
    """Runs over a stream, each from the state that the one before has left, which is computed when somebody asks for it."""

    def __init__(self, spark: SparkSession, rule: RecordRule = RULE, *, in_parts: bool = False) -> None:
        self.spark, self.rule, self.in_parts = spark, rule, in_parts
        self.found: dict[tuple[int, int], str] = {}
        self.watermarks: dict[int, float | None] = {}
        self._state = spark.createDataFrame([], STATE)
        self._of_nothing: JudgeState | None = JudgeState(self._state.select("id", "remembered_until"))
        self._last: tuple[JudgedRecords, JudgeState, RecordRule] | None = None

    def run(self, *records: Record) -> Judge:
        frame = self.spark.createDataFrame(list(records), RECORDS).selectExpr(
            "source", "position", "timestamp_seconds(arrived) arrived", "timestamp_seconds(event) event", "id"
        )
        # Rows of one part need not be moved; in several parts they are where a stream is cut.
        frame = frame if self.in_parts else frame.coalesce(1)
        state, self._of_nothing = self._of_nothing or JudgeState.of(self.state), None
        extent = Extent.of(frame, STREAM)
        assert extent is not None
        judged = judge(frame, extent, state, self.rule)
        rows = judged.records.collect()
        assert len(rows) == len(records)
        self.found |= {(row.source, row.position): row.verdict for row in rows}
        self.watermarks |= {seconds(row.batch): row.watermark and seconds(row.watermark) for row in rows}
        # Judged once, as the runs of the graph do, which keep the records.
        kept = self.spark.createDataFrame(rows, judged.records.schema)
        self._last = replace(judged, records=kept), state, self.rule
        return self

    @property
    def state(self) -> DataFrame:
        """After the last run, as written and read again: nothing of the lineage of earlier runs."""
        if self._last is not None:
            judged, state, rule = self._last
            after = next_state(judged, state, rule, totals(judged.records, STREAM)).select(*self._state.columns)
            self._state, self._last = self.spark.createDataFrame(after.collect(), self._state.schema), None
        return self._state

    def watermark(self, batch: str) -> str | None:
        """What judged a batch."""
        found = self.watermarks[clock(batch)]
        return None if found is None else f"{datetime.fromtimestamp(found, UTC):%H:%M}"

    def said(self, verdict: str) -> set[tuple[int, int]]:
        return {place for place, said in self.found.items() if said == verdict}

    def kept(self, entry: str) -> int:
        return self.state.where(f"entry = '{entry}'").count()


def records(batch: str, *events: str, source: int = 0, first: int = 0) -> list[Record]:
    """Events that the broker took at one moment."""
    at = clock(batch)
    return [Record(source, first + n, at, clock(e), f"{source}/{first + n}") for n, e in enumerate(events)]


FIRST = records("10:10:00", "10:00:00", "10:05:00", "10:06:00")
SECOND = records("10:11:00", "09:20:00", "09:31:00", "10:07:00", first=3)
AFTER = records("10:12:00", "10:08:00", first=6)


@pytest.mark.pattern("late_data_detector")
@pytest.mark.usefixtures("one_shuffle_partition")
class TestWatermark:
    def test_the_published_example(self, spark: SparkSession) -> None:
        """In two runs; that one gives the same: `test_any_cut_gives_what_one_record_after_the_other_gives`."""
        judged = Judge(spark).run(*FIRST).run(*SECOND, *AFTER)
        assert judged.said("late") == {(0, 3), (0, 4)}, "9:20 and 9:31"
        assert len(judged.said("valid")) == 5
        marks = [judged.watermark(batch) for batch in ("10:10:00", "10:11:00", "10:12:00")]
        assert marks == [None, "09:36", "09:37"]

    def test_it_never_goes_back(self, spark: SparkSession) -> None:
        judged = Judge(spark).run(*FIRST, *SECOND, *AFTER)
        # A restart with another rule, by which it would be far behind.
        judged.rule = replace(RULE, lateness=replace(RULE.lateness, allowed=timedelta(hours=5)))
        judged.run(*records("10:13:00", "09:36:59", first=7))
        assert judged.watermark("10:13:00") == "09:37"
        assert (0, 7) in judged.said("late")

    @pytest.mark.parametrize(("future", "watermark"), [(Future.CAPPED, "09:45"), (Future.IGNORED, "09:36")])
    def test_a_wrong_clock_cannot_run_away_with_it(self, spark: SparkSession, future: Future, watermark: str) -> None:
        rule = replace(RULE, lateness=replace(RULE.lateness, future=future))
        wrong = Record(0, 3, clock("10:10:00"), clock("10:10:00") + 9 * 86400, "wrong")
        judged = Judge(spark, rule).run(*FIRST, wrong, *records("10:11:00", "10:07:00", first=4))
        assert judged.watermark("10:11:00") == watermark
        assert judged.said("future") == {(0, 3)}
        assert not judged.said("late")

    @pytest.mark.parametrize(("across", "late"), [(Across.MIN, set()), (Across.MAX, {(1, 1)})])
    def test_across_sources_the_slowest_or_the_fastest_counts(
        self, spark: SparkSession, across: Across, late: set[tuple[int, int]]
    ) -> None:
        rule = replace(RULE, lateness=replace(RULE.lateness, across=across))
        slow = [*records("10:00:01", "09:00:00", source=1), *records("10:00:03", "09:01:00", source=1, first=1)]
        assert Judge(spark, rule).run(*slow, *records("10:00:02", "10:00:00")).said("late") == late

    def test_a_source_that_falls_silent_is_not_waited_for(self, spark: SparkSession) -> None:
        start = [*records("10:00:00", "10:00:00"), *records("10:00:00", "10:00:00", source=1)]
        alone = [*records("10:09:00", "10:09:00", first=1), *records("10:10:00", "10:10:00", first=2)]
        back = records("10:12:00", "09:35:00", "10:12:00", source=1, first=1)
        judged = Judge(spark).run(*start, *alone, *records("10:11:00", "10:11:00", first=3), *back)
        assert judged.watermark("10:10:00") == "09:30", "until the time-out, of the broker's clock, it is held back"
        assert judged.watermark("10:11:00") == "09:40"
        assert judged.said("late") == {(1, 1)}, "who comes back is late for what was closed without it"

    def test_a_source_that_is_named_is_waited_for_before_its_first_record(self, spark: SparkSession) -> None:
        rule = replace(RULE, lateness=replace(RULE.lateness, sources=(0, 1)))
        stream = [records(at, at, first=n)[0] for n, at in enumerate(("10:00:00", "10:05:00", "10:11:00"))]
        judged = Judge(spark, rule).run(*stream)
        assert judged.watermark("10:05:00") is None
        assert judged.watermark("10:11:00") == "09:35", "but no longer than any other"

    def test_broken_records_neither_move_it_nor_keep_their_source_alive(self, spark: SparkSession) -> None:
        broken = [Record(1, n, clock("10:10:00") + n * 360, None, None) for n in (1, 2)]
        others = [Record(0, 2 + n, clock("10:10:00") + n * 360, clock("10:06:00"), f"b{n}") for n in (1, 2)]
        judged = Judge(spark).run(*FIRST, *records("10:10:00", "09:50:00", source=1), *broken, *others)
        assert (judged.watermark("10:16:00"), judged.watermark("10:22:00")) == ("09:20", "09:36")
        assert judged.said("malformed") == {(1, 1), (1, 2)}


@pytest.mark.pattern("windowed_deduplicator")
@pytest.mark.usefixtures("one_shuffle_partition")
class TestCopies:
    def test_the_first_to_arrive_survives_in_its_run_and_in_later_ones(self, spark: SparkSession) -> None:
        """Of `a` the copies come in a later run, those of `b` in the run of the first one, and before it in the frame."""
        first = Record(0, 0, clock("10:00:00"), clock("10:00:00"), "a")
        others = [
            Record(1, 0, clock("10:00:02"), clock("10:00:00"), "b"),
            Record(0, 2, clock("10:00:01"), clock("09:59:00"), "b"),
            Record(0, 1, clock("10:00:00"), clock("10:00:00"), "b"),
        ]
        near = Record(0, 3, clock("10:00:03"), clock("09:59:00"), "a")
        elsewhere = Record(1, 1, clock("10:00:04"), clock("10:00:00"), "a")
        judged = Judge(spark).run(*others, first).run(elsewhere, near)
        assert judged.said("valid") == {(0, 0), (0, 1)}
        assert judged.said("duplicates") == {(0, 2), (1, 0), (0, 3), (1, 1)}

    def test_a_copy_beyond_the_window_passes(self, spark: SparkSession) -> None:
        stream = [*records("11:05:00", "11:00:00", first=1), *records("11:06:00", "11:01:00", first=2)]
        again = (clock("11:06:30"), clock("11:06:30")), (clock("11:06:30"), clock("10:00:00"))
        # The watermark is 10:31, the key was remembered until 10:30.
        copies = [Record(0, 3 + n, arrived, event, "a") for n, (arrived, event) in enumerate(again)]
        judged = Judge(spark).run(Record(0, 0, clock("10:00:00"), clock("10:00:00"), "a"), *stream, *copies)
        assert judged.found[0, 3] == "valid"
        assert judged.found[0, 4] == "duplicates", "of the one that has just passed"

    def test_a_late_record_is_captured_once(self, spark: SparkSession) -> None:
        late = [Record(0, 3 + n, clock(f"10:1{1 + n}:00"), clock("08:00:00"), "late") for n in range(2)]
        judged = Judge(spark).run(*FIRST, *late)
        assert (judged.said("late"), judged.said("duplicates")) == ({(0, 3)}, {(0, 4)})


@pytest.mark.pattern("late_data_detector", "windowed_deduplicator")
@pytest.mark.parametrize(
    ("across", "future", "parts"),
    [(Across.MIN, Future.CAPPED, 1), (Across.MIN, Future.CAPPED, 3), (Across.MAX, Future.IGNORED, 2)],
)
def test_any_cut_gives_what_one_record_after_the_other_gives(
    spark: SparkSession, across: Across, future: Future, parts: int
) -> None:
    lateness = replace(RULE.lateness, across=across, future=future, sources=(0, 1, 2))
    rule = replace(RULE, lateness=lateness)
    stream = simulated(5, 200, clock("10:00:00"))
    expected, watermarks = verdicts(stream, rule)
    assert set(expected.values()) == set(VERDICTS)
    judged = Judge(spark, rule, in_parts=True)
    for part in cuts(stream, parts, parts):
        judged.run(*part)
    assert judged.found == expected
    assert judged.watermarks == watermarks
    found = JudgeState.of(judged.state).sources.values()
    totals_found = sum((Counter(source.totals) for source in found), Counter[str]())
    assert totals_found == Counter(expected.values()) + Counter(records=len(stream))


@pytest.mark.pattern("windowed_deduplicator")
def test_the_state_does_not_grow_with_the_stream(spark: SparkSession) -> None:
    judged, sizes = Judge(spark), list[int]()
    start = clock("00:00:00")
    for hour in range(3):
        times = [start + hour * 3600 + n * 36 for n in range(100)]
        judged.run(*(Record(0, hour * 100 + n, t, t, f"{hour}/{n}") for n, t in enumerate(times)))
        sizes.append(judged.kept("key"))
    assert max(sizes[1:]) == min(sizes[1:]) <= 101, "an hour, of the allowed lateness and of `remember`"
