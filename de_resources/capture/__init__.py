"""Change data capture: what a PostgreSQL database commits becomes records of a Kafka topic, once and in order.

Pattern: Change Data Capture. `prepare` makes publication and slot, `Capture` relays, `status` and `drop` look after the slot.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def __getattr__(name: str) -> object:
    """Import what is asked for: who names a source needs neither the broker's client nor the database's."""
    if name not in __all__:
        raise AttributeError(name)
    home = {"Capture": "relay", "CaptureSource": "source"}.get(name, "slot")
    return getattr(import_module(f"de_resources.capture.{home}"), name)
