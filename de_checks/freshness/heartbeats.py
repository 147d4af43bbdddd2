"""Long-running jobs prove that they live, though no data comes to them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun
from de_checks.freshness.clock import Clock, utc_now
from de_checks.freshness.flow import flow_check
from de_checks.freshness.signs import Sign, Signs
from de_checks.subject import Subject
from de_resources.contract.freshness import Freshness
from de_resources.heartbeat import Beat, last_beat

SILENCE = timedelta(minutes=2)


@dataclass(frozen=True)
class Heartbeats:
    """Signs from the heartbeats of these jobs (`de_resources.heartbeat`), each a part. One that never beat is none of them."""

    jobs: Sequence[str]
    name: str = "heartbeat"
    sees: str = "the last heartbeat"
    resources: Collection[str] = ()

    def signs(self, run: CheckRun, believable: datetime) -> Signs | None:  # noqa: ARG002 - as `Layer` says
        """As `Layer` says. A job that ended in order, or never began, is not among them."""
        found = {job: beat for job in self.jobs if (beat := last_beat(job)) is not None}
        return {job: _sign(beat, believable) for job, beat in found.items()}

    def figures(self, signs: Signs) -> Mapping[str, Any]:
        """When data came last to each of them: alive is not the same as busy."""
        beats = {job: last_beat(job) for job in signs}
        return {
            "data_at": dg.MetadataValue.json({j: b.data_at.isoformat() for j, b in beats.items() if b and b.data_at})
        }


def heartbeat_check(
    asset: Subject,
    jobs: Sequence[str],
    *,
    silence: timedelta = SILENCE,
    now: Clock = utc_now,
    name: str = "job_is_alive",
) -> dg.AssetChecksDefinition:
    """A check that the long-running jobs which feed the asset have beaten within `silence`, whatever came to them.

    With it a quiet source is told from a dead job. A job that ended in order owes nothing; one that was killed or hangs is
    silent. Metadata: as of `flow_check`, and `data_at`, when something came to each job last.
    """
    promise = Freshness(silence=silence)
    return flow_check(asset, Heartbeats(tuple(jobs)), name=name, promise=promise, if_nothing="ended", now=now)


def _sign(beat: Beat, believable: datetime) -> Sign:
    return Sign(beat.at) if beat.at <= believable else Sign(None, ahead=1, furthest=beat.at)
