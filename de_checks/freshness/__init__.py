"""Is data still flowing? Pattern *Flow Interruption Detector*, as questions that are easily mixed up.

| question                                           | answered by           | layer: what it looks at                    |
|----------------------------------------------------|-----------------------|--------------------------------------------|
| Does the asset still run?                          | `cadence_policy`      | time of the last materialisation           |
| Are all partitions there that should be?           | `completeness_check`  | the materialised partition keys            |
| Are rows still committed?                          | `flow_check(Commits)` | metadata: the last commit that brought rows|
| Is what arrives recent?                            | `newest_event_check`  | data: event times inside the table         |
| Do files still land?                               | `flow_check(LandedFolders)` | storage: the newest dated folder     |
| Do records still come?                             | `flow_check(TopicRecords)` | each partition of a topic             |
| Does the job live that would bring them?           | `heartbeat_check`     | its last heartbeat                         |
| Was it silent in between, when it never is?        | `gap_check`           | rows per window, in Delta's log            |

A backfill of old days satisfies the first, an empty partition the second; neither satisfies the others. Housekeeping
commits (compaction, vacuum) satisfy none. How soon something is owed stands in the contract (`Freshness`).
"""

from de_checks.freshness.cadence import cadence_policy
from de_checks.freshness.clock import Clock, utc_now
from de_checks.freshness.commits import Commits
from de_checks.freshness.completeness import completeness_check
from de_checks.freshness.flow import flow_check
from de_checks.freshness.gaps import gap_check
from de_checks.freshness.heartbeats import heartbeat_check
from de_checks.freshness.landed_folders import LandedFolders
from de_checks.freshness.newest_event import newest_event_check
from de_checks.freshness.topic_records import TopicRecords

__all__ = [
    "Clock",
    "Commits",
    "LandedFolders",
    "TopicRecords",
    "cadence_policy",
    "completeness_check",
    "flow_check",
    "gap_check",
    "heartbeat_check",
    "newest_event_check",
    "utc_now",
]
