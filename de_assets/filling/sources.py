"""Whether a system outside has anything to read, asked of the system itself: a folder, a table, a topic, a capture.

What is asked for is named by the source's metadata (`systems`). An empty topic or table is there; one that does not exist is
not, nor is what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import dagster as dg
from dagster import AssetKey

from de_assets.filling.keys import FillState
from de_assets.partitions import hourly
from de_assets.sources.capture import CAPTURES
from de_assets.sources.landing import VISITS, is_ready
from de_assets.sources.landing_zone import LandingZone
from de_resources.capture import CaptureBehind, SlotLost, wait_until_captured
from de_resources.capture import status as capture_status
from de_resources.kafka import KafkaBroker
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.postgres import PostgresDatabase

CAPTURE_SECONDS = 60.0
_SERVICES = {"source/table": "postgres", "source/topic": "kafka", "source/capture": "capture"}


@dataclass(frozen=True)
class Availability:
    """Looks at the external assets. `absent` maps services that do not answer to the reason."""

    sources: Mapping[AssetKey, dg.AssetSpec]
    landing: LandingZone
    absent: Mapping[str, str]

    def look(self, key: AssetKey) -> FillState:
        """What is there of the source now. Waits until a capture has relayed what its database had committed before."""
        spec = self.sources.get(key)
        if spec is None:
            return FillState()
        for dep in spec.deps:
            if (above := self.look(dep.asset_key)).absent is not None:
                return above
        for metadata, ask in _ASKED.items():
            name = spec.metadata.get(metadata)
            if name is None:
                continue
            service = _SERVICES.get(metadata, "")
            why = f"{service}: {self.absent[service]}" if service in self.absent else ask(self, str(name))
            if why is not None:
                return FillState(absent=why)
        if spec.metadata.get("source/folder") == VISITS:
            looks = {hour.strftime(hourly.fmt): look for hour, look in self.landing.looks().items()}
            known = {hour: look for hour, look in looks.items() if hourly.has_partition_key(hour)}
            return FillState(hourly, set(known), looks=known)
        return FillState(
            spec.partitions_def if isinstance(spec.partitions_def, dg.TimeWindowPartitionsDefinition) else None
        )

    def folder(self, name: str) -> str | None:
        """Why nothing can be read of a landed folder; an hourly one is asked hour by hour."""
        if name == VISITS or is_ready(self.landing.path / name):
            return None
        return f"no complete folder `landing/{name}`; `de seed` lands one"

    def table(self, name: str) -> str | None:
        """Why nothing can be read of a table."""
        try:
            there = PostgresDatabase().has(name)
        except ServiceUnavailable as error:
            return str(error)
        return None if there else f"the database has no table `{name}`; `de seed` makes it"

    def topic(self, name: str) -> str | None:
        """Why nothing can be read of a topic."""
        try:
            known = KafkaBroker().topics()
        except ServiceUnavailable as error:
            return str(error)
        return None if name in known else f"the broker has no topic `{name}`; `de up kafka` makes it"

    def capture(self, name: str) -> str | None:
        """Why what the database has committed is not in the topic."""
        source = next(each for each in CAPTURES if each.name == name)
        try:
            if capture_status(PostgresDatabase(), source) is not None:
                wait_until_captured(PostgresDatabase(), source, CAPTURE_SECONDS)
        except (CaptureBehind, SlotLost, ServiceUnavailable) as error:
            return str(error)
        return None


_ASKED: dict[str, Callable[[Availability, str], str | None]] = {
    "source/folder": Availability.folder,
    "source/table": Availability.table,
    "source/topic": Availability.topic,
    "source/capture": Availability.capture,
}
