"""The newest record of each partition of a topic, by the broker's clock: no record is read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from de_checks.factory import CheckRun
from de_checks.freshness.signs import Sign, Signs
from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.errors import TopicMissing


@dataclass(frozen=True)
class TopicRecords:
    """Signs from a topic whose broker dates the records (`LogAppendTime`), one for each partition.

    A partition whose records the broker's retention has removed is known to be silent for that long. Raises `NotAppendTime`,
    and `ServiceUnavailable` where the broker does not answer: then nobody knows, and nothing is said.
    """

    topic: str
    broker: str = "broker"
    name: str = "topic"
    sees: str = "the newest record of each partition"

    @property
    def resources(self) -> Collection[str]:
        """The broker."""
        return (self.broker,)

    def signs(self, run: CheckRun, believable: datetime) -> Signs | None:
        """As `Layer` says."""
        broker: KafkaBroker = getattr(run.resources, self.broker)
        log = AppendLog(broker.client_config(), self.topic)
        try:
            log.require_append_time()
        except TopicMissing:
            return None
        ends, newest, kept = log.ends(), log.newest_times(), log.kept_for()
        forgotten = believable - kept if kept else None
        return {
            f"partition {number}": _sign(newest[number], believable, forgotten)
            for number, end in sorted(ends.items())
            if end > 0
        }

    def figures(self, signs: Signs) -> Mapping[str, Any]:  # noqa: ARG002 - as `Layer` says
        """Nothing of its own."""
        return {}


def _sign(newest: datetime | None, believable: datetime, forgotten: datetime | None) -> Sign:
    if newest is None:
        return Sign(None, before=forgotten)
    if newest > believable:
        return Sign(None, ahead=1, furthest=newest, before=forgotten)
    return Sign(newest)
