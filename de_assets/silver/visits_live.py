"""Live visits judged as they come: valid ones, late ones and dead letters beside them, and the state that outlives the run.

Grain: one record of the topic, in exactly one of three tables unless it is a copy. Patterns: Dead-Letter (what was not
understood is kept apart), Late Data Detector (the watermark is kept in the state, and never goes back), Windowed
Deduplicator (what is remembered is bounded by the watermark), Filter Interceptor (each condition tells per window of
processing time what it removed), Data Overwrite (a run replaces its stretch of the topic).

A run reads what lies between the positions in the state and what bronze has now. It writes the dead letters first, then
the late visits, then the valid ones, the state last: after a crash the next run starts from the same state, and replaces
what was written.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets import __version__
from de_assets.automation.conditions import gated
from de_assets.contracts.topics import VisitRecord
from de_assets.contracts.visits_live import VisitsLive, VisitsLiveDeadLetter, VisitsLiveLate, VisitsLiveState
from de_assets.dataset import dataset
from de_assets.sources.topics import TOPICS, VISITS
from de_assets.transforms.error_management.filter_interceptor import account_by_hour, intercept_stream
from de_assets.transforms.error_management.stream_judge import (
    VERDICT,
    Extent,
    JudgedRecords,
    JudgeState,
    RecordRule,
    judge,
    next_state,
    totals,
)
from de_assets.transforms.error_management.visit_parser import ERROR, ERROR_FIELD, parse_visits
from de_assets.transforms.error_management.watermark import WATERMARK, Future, Lateness, Stream
from de_checks.conservation import conservation_check
from de_checks.contract import contract_check
from de_checks.dead_letters import dead_letter_checks
from de_checks.stream_drift import FILLED, filled, stream_drift_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.delta.slices import OffsetRange
from de_resources.lake import Lake
from de_resources.lineage.inputs import made_of
from de_resources.retries import RETRY_TRANSIENT

VISITS_STREAM = dg.AssetKey(["bronze", "visits_stream"])
STREAM = Stream(source="topic_partition", position="topic_offset", arrived="append_time", event_time="event_time")
RULE = RecordRule(
    STREAM,
    Lateness(
        allowed=timedelta(minutes=30),
        skew=timedelta(minutes=5),
        idle_after=timedelta(minutes=10),
        # A visit from tomorrow says nothing about how far today has come.
        future=Future.IGNORED,
        sources=tuple(range(next(topic.partitions for topic in TOPICS if topic.name == VISITS))),
    ),
    key=("visit_id",),
    remember=timedelta(hours=2),
    understood="error IS NULL",
)
WINDOW = timedelta(minutes=10)
"""Of processing time: for each, the filter gives an account of its own."""

STATE = dg.AssetKey(["silver", "visits_live_state"])


@dg.multi_asset(
    retry_policy=RETRY_TRANSIENT,
    name="live_visits",
    outs={
        "dead": dg.AssetOut(
            **dataset(VisitsLiveDeadLetter, patterns=["dead_letter"]),
            is_required=False,
            automation_condition=gated(),
        ),
        "late": dg.AssetOut(
            **dataset(VisitsLiveLate, patterns=["late_data_detector"]),
            is_required=False,
            automation_condition=gated(),
        ),
        "valid": dg.AssetOut(
            **dataset(VisitsLive, patterns=["windowed_deduplicator", "filter_interceptor", "data_overwrite"]),
            is_required=False,
            automation_condition=gated(),
        ),
        "state": dg.AssetOut(
            **dataset(VisitsLiveState, patterns=["late_data_detector", "windowed_deduplicator"]),
            is_required=False,
            automation_condition=gated(),
        ),
    },
    ins={"stream": dg.AssetIn(VISITS_STREAM)},
)
def live_visits(context: dg.AssetExecutionContext, stream: DataFrame, lake: Lake) -> Iterator[dg.Output[ObservedFrame]]:
    """Judge what came since the last run; nothing is written where nothing came."""
    state = state_of(lake, stream)
    positions = {source: known.position for source, known in state.sources.items()}
    extent = Extent.of(stream.where(beyond(positions)), STREAM)
    if extent is None:
        context.log.info("Nothing came since the last run.")
        return
    offsets = OffsetRange.of(STREAM.source, STREAM.position, extent.positions, positions)
    judged = judge(stream.where(offsets.predicate(stream.schema)), extent, state, RULE)
    records = judged.records.persist()
    try:
        added = totals(records, STREAM)
        yield dg.Output(dead_letters(records, offsets), "dead")
        yield dg.Output(late_visits(records, offsets), "late")
        valid = intercept_stream(records, RULE.conditions, time=STREAM.arrived, length=WINDOW)
        # Of all that was understood, so that a drift is seen also where most visits are late.
        understood = records.where(RULE.understood)
        fields = {FILLED: filled(understood, Contract.of(VisitsLive), "payload", Contract.of(VisitRecord))}
        kept = ObservedFrame(in_event_hour(valid.frame), valid.metadata, offsets).with_metadata({None: fields})
        yield dg.Output(kept, "valid")
        after = next_state(judged, state, RULE, added).select(*Contract.of(VisitsLiveState).column_names)
        # What the state counts and remembers has gone through Python.
        read = [STREAM.source, STREAM.position, STREAM.arrived, STREAM.event_time, *RULE.key]
        made = made_of(after, VISITS_STREAM, read)
        yield dg.Output(ObservedFrame(made, lambda: {None: progress(judged)}), "state")
    finally:
        records.unpersist()


def state_of(lake: Lake, stream: DataFrame) -> JudgeState:
    """What the last run has left; nothing where there was none."""
    contract = Contract.of(VisitsLiveState)
    table = lake.table(STATE)
    if table.log() is None:
        return JudgeState.of(stream.sparkSession.createDataFrame([], contract.struct_type()))
    return JudgeState.of(table.read_pinned(stream.sparkSession))


def beyond(positions: dict[int, int]) -> str:
    """SQL for what comes after the positions, of known sources and of new ones."""
    known = [f"(topic_partition = {source} AND topic_offset > {last})" for source, last in positions.items()]
    return " OR ".join([*known, f"topic_partition NOT IN ({', '.join(map(str, positions))})"]) if known else "TRUE"


def dead_letters(records: DataFrame, offsets: OffsetRange) -> ObservedFrame:
    """The columns of silver.visits_live_dead_letter. The few that were rejected are parsed once more, for the failing field."""
    place = (STREAM.source, STREAM.position, STREAM.arrived)
    rejected = records.where(F.col(VERDICT) == "malformed").select("payload", F.col(ERROR).alias("reason"), *place)
    letters = parse_visits(rejected, "payload").withColumns(
        {"field": F.col(ERROR_FIELD), "job_version": F.lit(__version__)}
    )
    return ObservedFrame(letters.select(*Contract.of(VisitsLiveDeadLetter).column_names), dict, offsets)


def late_visits(records: DataFrame, offsets: OffsetRange) -> ObservedFrame:
    """The columns of silver.visits_live_late; tells what became of the records by the hour of their event."""
    observed, metadata = account_by_hour(records, RULE.conditions, time=STREAM.event_time)
    lateness = F.unix_seconds(WATERMARK) - F.unix_seconds("event_time")
    late = observed.where(F.col(VERDICT).isin("late", "future")).withColumn("lateness_seconds", lateness)
    return ObservedFrame(late.select(*Contract.of(VisitsLiveLate).column_names), metadata, offsets)


def in_event_hour(visits: DataFrame) -> DataFrame:
    """The columns of silver.visits_live."""
    hour = F.date_trunc("HOUR", F.col("event_time")).alias("event_hour")
    return visits.select("*", hour).select(*Contract.of(VisitsLive).column_names)


def progress(judged: JudgedRecords) -> dict[str, object]:
    """How far the watermark came, and how far it is behind the newest batch: both are plotted."""
    told: dict[str, object] = {"stream/newest_batch": _text(judged.opened)}
    if judged.watermark is not None:
        told["stream/watermark"] = _text(judged.watermark)
        told["stream/watermark_seconds"] = judged.watermark / 1e6
        told["stream/lag_seconds"] = (judged.opened - judged.watermark) / 1e6
    return told


def _text(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat()


_DEAD = live_visits.get_asset_spec(dg.AssetKey(["silver", "visits_live_dead_letter"]))
_VALID = live_visits.get_asset_spec(dg.AssetKey(["silver", "visits_live"]))
_LATE = live_visits.get_asset_spec(dg.AssetKey(["silver", "visits_live_late"]))
_STATE = live_visits.get_asset_spec(STATE)

checks = [
    contract_check(_DEAD, blocking=False),
    contract_check(_VALID),
    contract_check(_LATE, blocking=False),
    contract_check(_STATE, blocking=False),
    stream_drift_check(_VALID),
    *dead_letter_checks(_VALID, _DEAD, red_above=0.05, block_above=0.5),
    conservation_check(
        _STATE,
        came=VISITS_STREAM,
        source=STREAM.source,
        position=STREAM.position,
        kept={_DEAD.key: ("malformed",), _VALID.key: ("valid",), _LATE.key: ("late", "future")},
    ),
]
