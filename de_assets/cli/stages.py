"""The graph in the order in which a fresh lake is filled: one run per layer, ranges of partitions in single runs.

A layer's run covers the partitions whose blocking checks passed in the layer before, so that a bad hour is held back and
the others go on - what automation does continuously, done once and at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

import dagster as dg
from dagster import AssetKey, DagsterInstance, Definitions

from de_assets.dashboards import definitions as dashboards
from de_assets.partitions import daily, hourly, weekly
from de_assets.ranges import range_tags
from de_assets.sources.capture import USERS_CAPTURE
from de_assets.sources.landing_zone import LandingZone
from de_resources.capture import CaptureBehind, CaptureSource, SlotLost, status, wait_until_captured
from de_resources.iso_week import Week
from de_resources.postgres import PostgresDatabase
from de_resources.settings import Settings

CAPTURED = ("postgres", "kafka", "capture")
CAPTURE_SECONDS = 60.0
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class Stage:
    """Assets that are materialised together. `needs` names services without which the stage is left out."""

    name: str
    assets: tuple[AssetKey, ...]
    partitions: dg.TimeWindowPartitionsDefinition | None = None
    needs: tuple[str, ...] = ()
    awaits: CaptureSource | None = None
    """What the database has committed before the stage has to be in the topic first."""
    consumer: bool = False
    """Belongs to the other code location, which reads what this one publishes."""
    one_by_one: bool = False
    """A run for each partition, in order: each builds on the one before it, or is a unit by itself."""


@dataclass
class Outcome:
    """What became of a stage."""

    stage: Stage
    runs: int = 0
    failures: list[str] = field(default_factory=list)
    held_back: set[str] = field(default_factory=set)
    checks_passed: int = 0
    checks_failed: list[str] = field(default_factory=list)
    left_out: str | None = None


def _keys(*paths: str) -> tuple[AssetKey, ...]:
    return tuple(AssetKey(path.split("/")) for path in paths)


def stages() -> list[Stage]:
    """All stages, upstream first."""
    return [
        Stage("devices", _keys("bronze/devices", "silver/devices")),
        Stage("changes of users", _keys("bronze/users_changes"), needs=CAPTURED, awaits=USERS_CAPTURE),
        Stage("users", _keys("silver/users", "gold/users_by_country"), needs=CAPTURED),
        Stage("landed visits", _keys("bronze/visits", "bronze/visits_dead_letter"), hourly),
        Stage("valid visits", _keys("silver/visits", "silver/visits_late"), hourly),
        Stage("enriched visits", _keys("silver/visits_enriched"), hourly),
        Stage("traffic and sessions", _keys("gold/visits_cube_daily", "gold/sessions"), daily),
        Stage("referrals", _keys("gold/referral_stats"), daily),
        Stage("user activity", _keys("gold/user_activity"), daily, one_by_one=True),
        Stage("user snapshots", _keys("gold/users_snapshot"), daily, needs=CAPTURED),
        Stage("served users", _keys("gold/users_latest", "serving/users_snapshot"), needs=CAPTURED),
        Stage("legacy visits", _keys("bronze/legacy_visits"), hourly, needs=("postgres",)),
        Stage("current legacy visits", _keys("silver/legacy_visits"), needs=("postgres",)),
        Stage("live visits", _keys("bronze/visits_stream"), needs=("kafka",)),
        Stage(
            "judged live visits",
            _keys(
                "silver/visits_live",
                "silver/visits_live_dead_letter",
                "silver/visits_live_late",
                "silver/visits_live_state",
            ),
            needs=("kafka",),
        ),
        Stage("live sessions", _keys("gold/sessions_live"), needs=("kafka", "postgres")),
        Stage("released features", _keys("bronze/features", "bronze/features_dead_letter"), needs=("kafka",)),
        Stage(
            "served traffic",
            _keys("serving/daily_traffic", "serving/daily_traffic_by_country"),
            daily,
            needs=("postgres",),
        ),
        Stage("served visits by week", _keys("serving/weekly_visits"), weekly, needs=("postgres",), one_by_one=True),
        Stage("served live visits", _keys("serving/visits_reduced"), needs=("kafka",)),
        Stage("dashboards", _keys("dashboards/daily_traffic"), consumer=True),
        Stage("replicas of devices", _keys("staging/devices_raw", "staging/devices")),
        Stage("replica of visits", _keys("staging/visits"), hourly),
        Stage("replica of users", _keys("staging/users"), needs=CAPTURED),
        Stage("replica of live visits", _keys("staging/visits_topic"), needs=("kafka",)),
    ]


def materialise(
    defs: Definitions,
    instance: DagsterInstance,
    settings: Settings,
    *,
    absent: dict[str, str],
    started: Callable[[Stage], None],
) -> Iterator[Outcome]:
    """Run all stages and yield what became of each. `absent` maps services that do not answer to the reason."""
    held_back: set[str] = set()
    closed = LandingZone(root=str(settings.landing)).closed_hours()
    landed = {hourly.get_partition_key_for_timestamp(h.timestamp()) for h in closed}
    for stage in stages():
        started(stage)
        outcome = Outcome(stage)
        why = next((f"{name}: {absent[name]}" for name in stage.needs if name in absent), None) or _behind(stage)
        if why is not None:
            outcome.left_out = why
        else:
            for selection in _selections(stage, landed, held_back):
                run_stage(defs, instance, stage, selection, outcome)
        held_back |= outcome.held_back
        yield outcome


def _behind(stage: Stage) -> str | None:
    """Why what the stage reads has not arrived; None when it has, or when nothing is awaited."""
    if stage.awaits is None or status(PostgresDatabase(), stage.awaits) is None:
        return None
    try:
        wait_until_captured(PostgresDatabase(), stage.awaits, CAPTURE_SECONDS)
    except (CaptureBehind, SlotLost) as error:
        return str(error)
    return None


def _selections(stage: Stage, landed: set[str], held_back: set[str]) -> Iterable[tuple[str, str] | None]:
    """Contiguous ranges of partitions to run; `(None,)` for an unpartitioned stage."""
    if stage.partitions is None:
        return [None]
    keys = list(stage.partitions.get_partition_keys())
    if isinstance(stage.partitions, dg.DailyPartitionsDefinition):
        blocked = {key[:10] for key in held_back}
        wanted = [key not in blocked for key in keys]
    elif isinstance(stage.partitions, dg.WeeklyPartitionsDefinition):
        weeks = {Week.of(date.fromisoformat(key[:10])).start.isoformat() for key in held_back}
        wanted = [key not in weeks for key in keys]
    elif stage.name == "legacy visits":
        wanted = [True] * len(keys)
    else:
        wanted = [key in landed and key not in held_back for key in keys]
    if stage.one_by_one:
        return [(key, key) for key, take in zip(keys, wanted, strict=True) if take]
    return contiguous(keys, wanted)


def contiguous(keys: Sequence[str], wanted: Sequence[bool]) -> list[tuple[str, str]]:
    """The wanted keys as (first, last) of maximal runs without a gap."""
    ranges: list[tuple[str, str]] = []
    open_range = False
    for key, take in zip(keys, wanted, strict=True):
        if take:
            ranges[-1:] = [(ranges[-1][0], key)] if open_range else [*ranges[-1:], (key, key)]
        open_range = take
    return ranges


def run_stage(
    defs: Definitions,
    instance: DagsterInstance,
    stage: Stage,
    selection: tuple[str, str] | None,
    outcome: Outcome,
) -> None:
    """One run of the stage's assets over a range of partitions, or of all there is; `outcome` is told what happened."""
    location = dashboards.defs if stage.consumer else defs
    job = location.resolve_implicit_global_asset_job_def()
    tags = range_tags(*selection) if selection else {}
    result = job.execute_in_process(
        instance=instance,
        asset_selection=list(stage.assets),
        tags={**tags, "de/stage": stage.name.replace(" ", "_")},
        run_config=_QUIET,
        raise_on_error=False,
    )
    outcome.runs += 1
    for evaluation in result.get_asset_check_evaluations():
        name = f"{evaluation.asset_key.to_user_string()}: {evaluation.check_name}"
        if evaluation.passed:
            outcome.checks_passed += 1
            continue
        partition = f" [{evaluation.partition}]" if evaluation.partition else ""
        outcome.checks_failed.append(name + partition)
        if evaluation.blocking and evaluation.partition:
            outcome.held_back.add(evaluation.partition)
    for event in result.get_step_failure_events():
        # A blocking check that fails ends its run as well; it is reported as a check and not as a failure.
        if event.step_key and not outcome.checks_failed:
            outcome.failures.append(f"{event.step_key}: {_reason(event)}")


def _reason(event: dg.DagsterEvent) -> str:
    """The platform's own sentence where the chain of errors has one, else its innermost cause."""
    error, chosen = event.step_failure_data.error, None
    while error is not None:
        if chosen is None or not chosen.message.startswith("de_"):
            chosen = error
        error = error.cause
    return (chosen.message.strip().splitlines() or ["unknown"])[0][:500] if chosen else "unknown"
