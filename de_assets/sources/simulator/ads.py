"""Feeds the topic of ads: showings on the pages that are visited, and what such a topic also gets, with the truth about it.

The topic also gets a showing twice, one without a page, and one that was cut off: each once per `EVERY` showings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from de_assets.sources.simulator.content import ADS, PAGES
from de_assets.sources.simulator.randomness import generator
from de_assets.sources.simulator.topic import VisitMessage
from de_assets.sources.simulator.world import World

EVERY = 20
_KINDS = [ad for ad in ADS if ad is not None]


@dataclass
class Showings:
    """The messages in the order in which they were produced, and what they are: the showings, each once, by id."""

    messages: list[VisitMessage] = field(default_factory=list)
    shown: dict[str, dict[str, str]] = field(default_factory=dict)
    repeated: int = 0
    unreadable: list[bytes] = field(default_factory=list)


def showings(world: World, hours: Sequence[datetime], per_hour: int) -> Showings:
    """So many showings in each of these hours, by time, most of them on popular pages. The same for the same arguments."""
    found = Showings()
    for hour in hours:
        chance = generator(world.seed, "ads", hour.isoformat())
        for moment in sorted(chance.random(per_hour).tolist()):
            # As visits: the first page is seen most.
            page = PAGES[int(len(PAGES) * float(chance.random()) ** 3)]
            shown = {
                "showing_id": f"s-{hour:%Y%m%d%H}-{len(found.shown)}",
                "shown_at": (hour + timedelta(hours=moment)).isoformat(timespec="milliseconds"),
                "page": page,
                "ad": _KINDS[int(chance.integers(len(_KINDS)))],
            }
            _announce(found, shown)
    return found


def _announce(found: Showings, shown: dict[str, str]) -> None:
    key, payload = shown["page"].encode(), json.dumps(shown).encode()
    found.messages.append(VisitMessage(key, payload))
    if len(found.shown) % EVERY == 0:
        found.messages.append(VisitMessage(key, payload))
        found.repeated += 1
        broken = [json.dumps({**shown, "page": None}).encode(), payload[: len(payload) // 2]]
        found.messages += [VisitMessage(None, each) for each in broken]
        found.unreadable += broken
    found.shown[shown["showing_id"]] = shown
