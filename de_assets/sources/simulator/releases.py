"""Feeds the topic of release notifications: one release a day, and what such a topic also gets, with the truth about it.

The topic also gets events of another type, a notification twice, one of a schema that is not known yet, and one that was
cut off: each once per `EVERY` releases, beginning with the first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from de_assets.sources.releases import RELEASED
from de_assets.sources.simulator.randomness import generator
from de_assets.sources.simulator.topic import VisitMessage
from de_assets.sources.simulator.world import World

SOURCE = "/blog/releases"
SCHEMA = "feature-released/1"
EVERY = 4
_FEATURES = ("dark_mode", "comments", "search", "newsletter", "related_posts", "reading_time", "share_buttons")


@dataclass
class Announcements:
    """The messages in the order in which they were produced, and what they are: the events released, each once, by id."""

    messages: list[VisitMessage] = field(default_factory=list)
    released: dict[str, dict[str, Any]] = field(default_factory=dict)
    redelivered: int = 0
    irrelevant: int = 0
    unreadable: list[bytes] = field(default_factory=list)

    def add(self, payload: bytes, key: str = "") -> bytes:
        """Append a message."""
        self.messages.append(VisitMessage(key.encode() or None, payload))
        return payload


def announcements(world: World, moments: Sequence[datetime]) -> Announcements:
    """A release at each of these moments, and the irregularities above. The same for the same world and moments."""
    found = Announcements()
    for number, moment in enumerate(moments):
        event = _event(world, moment)
        payload = found.add(json.dumps(event).encode(), event["data"]["feature"])
        found.released[event["id"]] = event
        if number % EVERY == 0:
            found.add(payload, event["data"]["feature"])
            found.redelivered += 1
            found.add(json.dumps({**event, "id": f"{event['id']}-plan", "type": "blog.feature.planned"}).encode())
            found.irrelevant += 1
            tomorrow = {**event, "id": f"{event['id']}-next", "dataschema": "feature-released/2"}
            found.unreadable += [found.add(json.dumps(tomorrow).encode()), found.add(payload[: len(payload) // 2])]
    return found


def _event(world: World, moment: datetime) -> dict[str, Any]:
    chance = generator(world.seed, "releases", moment.isoformat())
    feature = _FEATURES[int(chance.integers(len(_FEATURES)))]
    return {
        "specversion": "1.0",
        "id": f"r-{moment:%Y%m%d%H%M}",
        "source": SOURCE,
        "type": RELEASED,
        "time": moment.isoformat(),
        "dataschema": SCHEMA,
        "data": {
            "feature": feature,
            "version": f"1.{int(chance.integers(20))}.{int(chance.integers(10))}",
            "title": f"New: {feature.replace('_', ' ')}",
            "rollout_percent": int(chance.choice([5, 25, 50, 100])),
        },
    }
