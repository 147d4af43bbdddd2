"""Does whoever reads keep up with whoever writes? Pattern *Lag Detector*.

| who reads what                                   | answered by          | in                                      |
|--------------------------------------------------|----------------------|-----------------------------------------|
| a consumer, a topic                              | `topic_lag_check`    | offsets, age of what is read next       |
| an asset, the tables that it read whole          | `version_lag_check`  | commits, bytes, age of the first        |
| a capture, a database's log                      | `capture_lag_check`  | bytes of log                            |
| rows, from their event to the table              | `delay_check`        | milliseconds                            |

The first three are judged by their worst partition, and by whether what waits is read before it is removed. A reader that has
not started is not one without a lag.
"""

from de_checks.lag.capture import capture_lag_check
from de_checks.lag.delay import delay_check
from de_checks.lag.topic import topic_lag_check
from de_checks.lag.versions import version_lag_check

__all__ = ["capture_lag_check", "delay_check", "topic_lag_check", "version_lag_check"]
