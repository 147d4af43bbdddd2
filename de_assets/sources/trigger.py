"""External Trigger: what a run says about the event that started it, whichever way the event came.

| tag | value |
|---|---|
| `trigger/event` | identity of the event: the same for every delivery |
| `trigger/envelope` | the event without its data, as JSON |
| `trigger/event_time` | when it happened |
| `trigger/processing_time` | when it was turned into this run |
| `trigger/origin` | `topic/partition@offset`, or `push` |
| `trigger/version` | version of the rules that turned it into a run |
"""

import json
from datetime import UTC, datetime

from de_assets.sources.releases import ReleaseEvent

EVENT = "trigger/event"
PUSH = "push"
VERSION = "1"


def trigger_tags(event: ReleaseEvent, origin: str, processing_time: datetime) -> dict[str, str]:
    """The tags of the run that an event starts."""
    return {
        EVENT: event.identity,
        "trigger/envelope": json.dumps(event.envelope(), sort_keys=True),
        "trigger/event_time": event.event_time.astimezone(UTC).isoformat(),
        "trigger/processing_time": processing_time.isoformat(),
        "trigger/origin": origin,
        "trigger/version": VERSION,
    }
