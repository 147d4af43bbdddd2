"""The resource `alerting`: the book of what is wrong, the channels that are told, and the services that are looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from de_assets.automation.alerting.channels import alert_sinks, channel_conditions
from de_assets.automation.alerting.health import service_conditions
from de_assets.automation.alerting.sinks import AlertSink
from de_checks.freshness.clock import Clock, utc_now
from de_resources.alerts.book import AlertBook, AlertCondition, Body
from de_resources.contract.sla import Sla
from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_resources.local.endpoints import ServiceStatus


@dataclass(frozen=True)
class Alerting:
    """What is told, and to whom. Without `home` and `sinks`, those of the environment at the time of the call."""

    home: Path | None = None
    sinks: Mapping[str, AlertSink] | None = None
    promises: Mapping[str, Sla | None] = field(default_factory=dict)
    """By asset, how long its steps may take; None: as long as they usually do."""
    keys_of: Callable[[str, dg.DagsterRun], int] = lambda _asset, _run: 1
    """How many partitions of an asset a run writes."""
    assets: Mapping[str, dg.AssetSpec] = field(default_factory=dict)
    """The datasets of the graph, whose calendars and inputs say what is due."""
    services: Callable[[], Sequence[ServiceStatus]] | None = None
    now: Clock = utc_now

    def is_there(self, instance: dg.DagsterInstance) -> Callable[[str, str], bool]:
        """Says of a dataset's partition whether it was materialised, or its dataset is gone; looks once for each dataset."""

        @cache
        def there(asset: str) -> frozenset[str]:
            return frozenset(instance.get_materialized_partitions(dg.AssetKey.from_user_string(asset)))

        def is_told_no_more(asset: str, key: str) -> bool:
            calendar = self.assets[asset].partitions_def if asset in self.assets else None
            return calendar is None or key in there(asset)

        return is_told_no_more

    @property
    def book(self) -> AlertBook:
        """The book of the home."""
        return AlertBook.of_home(self.home or Settings.from_environment().home)

    def channels(self) -> Mapping[str, AlertSink]:
        """The channels by name. One whose configuration lacks something is there as well, and says so."""
        return alert_sinks(os.environ) if self.sinks is None else self.sinks

    def health(self, now: datetime) -> list[AlertCondition]:
        """What channels and services say now; services that died are then started again, within limits."""
        return [*channel_conditions(self.channels(), self.book.open_alerts(), now), *self._services_now(now)]

    def _services_now(self, now: datetime) -> list[AlertCondition]:
        if self.services is not None:
            return list(service_conditions(self.services(), now))
        from de_resources.local.services import LocalServices

        services = LocalServices(Settings.from_environment())
        # Told before it is mended: that it died is news, also where it serves again a moment later.
        found = list(service_conditions(services.status(), now))
        services.revive(now)
        return found

    def tell(
        self,
        conditions: Collection[AlertCondition],
        reached: Mapping[str, str] | None = None,
        now: datetime | None = None,
    ) -> tuple[list[Body], dict[str, str]]:
        """Bring the book up to date, and the channels as far as they go. Returns the news, and why each channel is behind."""
        moment, channels = now or datetime.now(UTC), self.channels()
        news = self.book.observe(conditions, channels, moment, reached)
        return news, self.book.deliver({name: sink.deliver for name, sink in channels.items()}, moment)
