"""Where alerts go. One sink is configured as the resource `alert_sink`; another channel is one more subclass."""

import json
import os
from abc import ABC, abstractmethod
from pathlib import Path

import dagster as dg
from pydantic import Field

from de_assets.automation.alerting.alert import Alert
from de_resources.errors import PermanentError, TransientError
from de_resources.secrets import Secrets
from de_resources.settings import Settings

_TAIL_BYTES = 1 << 20


class AlertSink(dg.ConfigurableResource, ABC):
    """A channel for alerts. Delivering the same alert twice must not matter, for a crash may repeat the last one."""

    @abstractmethod
    def deliver(self, alert: Alert) -> None:
        """Return when the alert is accepted for good; raise otherwise, and it will be delivered again later."""


class LogAlertSink(AlertSink):
    """Appends alerts to a file, one JSON object per line. An alert that is among the last lines is not repeated."""

    path: str = Field(default="", description="The file; default: `$DE_HOME/logs/alerts.jsonl`.")

    @property
    def file(self) -> Path:
        """The file."""
        return Path(self.path) if self.path else Settings.from_environment().logs / "alerts.jsonl"

    def deliver(self, alert: Alert) -> None:
        """Append one line, on the disk when this returns."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({**alert.fields(), "text": alert.sentence()}).encode()
        with self.file.open("a+b") as log:
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            tail = log.read()
            if any(_id(old) == alert.id for old in tail.splitlines()):
                return
            # A writer that was killed may have left half a line; what follows must not be lost with it.
            log.write((b"" if not tail or tail.endswith(b"\n") else b"\n") + line + b"\n")
            log.flush()
            os.fsync(log.fileno())


class WebhookAlertSink(AlertSink):
    """Posts each alert as JSON to an address, with its identity in `Idempotency-Key`.

    Raises `TransientError` when the receiver is away or busy, `PermanentError` when it refuses. Neither names the
    address: for many receivers it is the credential.
    """

    url: str = Field(description="`secret://name` of the address, which is often a credential.")
    connect_seconds: float = Field(default=3.0, gt=0, description="Longest wait for a connection.")
    read_seconds: float = Field(default=10.0, gt=0, description="Longest wait for the answer.")

    def deliver(self, alert: Alert) -> None:
        """Post it. Redirects are not followed: alerts go to the configured receiver only."""
        import requests

        address = Secrets.from_settings(Settings.from_environment()).resolve(self.url)
        try:
            answer = requests.post(
                address,
                json={**alert.fields(), "text": alert.sentence()},
                headers={"Idempotency-Key": alert.id},
                timeout=(self.connect_seconds, self.read_seconds),
                allow_redirects=False,
            )
        except (requests.ConnectionError, requests.Timeout) as error:
            raise TransientError(
                f"The alerts' receiver `{self.url}` did not answer ({type(error).__name__}). The alert is kept."
            ) from None
        except requests.RequestException as error:
            raise PermanentError(
                f"`{self.url}` is no address for alerts ({type(error).__name__}). Correct the secret."
            ) from None
        if answer.status_code >= 500 or answer.status_code in (408, 429):
            raise TransientError(
                f"The alerts' receiver `{self.url}` answered {answer.status_code}. The alert is kept and sent again."
            )
        if answer.status_code >= 300:
            raise PermanentError(
                f"The alerts' receiver `{self.url}` refused an alert ({answer.status_code}). Check address and rights."
            )


def _id(line: bytes) -> str | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record.get("id") if isinstance(record, dict) else None
