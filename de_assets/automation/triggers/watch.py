"""Checks that are asked by the clock: when a flow stops, no run happens in which anybody could notice.

A watch is a sensor. At each tick it asks each of its checks as a function, without a run or an engine, and holds the answer
against the last recorded verdict. Where they differ, for as long as the watch is told to wait, a run of that check is
requested, which records the new verdict: one when a flow stops and one when it goes on, and nothing in between. The recorded
verdicts are the memory; a daemon that restarts, or a cursor that is lost, repeats nothing.

A flow that has not begun, or whose source is not in this installation, is left alone. One that cannot be asked now, because a
broker is away, is asked at the next tick; a check that breaks is run, so that its failure is seen, with growing pauses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from de_assets.automation.triggers.polling import resting
from de_assets.dataset import pattern_tags
from de_checks.freshness.clock import Clock, utc_now
from de_checks.freshness.flow import SILENT, STATE, FlowState
from de_checks.patterns import STANDING
from de_resources.compat.checks import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
from de_resources.errors import TransientError

WATCH = "watch/check"
"""Run tag: the check that a watch requested."""

HOLDS_FOR = timedelta(minutes=3)
_UNKNOWN = {str(FlowState.NOT_BEGUN), str(FlowState.ABSENT)}


@dataclass(frozen=True)
class RecordedVerdict:
    """The newest recorded verdict of a check."""

    id: int
    verdict: str


@dataclass(frozen=True)
class WatchAnswer:
    """What a check says now: its verdict in short, and a sentence for people. `known`: something was there to judge."""

    verdict: str
    why: str
    known: bool = True


def standing(checks: Sequence[dg.AssetChecksDefinition]) -> list[dg.AssetChecksDefinition]:
    """Those of these checks whose answer changes with time alone."""
    return [check for check in checks if any(spec.metadata.get(STANDING) for spec in check.check_specs)]


def watch(
    name: str,
    checks: Sequence[dg.AssetChecksDefinition],
    *,
    holds_for: timedelta = HOLDS_FOR,
    seconds: int = 60,
    now: Clock = utc_now,
    description: str = "Runs a check of a flow when its verdict has changed, though no run of the flow happens.",
    patterns: Sequence[str] = ("flow_interruption_detector",),
) -> dg.SensorDefinition:
    """A sensor over standing checks of whole assets: a run of a check when its verdict changed and `holds_for` so long.

    `holds_for` keeps what is mended within minutes, such as a run that is a little late, from being told. The first verdict of
    a check is recorded as well, so that there is something to change. Needs the checks' own resources. Cursor: verdicts that
    do not hold for long enough yet, with the time since when.
    """
    needed = {key for check in checks for key in check.op.required_resource_keys}

    @dg.sensor(
        name=name,
        description=description,
        target=dg.AssetSelection.checks(*checks),
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys=needed,
        tags=pattern_tags(*patterns),
    )
    def watched(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        moment = now()
        waiting: dict[str, list[str]] = json.loads(context.cursor or "{}")
        still, requests = {}, []
        for check in checks:
            key = next(iter(check.check_keys))
            answer = ask(check, context)
            recorded = last_recorded(context.instance, key)
            if answer is None or not is_news(answer, recorded):
                continue
            label = key.to_user_string()
            since = _since(waiting.get(label), answer, moment)
            still[label] = [answer.verdict, since.isoformat()]
            # What is well is told at once the first time: it is what a change is measured by.
            if moment - since >= holds_for or (recorded is None and answer.verdict == PASSED):
                requests += _request(context.instance, key, answer, recorded)
        # Requests are repeated until the verdict is recorded; their run keys tell the daemon that it knows them.
        return dg.SensorResult(run_requests=requests, cursor=json.dumps(still, sort_keys=True))

    return watched


PASSED = "passed"


def ask(check: dg.AssetChecksDefinition, context: dg.SensorEvaluationContext) -> WatchAnswer | None:
    """What a check says now; None where nobody can tell. A check that breaks answers so."""
    resources: Any = context.resources
    # They are set up already, by the sensor's own tick.
    made = {key: getattr(resources, key) for key in check.op.required_resource_keys}
    needed = {key: dg.ResourceDefinition.hardcoded_resource(each) for key, each in made.items()}
    name = next(iter(check.check_keys)).to_user_string()
    try:
        found = check(dg.build_asset_check_context(resources=needed, instance=context.instance))
    except TransientError as away:
        context.log.info("%s: not known now. %s", name, away)
        return None
    except Exception as broken:
        # The other checks are asked all the same, and a run of this one shows the error to people.
        context.log.exception("%s breaks", name)
        return WatchAnswer(f"breaks: {type(broken).__name__}", "the check breaks")
    assert isinstance(found, dg.AssetCheckResult)  # noqa: S101 - a check of a whole asset
    state = found.metadata.get(STATE)
    return WatchAnswer(
        _verdict(passed=found.passed, metadata=found.metadata),
        found.description or "",
        known=state is None or str(state.value) not in _UNKNOWN,
    )


def is_news(answer: WatchAnswer, recorded: RecordedVerdict | None) -> bool:
    """Whether a run has something to record."""
    if recorded is None:
        return answer.known
    # What had begun, stopped, and ended in order is well again; what never was there stays as it is recorded.
    return answer.verdict != recorded.verdict


def last_recorded(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> RecordedVerdict | None:
    """The newest verdict, of whatever run."""
    records = instance.event_log_storage.get_asset_check_execution_history(
        check, limit=1, status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
    )
    evaluation = records[0].evaluation if records else None
    if evaluation is None:
        return None
    return RecordedVerdict(records[0].id, _verdict(passed=evaluation.passed, metadata=evaluation.metadata))


def _verdict(*, passed: bool, metadata: Any) -> str:
    """What has to change to be news: whether it passes, and which parts are silent."""
    parts = metadata[SILENT].value if SILENT in metadata else []
    return PASSED if passed else " ".join(filter(None, ["failed", *sorted(map(str, parts))]))


def _since(waiting: Sequence[str] | None, answer: WatchAnswer, moment: datetime) -> datetime:
    """Since when the check says so. A clock that was set back begins again."""
    if waiting is None or waiting[0] != answer.verdict:
        return moment
    return min(datetime.fromisoformat(waiting[1]), moment)


def _request(
    instance: dg.DagsterInstance, key: dg.AssetCheckKey, answer: WatchAnswer, recorded: RecordedVerdict | None
) -> list[dg.RunRequest]:
    """The run that records the verdict: once after each recorded one, and again after a pause where the run failed."""
    tags = {WATCH: key.to_user_string()}
    if resting(instance, tags, utc_now()):
        return []
    failed = instance.get_runs_count(
        dg.RunsFilter(tags=tags, statuses=[dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED])
    )
    after = recorded.id if recorded else 0
    run_key = f"{key.to_user_string()} after {after}, {failed}: {answer.verdict}"
    return [dg.RunRequest(run_key=run_key, tags={**tags, "watch/why": answer.why[:500]}, asset_check_keys=[key])]
