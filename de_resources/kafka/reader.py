"""Records of a topic from a remembered place on, without a consumer group: who reads keeps the cursor.

For the few records that a sensor or a small asset looks at in its own process; what is many goes through the engine. Only
committed records are seen. Nothing is stored at the broker, so that reading again from the same cursor gives the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from de_resources.kafka.errors import RecordsGone
from de_resources.kafka.topic import Record, Topic


@dataclass
class Batch:
    """What a read found: the records by partition and offset, and the offsets from which the next read goes on.

    `topic_id` is the broker's identity of the topic, which changes when it is deleted and made again; `anew`: it was, or it
    ends before a remembered offset, and what it holds now was read from the beginning. `gone` counts, per partition, the
    offsets that were not read and are not there any more (ends of transactions take offsets, too).
    """

    topic_id: str
    records: list[Record] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    gone: dict[int, int] = field(default_factory=dict)
    anew: bool = False

    @property
    def cursor(self) -> str:
        """Where the next read goes on, as text."""
        return json.dumps({"topic": self.topic_id, "offsets": self.offsets})


def read_topic(
    client_config: Mapping[str, str], topic: str, cursor: str | None = None, *, limit: float = math.inf
) -> Batch:
    """Read from where the batch of this cursor ended to the present end of the topic, at most `limit` records.

    What the cursor does not know, such as a new partition or everything where there is none, is read from its beginning.
    Raises `TopicMissing`, and `ServiceUnavailable` when the broker does not answer.
    """
    source = Topic(client_config, topic)
    batch = _begin(source, json.loads(cursor) if cursor else {"topic": None, "offsets": {}})
    with closing(source.read(dict(batch.offsets))) as items:
        for item in items:
            if isinstance(item, Record):
                batch.records.append(item)
            batch.offsets[item.partition] = item.offset + isinstance(item, Record)
            if len(batch.records) >= limit:
                break
    batch.records.sort(key=lambda record: (record.partition, record.offset))
    return batch


def records_at(
    client_config: Mapping[str, str], topic: str, positions: Collection[tuple[int, int]]
) -> Iterator[Record]:
    """The records at these (partition, offset), one by one. Raises `TopicMissing`, `RecordsGone`, `ServiceUnavailable`."""
    source, places = Topic(client_config, topic), sorted(positions)
    begins, ends = source.begins(), source.ends()
    for partition, offset in places:
        if not begins.get(partition, 0) <= offset < ends.get(partition, 0):
            raise RecordsGone(topic, [(partition, offset)])
    for place, record in zip(places, source.nearest(places), strict=True):
        if record is None or record.offset != place[1]:
            raise RecordsGone(topic, [place])
        yield record


def _begin(source: Topic, seen: Mapping[str, Any]) -> Batch:
    """Nothing read yet: from where on, and what was lost since the cursor was written."""
    begins, ends, batch = source.begins(), source.ends(), Batch(source.identity())
    offsets = {int(partition): int(offset) for partition, offset in seen["offsets"].items()}
    overtaken = any(offsets.get(partition, 0) > end for partition, end in ends.items())
    batch.anew = overtaken or seen["topic"] not in (None, batch.topic_id)
    for partition, begin in begins.items():
        wanted = begin if batch.anew else offsets.get(partition, begin)
        batch.offsets[partition] = max(begin, wanted)
        if wanted < begin:
            batch.gone[partition] = begin - wanted
    return batch
