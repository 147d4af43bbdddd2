"""What the services of this machine say: which died, which serve a part only, and which answer again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from de_assets.automation.alerting.alert import Alert, redacted
from de_resources.alerts.book import EVERYTHING, AlertCondition

if TYPE_CHECKING:
    from de_resources.local.endpoints import ServiceStatus


def service_conditions(statuses: Sequence[ServiceStatus], now: datetime) -> Iterator[AlertCondition]:
    """A service that failed or serves a part only is bad; one that runs, or that somebody has stopped, is not."""
    for status in statuses:
        alert = Alert(
            kind="service_failed",
            severity="ERROR",
            run_id=None,
            time=now.isoformat(timespec="seconds"),
            assets=(),
            # What a relay says may quote rows.
            message=redacted(f"Service `{status.name}` is {status.state}: {status.why}") if status.is_broken else None,
        )
        subject = f"service {status.name}"
        if status.is_broken:
            yield AlertCondition(subject, alert.body(), frozenset({""}))
        elif status.state != "starting":
            yield AlertCondition(subject, alert.body(), good=EVERYTHING)
