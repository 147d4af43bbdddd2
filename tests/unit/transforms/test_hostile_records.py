"""What a single record can do wrong is found when it is parsed: whatever it holds, no partition downstream breaks a rule.

Records satisfy the types that the parser asks for, and are hostile in everything else. They go through every transform from
bronze to what is served; the rules of every contract on the way are asked of the rows, as the blocking checks ask them.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pandera.pyspark import DataFrameModel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_assets.bronze import ads_stream, users_changes
from de_assets.bronze.visits import dead_letters, parsed_lines
from de_assets.bronze.visits import understood as understood_lines
from de_assets.bronze.visits_stream import understood_or_explained
from de_assets.contracts.ads import AdsStream, VisitsWithAds
from de_assets.contracts.devices import Devices
from de_assets.contracts.page_counts import PageCounts
from de_assets.contracts.serving import DailyTraffic, DailyTrafficByCountry, VisitsReduced, WeeklyVisits
from de_assets.contracts.sessions_stream import LOGOUT, SessionsStream
from de_assets.contracts.staging import StagingVisits
from de_assets.contracts.traffic import (
    DailyReport,
    ReferralStats,
    Sessions,
    SessionsPending,
    TrafficLive,
    UserActivity,
    VisitorSketchesDaily,
    VisitsCubeDaily,
    VisitsCubeWeekly,
)
from de_assets.contracts.users import Users, UsersChanges
from de_assets.contracts.visits import (
    BronzeVisits,
    Visits,
    VisitsDeadLetter,
    VisitsEnriched,
    VisitsLate,
    VisitsStream,
)
from de_assets.contracts.visits_export import VisitsCsv, VisitsExport
from de_assets.contracts.visits_live import VisitsLive, VisitsLiveDeadLetter, VisitsLiveLate, VisitsLiveState
from de_assets.definitions import defs
from de_assets.gold.referral_stats import by_referral, each_once
from de_assets.gold.sessions import over_by_midnight
from de_assets.gold.sessions_pending import open_at_midnight
from de_assets.gold.sessions_stream import RULES
from de_assets.gold.traffic_live import traffic_live
from de_assets.gold.user_activity import user_activity
from de_assets.gold.visitor_sketches_daily import visitor_sketches_daily
from de_assets.gold.visits_cube_daily import visits_cube_daily
from de_assets.gold.visits_cube_weekly import visits_cube_weekly
from de_assets.serving.daily_traffic import ALL, ALL_BUT_COUNTRY, of_both
from de_assets.serving.page_counts import counted
from de_assets.serving.visits_export import exported
from de_assets.serving.visits_reduced import promised
from de_assets.serving.weekly_visits import weekly_visits
from de_assets.silver import visits_live as live
from de_assets.silver.users import versions_of
from de_assets.silver.visits import CONDITIONS, COPY, in_event_hour, late_visits, numbered_visits
from de_assets.silver.visits_enriched import enriched, with_late
from de_assets.silver.visits_with_ads import with_ads
from de_assets.transforms.data_flow.unaligned_fan_in import DayInputs, daily_reports
from de_assets.transforms.data_value.closing_rules import Visit, Visitor
from de_assets.transforms.data_value.incremental_sessionizer import SessionWindows
from de_assets.transforms.data_value.sessions import identified
from de_assets.transforms.data_value.stateful_sessionizer import CLOSED, told
from de_assets.transforms.error_management.static_late_data_integrator import integrate_late
from de_assets.transforms.error_management.stream_judge import Extent, JudgeState, judge, next_state, totals
from de_assets.transforms.error_management.visit_parser import ERROR
from de_resources.capture.envelope import TransactionOrigin, records, truncation
from de_resources.capture.pgoutput import Relation, RowChange
from de_resources.contract import Contract
from de_resources.delta.slices import OffsetRange
from de_resources.engine.sessions import only_meanwhile
from de_resources.replication.allow_list import allowed

pytestmark = pytest.mark.pattern("dead_letter")

HOUR = datetime(2024, 10, 10, 23, tzinfo=UTC)
RECORDS = 1_500
_TEXTS = (
    *("/", "a", " ", "", "\t", "\n", "\0", "a\0b", "\\u0000", "\x7f\x1b[31m", "\u2028", "\ud800", "ж", "👩‍👩‍👧"),
    *("x" * 511, "x" * 513, "/" + "p" * 2_047, "/" + "p" * 2_048, "y" * 10_000),
    *("'; DROP TABLE visits; --", "|", "a|2024-10-10", "null", "NaN", "-", "`page`", "${x}"),
)
_TIMES = (
    *(
        "1970-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "2261-12-31T23:59:59.999999Z",
        "2262-01-01T00:00:00Z",
        "9999-12-31",
    ),
    *("0001-01-01T00:00:00+14:00", "2024-10-10T23:59:59.999999999Z", "2024-10-10T24:00:00Z"),
    *("10:05", "now", "", "2024-10-11 00:00"),
)


def _records(seed: int) -> Iterator[tuple[bytes, str, datetime]]:
    """Hostile lines of three hours around midnight; some identities come again, in the same hour and in others."""
    random_ = random.Random(seed)  # noqa: S311 - the same records every time

    def text() -> Any:
        return random_.choice(_TEXTS) if random_.random() < 0.4 else f"/{random_.randrange(8)}"

    for _ in range(RECORDS):
        landed = HOUR + timedelta(hours=random_.randrange(3))
        moment = landed + timedelta(seconds=random_.randrange(-7_200, 3_600))
        user = {"ip": text(), "login": text(), "connected_since": random_.choice([None, moment.isoformat()])}
        device = {
            "browser": text(),
            "device_type": text(),
            "device_version": text(),
            "is_bot": random_.choice([True, None]),
        }
        record = {
            "visit_id": text() if random_.random() < 0.2 else f"v{random_.randrange(300)}",
            "event_time": random_.choice(_TIMES) if random_.random() < 0.1 else moment.isoformat(),
            "user_id": text(),
            "page": LOGOUT if random_.random() < 0.1 else text(),
            "keep_private": random_.choice([True, False, None]),
            "context": {"referral": text(), "ad_id": text(), "user": user, "technical": device},
        }
        yield json.dumps(record).encode(), "visits/date=2024-10-10/hour=23/part-00000.json", landed


SENT = "value BINARY, partition INT, offset LONG, timestamp TIMESTAMP"
_USERS = Relation(7, "public.users", tuple((name, 25) for name in ("id", "login", "email", "country", "updated_at")))


def _changes(seed: int) -> Iterator[tuple[bytes | None, int, int, datetime]]:
    """Hostile changes of a table of users, as a capture sends them: more than once, and not in the order of the log."""
    random_ = random.Random(seed)  # noqa: S311 - the same changes every time

    def time() -> str | None:
        moment = HOUR + timedelta(seconds=random_.randrange(-90_000, 90_000))
        return random_.choice([None, random_.choice(_TIMES), moment.isoformat(), HOUR.isoformat()])

    def user(number: int) -> dict[str, Any]:
        texts = {name: random_.choice([None, *_TEXTS]) for name in ("login", "email", "country")}
        return {"id": random_.choice([f"u{number}", f"u{number}", _TEXTS[number]]), **texts, "updated_at": time()}

    values: list[bytes | None] = [b"", b"null", b"[]", b'{"op":"c"}', b"\xff", None]
    for lsn in range(400):
        number = random_.randrange(8)
        before, after = random_.choice([(None, user(number)), (user(number), user(number)), (user(number), None)])
        committed = HOUR + random_.choice([timedelta(seconds=lsn), timedelta(days=-20_100), timedelta(days=87_000)])
        origin = TransactionOrigin(lsn // 2, committed, lsn, time())
        kind = "D" if after is None else "I" if before is None else "U"
        values += [r.value for r in records(RowChange(_USERS, kind, before, after), ["id"], origin, lsn % 2 * 2)]
    values.append(truncation(_USERS, TransactionOrigin(120, HOUR, 120), 9).value)
    values += random_.choices(values, k=100)
    random_.shuffle(values)
    for offset, value in enumerate(values):
        yield value, 0, offset, HOUR


def _showings(seed: int) -> Iterator[tuple[bytes, int, int, datetime]]:
    """Hostile showings of ads."""
    random_ = random.Random(seed)  # noqa: S311 - the same showings every time
    for offset in range(300):
        moment = (HOUR + timedelta(seconds=random_.randrange(7_200))).isoformat()
        texts = {name: random_.choice([*_TEXTS, f"{name} {offset}", None]) for name in ("showing_id", "ad")}
        page = random_.choice([*_TEXTS, *(f"/{n % 8}" for n in range(2 * len(_TEXTS)))])
        shown = {**texts, "page": page, "shown_at": random_.choice([*_TIMES, *[moment] * len(_TIMES)])}
        yield json.dumps(shown).encode(), 0, offset, HOUR + timedelta(hours=2)


def _paired(folder: Path, visits: DataFrame, ads: DataFrame) -> DataFrame:
    """What a stream over both has told when it has read them."""
    session = visits.sparkSession
    came = (
        _streamed(folder / name, rows)
        for name, rows in (("visits", visits.where(live.RULE.understood)), ("ads", ads.where("error IS NULL")))
    )
    written = with_ads(*came).writeStream.format("memory").queryName("hostile_pairs")
    written.trigger(availableNow=True).option(
        "checkpointLocation", str(folder / "checkpoint")
    ).start().awaitTermination()
    return session.table("hostile_pairs")


def _streamed(folder: Path, rows: DataFrame) -> DataFrame:
    """The rows as a stream of one file, which costs a tenth of a table."""
    folder.mkdir()
    pq.write_table(rows.toArrow(), folder / "rows.parquet")
    return rows.sparkSession.readStream.schema(rows.schema).parquet(str(folder))


def _closed(visits: DataFrame) -> DataFrame:
    """The sessions of a stream when all of its visits are known and over, by the rules that close them."""
    came: dict[str, list[Visit]] = defaultdict(list)
    at = F.unix_micros("event_time").alias("at")
    for row in visits.select("user_id", at, "visit_id", "page", "referral").collect():
        came[row["user_id"]].append(Visit(row["at"], row["visit_id"], row["page"], row["referral"]))
    end = 2**62
    found = [told(user, over) for user, those in came.items() for over in Visitor().came(those).settled(end, RULES)[1]]
    times = {name: F.timestamp_micros(name) for name in ("started_at", "ended_at")}
    return identified(visits.sparkSession.createDataFrame(found, CLOSED).withColumns(times))


def _live(stream: DataFrame) -> dict[type[DataFrameModel], DataFrame]:
    """What a run makes of a stream of which nothing was judged before."""
    state = JudgeState.of(stream.sparkSession.createDataFrame([], Contract.of(VisitsLiveState).struct_type()))
    extent = Extent.of(stream, live.STREAM)
    assert extent is not None
    offsets = OffsetRange.of(live.STREAM.source, live.STREAM.position, extent.positions, {})
    judged = judge(stream, extent, state, live.RULE)
    rows = _kept(judged.records)
    valid = rows.where(" AND ".join(f"({condition})" for condition in live.RULE.conditions.values()))
    return {
        VisitsLive: live.in_event_hour(valid),
        VisitsLiveLate: live.late_visits(rows, offsets).frame,
        VisitsLiveDeadLetter: live.dead_letters(rows, offsets).frame,
        VisitsLiveState: next_state(judged, state, live.RULE, totals(rows, live.STREAM)),
    }


def _kept(frame: DataFrame) -> DataFrame:
    """Computed once, and of one partition: nothing that is made of it plans it again, or has to move its rows."""
    return frame.coalesce(1).localCheckpoint()


@pytest.fixture(scope="module")
def lines(spark: SparkSession) -> DataFrame:
    schema = "payload BINARY, source_file STRING, landing_hour TIMESTAMP"
    return _kept(spark.createDataFrame(list(_records(7)), schema))


@pytest.fixture(scope="module")
def parsed(lines: DataFrame) -> DataFrame:
    """As a run of an hour keeps them: of what was understood the text is the payload."""
    return _kept(parsed_lines(lines, None))


Datasets = dict[type[DataFrameModel], DataFrame]


@pytest.fixture(scope="module")
def datasets(
    lines: DataFrame, parsed: DataFrame, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Datasets]:
    """Every dataset that the landed records become a part of; their rows are moved into one part, of which they are."""
    with only_meanwhile(spark, {"spark.sql.shuffle.partitions": "1"}):
        yield _datasets(lines, parsed, tmp_path_factory.mktemp("pairs"))


def _datasets(lines: DataFrame, parsed: DataFrame, folder: Path) -> Datasets:
    spark = lines.sparkSession
    bronze = understood_lines(parsed)
    numbered = _kept(numbered_visits(bronze))
    late = late_visits(numbered)
    first = numbered.where(" AND ".join(f"({condition})" for condition in CONDITIONS.values())).drop(COPY)
    valid = _kept(in_event_hour(first))
    users, devices, before, pending = (
        spark.createDataFrame([], Contract.of(m).struct_type()) for m in (Users, Devices, UserActivity, SessionsPending)
    )
    rich = _kept(enriched(with_late(valid, late, []).frame, users, devices))
    two_days = SessionWindows(HOUR.replace(hour=0), timedelta(days=1), 2)
    columns = ["visit_id", "user_id", "referral", "event_time"]
    days = [HOUR.date(), HOUR.date() + timedelta(days=1)]
    referrals = integrate_late(
        valid.select(*columns), late.select(*columns, "landing_hour"), event_time="event_time", landing_time="landing_hour",
        days=days, window_days=15,
    )  # fmt: skip
    cube, sketches = _kept(visits_cube_daily(rich)), _kept(visitor_sketches_daily(rich))
    served = of_both(cube)
    hours = tuple(HOUR + timedelta(hours=n) for n in range(3))
    reported = [DayInputs(day, tuple(hour for hour in hours if hour.date() == day), ()) for day in days]
    some = lines.limit(300)  # parsed once more, as records of a stream
    sent = some.select(
        F.col("payload").alias("value"), F.lit(0).alias("partition"), F.monotonically_increasing_id().alias("offset"),
        F.col("landing_hour").alias("timestamp"),
    )  # fmt: skip
    streamed = _kept(understood_or_explained(sent))
    changes = _kept(users_changes.understood_or_explained(spark.createDataFrame(list(_changes(7)), SENT)))
    shown = _kept(ads_stream.understood_or_explained(spark.createDataFrame(list(_showings(7)), SENT)))
    return {
        UsersChanges: changes,
        Users: versions_of(changes),
        AdsStream: shown,
        VisitsWithAds: _paired(folder, streamed, shown),
        SessionsStream: _closed(streamed.where(live.RULE.understood)),
        **_live(streamed),
        VisitsDeadLetter: dead_letters(parsed),
        VisitsStream: streamed,
        VisitsReduced: promised(streamed),  # which the same parser has read
        VisitorSketchesDaily: sketches,
        VisitsCubeWeekly: visits_cube_weekly(cube, sketches),
        DailyReport: daily_reports(valid, reported),
        DailyTraffic: served.where(F.col("grouping") == ALL),
        DailyTrafficByCountry: served.where(F.col("grouping") == ALL_BUT_COUNTRY),
        TrafficLive: traffic_live(valid),
        # Days before the cut-over have no visitors in their files, which the writer sees to.
        PageCounts: counted(valid, [days[1].isoformat()]),
        VisitsExport: exported(valid),
        VisitsCsv: exported(valid),
        StagingVisits: allowed(valid, Contract.of(Visits)),
        BronzeVisits: bronze,
        VisitsLate: late,
        Visits: valid,
        VisitsEnriched: rich,
        VisitsCubeDaily: cube,
        Sessions: over_by_midnight(rich, pending, two_days),
        SessionsPending: open_at_midnight(rich, pending, two_days),
        UserActivity: user_activity(rich, before),
        ReferralStats: by_referral(each_once(referrals.frame, days).frame),
        WeeklyVisits: weekly_visits(rich),
    }


MODELS = (
    BronzeVisits, VisitsLate, Visits, VisitsEnriched, VisitsCubeDaily, Sessions, SessionsPending, UserActivity,
    ReferralStats, WeeklyVisits, VisitsDeadLetter, VisitsStream, VisitsReduced, VisitorSketchesDaily, VisitsCubeWeekly,
    DailyReport, DailyTraffic, DailyTrafficByCountry, TrafficLive, PageCounts, VisitsExport, VisitsCsv, StagingVisits,
    UsersChanges, Users, AdsStream, VisitsWithAds, SessionsStream,
    VisitsLive, VisitsLiveLate, VisitsLiveDeadLetter, VisitsLiveState,
)  # fmt: skip
EXCUSED = {
    **dict.fromkeys(
        ("sources.visits_topic", "sources.ads_topic", "sources.users_topic", "sources.features_topic"),
        "what others send: its readers judge it",
    ),
    **dict.fromkeys(
        ("gold.users_by_country", "gold.users_latest", "gold.users_snapshot", "serving.users_snapshot",
         "serving.profile_changes", "staging.users"),
        "columns of silver.users as they are, or counts of its rows: graph/test_users_changes.py",
    ),
    **dict.fromkeys(
        ("bronze.devices", "silver.devices"), "a dump is refused as a whole: graph/test_full_loader.py"
    ),
    **dict.fromkeys(
        ("bronze.legacy_visits", "silver.legacy_visits"), "rows of a database: unit/test_legacy_visits.py"
    ),
    **dict.fromkeys(
        ("bronze.features", "bronze.features_dead_letter"), "events of another form: unit/sources/test_release_events.py"
    ),
    "silver.visits_live_hours": "hours of what silver.visits_live has, published as a whole: graph/test_live_hours.py",
    **dict.fromkeys(
        ("gold.sessions_live", "gold.pages_per_visit", "serving.partner_feed"),
        "needs a broker or a database, and has of a visit what the datasets here have",
    ),
    "silver.network_countries": "what a paid API answers: ui/test_paid_lookup.py",
}  # fmt: skip
"""Contracts of the graph through which no hostile line goes here, and why."""


def test_every_contract_of_the_graph_is_fuzzed_or_excused_by_name() -> None:
    graph = defs.resolve_asset_graph()
    declared = (graph.get(key).metadata.get("contract") for key in graph.get_all_asset_keys())
    known = {Contract.load(str(getattr(path, "value", path))).name for path in declared if path is not None}
    fuzzed = {Contract.of(model).name for model in MODELS}
    assert fuzzed | EXCUSED.keys() == known
    assert not fuzzed & EXCUSED.keys()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: Contract.of(model).name)
def test_no_record_breaks_a_rule_downstream(model: type[DataFrameModel], datasets: Datasets) -> None:
    contract = Contract.of(model)
    broken = (F.count_if(F.expr(rule.violated)).alias(rule.name) for rule in contract.rules)
    (counted,) = datasets[model].coalesce(1).agg(F.count(F.lit(1)).alias("all_rows"), *broken).collect()
    found = counted.asDict()
    assert found.pop("all_rows") > 0
    assert +Counter(found) == {}


def test_what_is_served_has_each_key_once_and_texts_that_a_database_takes(
    datasets: Datasets,
) -> None:
    rows = [row.asDict() for row in datasets[WeeklyVisits].collect()]
    assert max(Counter(row["visit_id"] for row in rows).values()) == 1
    assert all("\0" not in value for row in rows for value in row.values() if isinstance(value, str))
    assert max(len(row["visit_id"].encode()) for row in rows) < 2_700, "longer keys fit in no index of PostgreSQL"


def test_a_line_is_understood_or_explained_and_the_reason_is_the_one(parsed: DataFrame) -> None:
    text = F.coalesce("payload", F.encode("raw", "utf-8")).alias("payload")
    lines = parsed.select(text, ERROR, "error_field").collect()
    assert len(lines) == RECORDS
    for line in lines:
        record = json.loads(line["payload"])
        texts = {name: record[name] for name in ("visit_id", "user_id", "page")}
        longest = {"visit_id": 512, "user_id": 512, "page": 2_048}
        missing = [name for name, text in texts.items() if not text.strip(" ")]
        too_long = [name for name, text in texts.items() if len(text) > longest[name]]
        if line[ERROR] is None:
            assert not missing, record
            assert not too_long, record
            assert "\0" not in json.dumps(record, ensure_ascii=False), record
        elif line[ERROR].endswith("NUL character"):
            assert "\0" in json.dumps(record, ensure_ascii=False).replace("\\u0000", "\0")
        elif "length" in line[ERROR]:
            assert line["error_field"] == too_long[0]
    reasons = {line[ERROR] for line in lines}
    assert {"page is not of length 1-2048", "visit_id is not of length 1-512", "login holds a NUL character"} <= reasons
