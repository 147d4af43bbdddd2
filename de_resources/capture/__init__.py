"""Change data capture: what a PostgreSQL database commits becomes records of a Kafka topic, once and in order.

Pattern: Change Data Capture. `prepare` makes publication and slot, `Capture` relays, `status` and `drop` look after the slot.
"""

from de_resources.capture.relay import Capture
from de_resources.capture.slot import (
    CaptureBehind,
    CaptureStatus,
    SlotLost,
    drop,
    prepare,
    status,
    wait_until_captured,
)
from de_resources.capture.source import CaptureSource

__all__ = [
    "Capture",
    "CaptureBehind",
    "CaptureSource",
    "CaptureStatus",
    "SlotLost",
    "drop",
    "prepare",
    "status",
    "wait_until_captured",
]
