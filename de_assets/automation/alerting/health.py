"""What the services of this machine say: which died, which serve a part only, and which answer again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from de_assets.automation.alerting.alert import Alert, redacted
from de_assets.automation.alerting.runs import SERVICE
from de_resources.alerts.book import AlertCondition

if TYPE_CHECKING:
    from de_resources.local.endpoints import ServiceStatus

ITSELF = frozenset({""})
"""The part of its alert that is the service; the others are what runs missed."""


def service_conditions(statuses: Sequence[ServiceStatus], now: datetime) -> Iterator[AlertCondition]:
    """A service that failed or serves a part only is bad; one that runs, or that somebody has stopped, is not.

    What runs missed while it was away (`runs.conditions_of`) stays bad until it is written.
    """
    for status in statuses:
        # What a relay says may quote rows.
        why = redacted(f"Service `{status.name}` is {status.state}: {status.why}") if status.is_broken else None
        alert = Alert.of_platform("service_failed", now, why)
        subject = f"{SERVICE}{status.name}"
        if status.is_broken:
            yield AlertCondition(subject, alert.body(), ITSELF)
        elif status.state != "starting":
            yield AlertCondition(subject, alert.body(), good=ITSELF)
