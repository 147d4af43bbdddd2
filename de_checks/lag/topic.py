"""How far is a consumer behind its topic?"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, duration, utc_now
from de_checks.lag.judgement import judge_topic
from de_checks.lag.past import measured_before, result, unknown
from de_checks.subject import Subject
from de_resources.kafka import TopicMissing
from de_resources.kafka.keepers import KeptPosition
from de_resources.kafka.lag import topic_lag
from de_resources.kafka.topic import Topic
from de_resources.local.endpoints import ServiceUnavailable

Position = Callable[[CheckRun, Topic], KeptPosition | None]
"""Asks the keeper of a reader's position; None where the reader never started."""


def topic_lag_check(
    asset: Subject,
    topic: str,
    position: Position,
    *,
    at_most: timedelta = timedelta(hours=2),
    resources: tuple[str, ...] = ("broker",),
    now: Clock = utc_now,
) -> dg.AssetChecksDefinition:
    """A check of the asset as a whole: its reader is at most `at_most` behind in every partition of the topic.

    Beyond that it warns; where the reader, at the speed that earlier measurements tell, will not come to records before the
    topic's retention removes them, it is an error that says how much time is left. Errors, too, are a position that is gone,
    one of a topic that was made again, and records that were removed unread. Waiting mends none of these.

    Moves no reader. Metadata, with the same keys every time: `lag/offsets_max`, `_p95`, `_p90`, `_total`, `lag/seconds_max`,
    `_p95`, `_p90`, `lag/started`, and `lag/lost_in_seconds` or `lag/caught_up_in_seconds` where they are known. Needs the
    resource `broker`, and those of `resources` that `position` asks.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        try:
            there = Topic(run.resources.broker.client_config(), topic)
            # The position first: a reader that goes on meanwhile must not look as if it were ahead.
            kept = position(run, there)
            moment = now()
            verdict = judge_topic(topic_lag(there, kept), at_most, moment, measured_before(run))
        except (ServiceUnavailable, TopicMissing) as away:
            return unknown(str(away))
        return result(verdict.passed, verdict.severity, verdict.description, verdict.metadata)

    return check_of_asset(
        asset,
        f"keeps_up_with_{_named(topic)}",
        judge,
        description=f"At most {duration(at_most.total_seconds())} behind the topic `{topic}`, in its worst partition.",
        patterns=["lag_detector"],
        resources=resources,
    )


def _named(topic: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in topic)
