"""Is the load spread evenly over the partitions of a topic? Pattern *Skew Detector*: offsets only, no record is read."""

from datetime import timedelta

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, duration, utc_now
from de_checks.freshness.flow import STATE, FlowState
from de_checks.spread import Bound, judge_spread
from de_checks.subject import Subject
from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.errors import TopicMissing

DAY = timedelta(days=1)


def topic_skew_check(
    asset: Subject,
    topic: str,
    *,
    max_deviation: float = 0.5,
    window: timedelta = DAY,
    broker: str = "broker",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    now: Clock = utc_now,
    name: str = "load_is_balanced",
) -> dg.AssetChecksDefinition:
    """A check that the records which a topic got within `window` are spread evenly over its partitions.

    The size of a partition since it exists hides what goes wrong today, so that only what the broker took within the window
    counts (`LogAppendTime`; where retention is shorter, what is kept). The measure is that of `skew_check`; what chance
    explains is balanced, and so are a single partition and a window in which nothing came: silence is for
    `TopicRecords`. Offsets also count the markers of transactions, one per partition that took part.

    It belongs to a watch, like the checks of flows. Raises `NotAppendTime`, and `ServiceUnavailable` where the broker does not
    answer. Metadata: as of `judge_spread`. A rerun judges again.
    """
    bound = Bound(max_deviation, events=True)

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        client: KafkaBroker = getattr(run.resources, broker)
        log = AppendLog(client.client_config(), topic)
        try:
            log.require_append_time()
        except TopicMissing:
            return dg.AssetCheckResult(
                passed=True, description=f"There is no topic `{topic}` here.", metadata={STATE: str(FlowState.ABSENT)}
            )
        starts, ends = log.offsets_at(now() - window), log.ends()
        taken = {f"partition {p}": max(0, end - starts.get(p, end)) for p, end in sorted(ends.items())}
        verdict = judge_spread(taken, bound)
        return dg.AssetCheckResult(
            passed=verdict.passed, severity=severity, description=verdict.description, metadata=verdict.metadata
        )

    return check_of_asset(
        asset,
        name,
        judge,
        description=f"What came within {duration(window.total_seconds())} is spread over the partitions with a relative "
        f"standard deviation of at most {max_deviation:g}.",
        patterns=["skew_detector"],
        resources=[broker],
        standing=True,
    )
