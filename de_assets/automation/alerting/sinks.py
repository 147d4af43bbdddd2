"""Where alerts go. Another channel is one more subclass of `AlertSink`: anybody's, named in `DE_ALERT_SINKS` (`channels`)."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from de_resources.alerts.book import Body
from de_resources.errors import PermanentError, PlatformError, TransientError
from de_resources.secrets import Secrets
from de_resources.settings import Settings

if TYPE_CHECKING:
    import smtplib

_TAIL_BYTES = 1 << 20
_SUBJECT_LENGTH = 150
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class AlertSink(dg.ConfigurableResource, ABC):
    """A channel for alerts. Delivering the same alert twice must not matter, for a crash may repeat the last one."""

    @abstractmethod
    def deliver(self, alert: Body) -> None:
        """Return when the alert is accepted for good; raise otherwise, and it will be delivered again later."""

    def check(self) -> None:
        """Raise where it cannot deliver anything as it is configured. Quick, and tells nobody anything."""


class LogAlertSink(AlertSink):
    """Appends alerts to a file, one JSON object per line. An alert that is among the last lines is not repeated."""

    path: str = Field(default="", description="The file; default: `$DE_HOME/logs/alerts.jsonl`.")

    @property
    def file(self) -> Path:
        """The file."""
        return Path(self.path) if self.path else Settings.from_environment().logs / "alerts.jsonl"

    def deliver(self, alert: Body) -> None:
        """Append one line, on the disk when this returns."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(dict(alert)).encode()
        with self.file.open("a+b") as log:
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            tail = log.read()
            if any(_id(old) == alert["id"] for old in tail.splitlines()):
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

    def check(self) -> None:
        """The address is known."""
        _secret(self.url)

    def deliver(self, alert: Body) -> None:
        """Post it. Redirects are not followed: alerts go to the configured receiver only."""
        import requests

        address = _secret(self.url)
        try:
            answer = requests.post(
                address,
                json=dict(alert),
                headers={"Idempotency-Key": str(alert["id"])},
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


class EmailAlertSink(AlertSink):
    """Writes an e-mail for each alert; its `Message-ID` is the alert's, so that a repeated one is recognised.

    Raises `TransientError` when the server is away or busy, `PermanentError` when it refuses sender, receivers or login. Over a
    network say `starttls`; a login without it is refused.
    """

    host: str = Field(description="The mail server.")
    port: int = Field(default=25, gt=0, le=65535)
    sender: str = Field(description="Address that the mails come from.")
    receivers: list[str] = Field(min_length=1, description="Addresses that they go to.")
    user: str | None = Field(default=None, description="Login, where the server wants one.")
    password: str | None = Field(default=None, description="`secret://name` of its password.")
    starttls: bool = Field(default=False, description="Encrypt before anything is said; the certificate is verified.")
    seconds: float = Field(default=10.0, gt=0, description="Longest wait for the server.")

    def check(self) -> None:
        """The password is known, and does not go over a network in the clear."""
        if self.user and self.password:
            if not self.starttls and self.host not in LOOPBACK:
                raise PermanentError(f"No password is sent to `{self.host}` in the clear: say `starttls`.")
            _secret(self.password)

    def deliver(self, alert: Body) -> None:
        """Send it to all receivers."""
        import smtplib
        import ssl

        where = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        try:
            with smtplib.SMTP(self.host, self.port, timeout=self.seconds) as server:
                self._open(server)
                server.send_message(self._message(alert))
        except smtplib.SMTPNotSupportedError:
            raise PermanentError(
                f"The mail server {where} does not offer what is asked of it: STARTTLS over a network, and a login where "
                "`DE_ALERT_LOGIN` is set. Name another server or port."
            ) from None
        except ssl.SSLError as error:
            raise PermanentError(
                f"The certificate of the mail server {where} is not accepted ({type(error).__name__}). Trust who issued it, "
                "or name the server as its certificate does."
            ) from None
        except (smtplib.SMTPServerDisconnected, smtplib.SMTPConnectError, OSError) as error:
            if isinstance(error, smtplib.SMTPResponseException | smtplib.SMTPRecipientsRefused):
                raise self._refused(where, error) from None
            raise TransientError(
                f"The mail server {where} did not answer ({type(error).__name__}). The alert is kept."
            ) from None

    def _open(self, server: smtplib.SMTP) -> None:
        import ssl

        if self.starttls:
            server.starttls(context=ssl.create_default_context())
        self.check()
        if self.user and self.password:
            server.login(self.user, _secret(self.password))

    def _message(self, alert: Body) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self.sender, ", ".join(self.receivers)
        message["Subject"] = str(alert["text"])[:_SUBJECT_LENGTH]
        message["Message-ID"] = f"<{alert['id']}@de-patterns>"
        message.set_content(json.dumps(dict(alert), indent=2))
        return message

    @staticmethod
    def _refused(where: str, error: Exception) -> PlatformError:
        """Only the number of the answer: its text may hold the addresses."""
        code = getattr(error, "smtp_code", None) or max(
            (c for c, _ in getattr(error, "recipients", {}).values()), default=0
        )
        if 400 <= code < 500:
            return TransientError(f"The mail server {where} is busy ({code}). The alert is kept and sent again.")
        return PermanentError(f"The mail server {where} refused an alert ({code}). Check sender, receivers and login.")


def _secret(reference: str) -> str:
    return Secrets.from_settings(Settings.from_environment()).resolve(reference)


def _id(line: bytes) -> str | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record.get("id") if isinstance(record, dict) else None
