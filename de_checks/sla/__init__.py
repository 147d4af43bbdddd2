"""Did the work take too long, and was it there in time? Pattern *SLA Misses Detector*.

| question                                                | answered by          | measured from                         |
|---------------------------------------------------------|----------------------|---------------------------------------|
| Did a step take longer than usual, or than promised?    | `duration_check`     | the start of its own last attempt     |
| The same of an asset that promises nothing?             | `step_duration_check`| the same, one verdict for each step   |
| Was a partition there in time, and whose fault was it?  | `deadline_check`     | the end of the partition's window     |
| Does a step run too long that has not ended yet?        | `overdue_steps`      | the start of its own running attempt  |
| Is a partition not there at all at its deadline?        | `missing_partitions` | the end of the partition's window     |

The time that a run waits in the queue is told, and is never the step's duration.
"""

from de_checks.sla.deadline import deadline_check
from de_checks.sla.duration import duration_check, step_duration_check
from de_checks.sla.missing import missing_partitions
from de_checks.sla.running import overdue_steps

__all__ = ["deadline_check", "duration_check", "missing_partitions", "overdue_steps", "step_duration_check"]
