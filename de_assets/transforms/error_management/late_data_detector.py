"""Late Data Detector, batch flavour: what arrived in the window of its event, and what did not.

Source: pattern *Late Data Detector*. Late rows are captured, never dropped; rows dated in the future are captured as well,
so that one wrong clock cannot claim a window that has not begun.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_resources.sql.identifiers import identifier

LATENESS = "lateness_seconds"


def on_time_conditions(event_time: str, window_start: str, length: str = "INTERVAL 1 HOUR") -> dict[str, str]:
    """What makes an event one of the half-open window that starts at `window_start`: SQL predicates by name."""
    time, start = identifier(event_time), identifier(window_start)
    return {"not_late": f"{time} >= {start}", "not_in_the_future": f"{time} < {start} + {length}"}


def is_on_time(event_time: str, window_start: str, length: str = "INTERVAL 1 HOUR") -> Column:
    """Whether the event lies in the window: all `on_time_conditions` hold."""
    not_late, not_in_the_future = on_time_conditions(event_time, window_start, length).values()
    return F.expr(not_late) & F.expr(not_in_the_future)


def split_late(frame: DataFrame, event_time: str, window_start: str) -> tuple[DataFrame, DataFrame]:
    """(on time, not on time), exactly complementary.

    The second gains `lateness_seconds`, from the event to the window's start; it is negative for the future.
    An event without a time is late: nothing says that it belongs to the window.
    """
    on_time = F.coalesce(is_on_time(event_time, window_start), F.lit(False))
    lateness = F.unix_timestamp(window_start) - F.unix_timestamp(event_time)
    return frame.where(on_time), frame.where(~on_time).withColumn(LATENESS, lateness.cast("long"))
