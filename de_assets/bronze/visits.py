"""Landed visits, one hour at a time: what could be understood, and what could not.

Grain: one landed line in exactly one of the two tables. Patterns: Incremental Loader (partition flavour, behind the
readiness marker), Dead-Letter, and Concurrent Runner: hours are loaded side by side, each into a slice of its own. The
dead letters are written first: should the run die between the two tables, the rerun of the hour replaces both. What was
decided about dead letters (`de dlq`) is landed beside the lines and read with them: a repaired line goes the way of every
other.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets import __version__
from de_assets.automation.pipelines import LANDING
from de_assets.contracts.visits import BronzeVisits, VisitsDeadLetter
from de_assets.dataset import dataset, pattern_tags
from de_assets.partitions import calendar_end, hourly
from de_assets.sources.landing_zone import LandingZone
from de_assets.sources.systems import LANDED_VISITS
from de_assets.transforms.error_management.dead_letter import (
    ATTEMPTS,
    DECIDED,
    REPAIR_OF,
    WHY,
    close,
    letter_id,
    status,
    undecided,
    was_dead_lettered,
    with_decisions,
    with_status_counts,
)
from de_assets.transforms.error_management.visit_parser import ERROR, ERROR_FIELD, ERROR_FILE, ERROR_LINE, parse_visits
from de_checks.contract import contract_check
from de_checks.damaged_files import damage_metadata, damaged_files_check
from de_checks.dead_letters import dead_letter_checks
from de_checks.freshness import Commits, LandedFolders, completeness_check, flow_check, gap_check
from de_checks.schema_drift import schema_drift_check
from de_checks.volume import volume_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine


@dg.multi_asset(
    retry_policy=RETRY_TRANSIENT,
    name="landed_visits",
    outs={
        # A landed file belongs to one hour, and the engine reads whole files where they are small: both are pre-clustered.
        "dead": dg.AssetOut(
            **dataset(
                VisitsDeadLetter,
                patterns=["dead_letter"],
                partition="landing_hour",
                pool=LANDING,
                pre_clustered=True,
                schema_mode="merge",
            ),
        ),
        "valid": dg.AssetOut(
            **dataset(
                BronzeVisits,
                patterns=["incremental_loader", "dead_letter", "concurrent_runner"],
                partition="landing_hour",
                pool=LANDING,
                pre_clustered=True,
                schema_mode="merge",
            ),
        ),
    },
    deps=[LANDED_VISITS],
    partitions_def=hourly,
    backfill_policy=dg.BackfillPolicy.single_run(),  # an AssetOut's own is ignored
    op_tags=pattern_tags("incremental_loader", "dead_letter"),
)
def landed_visits(
    context: dg.AssetExecutionContext, landing: LandingZone, spark: SparkEngine
) -> Iterator[dg.Output[DataFrame] | dg.Output[ObservedFrame]]:
    """Parse the landed and the repaired lines of the run's hours once, and split them."""
    hours = [hourly.time_window_for_partition_key(key).start for key in context.partition_keys]
    session = spark.spark_session
    landed, decisions = landing.visit_lines(session, hours), landing.decisions(session, hours)
    parsed = parsed_lines(landed.lines, decisions)
    # What is the same of every line need not be kept.
    kept = (parsed.drop(*DECIDED) if decisions is None else parsed).persist()
    parsed = undecided(kept) if decisions is None else kept
    try:
        letters = with_status_counts(dead_letters(parsed), window="landing_hour", status="status")
        yield dg.Output(letters.with_metadata(damage_metadata(landed.damaged)), "dead")
        yield dg.Output(understood(parsed), "valid")
    finally:
        kept.unpersist()


def parsed_lines(lines: DataFrame, decisions: DataFrame | None) -> DataFrame:
    """Every line, landed or repaired, with the visit's columns or its error, and with what was decided about it."""
    parsed = parse_visits(with_decisions(lines, decisions, window="landing_hour"), "payload").transform(close, ERROR)
    # Kept once: of what was understood the text is the payload.
    return parsed.withColumn("payload", F.when(F.col(ERROR).isNotNull(), F.col("payload").cast("binary")))


def understood(parsed: DataFrame) -> DataFrame:
    """The rows without an error, in the columns of bronze.visits."""
    marked = parsed.where(F.col(ERROR).isNull()).withColumn("was_dead_lettered", was_dead_lettered())
    return marked.select(*Contract.of(BronzeVisits).column_names)


def dead_letters(parsed: DataFrame) -> DataFrame:
    """The rows with an error, in the columns of bronze.visits_dead_letter."""
    return parsed.where(F.col(ERROR).isNotNull()).select(
        "payload",
        "raw",
        F.col(ERROR).alias("reason"),
        F.col(ERROR_FIELD).alias("field"),
        F.coalesce(F.col(ERROR_FILE), F.col("source_file")).alias("source_file"),
        F.col(ERROR_LINE).alias("source_line"),
        F.lit(__version__).alias("job_version"),
        letter_id("landing_hour").alias("letter_id"),
        status().alias("status"),
        REPAIR_OF,
        ATTEMPTS,
        WHY,
        "landing_hour",
    )


def landed_windows(resources: Any, _believable: datetime) -> Iterator[tuple[datetime, datetime]] | None:
    """The hours that are complete and hold files, newest first; None where nothing ever lands."""
    landing: LandingZone = resources.landing
    arrivals = landing.arrivals()
    if not arrivals.hours:
        return None
    return ((hour, hour + timedelta(hours=1)) for hour in reversed(arrivals.hours) if arrivals.files(hour))


_VISITS = landed_visits.get_asset_spec(dg.AssetKey(["bronze", "visits"]))
_DEAD = landed_visits.get_asset_spec(dg.AssetKey(["bronze", "visits_dead_letter"]))

checks = [
    contract_check(_DEAD, blocking=False),
    contract_check(_VISITS),
    # Nights are quiet and launches are loud: only a change of magnitude against the same hour of the week is news.
    volume_check(
        _VISITS,
        tolerance=(0.1, 10.0),
        against="same_weekday",
        min_rows=0,
        events=True,
        severity=dg.AssetCheckSeverity.WARN,
    ),
    *dead_letter_checks(_VISITS, _DEAD, red_above=0.05, block_above=0.5),
    damaged_files_check(_VISITS, _DEAD),
    schema_drift_check(_VISITS, record="raw"),
    completeness_check(_VISITS, allowed_delay=timedelta(hours=1)),
    gap_check(_VISITS),
    # Three layers of one flow: what lands, what is committed, and (of silver/visits) when it happened.
    flow_check(
        dg.AssetSpec(LANDED_VISITS),
        LandedFolders(landed_windows, resources=["landing"]),
        name="files_keep_landing",
        promise=Contract.of(BronzeVisits).freshness,
        ends=calendar_end,
    ),
    flow_check(_VISITS, Commits(), name="rows_keep_coming", ends=calendar_end),
]
