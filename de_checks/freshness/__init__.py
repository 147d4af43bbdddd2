"""Is data still flowing? Pattern *Flow Interruption Detector*, as four questions that are easily mixed up.

| question                                           | answered by           | sees                              |
|----------------------------------------------------|-----------------------|-----------------------------------|
| Does the asset still run?                          | `cadence_policy`      | time of the last materialisation  |
| Are all partitions there that should be?           | `completeness_check`  | the materialised partition keys   |
| Is what arrives recent?                            | `newest_event_check`  | event times inside the table      |
| Was it silent in between, when it never is?        | `gap_check`           | rows per window, in Delta's log   |

A backfill of old days satisfies the first, an empty partition the second; neither satisfies the third. Housekeeping
commits (compaction, vacuum) satisfy none.
"""

from de_checks.freshness.cadence import cadence_policy
from de_checks.freshness.clock import Clock, utc_now
from de_checks.freshness.completeness import completeness_check
from de_checks.freshness.gaps import gap_check
from de_checks.freshness.newest_event import newest_event_check

__all__ = ["Clock", "cadence_policy", "completeness_check", "gap_check", "newest_event_check", "utc_now"]
