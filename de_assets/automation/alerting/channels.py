"""Which channels there are, by the environment. Each is made for itself: one that is broken takes none of the others along.

| variable           | what it says                                                              |
|--------------------|---------------------------------------------------------------------------|
| (always)           | a line in `$DE_HOME/logs/alerts.jsonl`                                    |
| `DE_ALERT_WEBHOOK` | `secret://name` of the address to which alerts are posted as JSON         |
| `DE_ALERT_EMAIL`   | whom to write to, comma-separated; needs the next two                     |
| `DE_ALERT_SMTP`    | `host:port` of the mail server; an IPv6 address as `[address]:port`       |
| `DE_ALERT_FROM`    | the sender's address                                                      |
| `DE_ALERT_LOGIN`   | `user:secret://name` where the server wants a login                       |
| `DE_ALERT_SINKS`   | channels of others, comma-separated: `module:Class` of an `AlertSink`     |
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

from pydantic import Field

from de_assets.automation.alerting.alert import Alert, printable
from de_assets.automation.alerting.sinks import LOOPBACK, AlertSink, EmailAlertSink, LogAlertSink, WebhookAlertSink
from de_resources.alerts.book import EVERYTHING, AlertCondition, Body, OpenAlert
from de_resources.errors import PermanentError, PlatformError

CHANNEL = "channel "
"""How the subjects of channels begin."""
_SMTP_PORT = 25


@dataclass(frozen=True)
class MailServerAddress:
    """Where a mail server is."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> MailServerAddress:
        """From `host`, `host:port` or `[IPv6 address]:port`. Raises `ValueError` for another text."""
        parts = urlsplit(f"//{text}")
        if not parts.hostname or parts.netloc != text or "@" in text or any(each.isspace() for each in text):
            raise ValueError("not host:port")
        return cls(parts.hostname, _SMTP_PORT if parts.port is None else parts.port)


class MisconfiguredSink(AlertSink):
    """Stands for a channel that cannot be made. What it should have told waits until it can."""

    why: str = Field(description="What is wrong, and what to do.")

    def check(self) -> None:
        """Raise what is wrong."""
        raise PermanentError(self.why)

    def deliver(self, alert: Body) -> None:
        """Take nothing."""
        del alert
        self.check()


def alert_sinks(environment: Mapping[str, str]) -> dict[str, AlertSink]:
    """The channels by name, as the module's table says; a `MisconfiguredSink` for one that lacks something. Never raises."""
    makers: dict[str, Callable[[], AlertSink]] = {"log": LogAlertSink}
    if address := environment.get("DE_ALERT_WEBHOOK"):
        makers["webhook"] = partial(WebhookAlertSink, url=address)
    if receivers := _listed(environment.get("DE_ALERT_EMAIL", "")):
        makers["email"] = partial(_email, receivers, environment)
    for place in _listed(environment.get("DE_ALERT_SINKS", "")):
        makers[place] = partial(_plugin, place)
    return {name: _made(name, make) for name, make in makers.items()}


def why_broken(sink: AlertSink) -> str | None:
    """Why a channel cannot tell anybody anything, as far as that is seen without telling; None where nothing is."""
    try:
        sink.check()
    except Exception as error:  # noqa: BLE001 - a channel of others may raise anything
        return str(error) if isinstance(error, PlatformError) else f"Its check raised {type(error).__name__}."
    return None


def channel_conditions(
    sinks: Mapping[str, AlertSink], opened: Collection[OpenAlert], now: datetime
) -> Iterator[AlertCondition]:
    """A channel that cannot tell anything is news for the others, until it can or is no longer wanted."""
    for name, sink in sinks.items():
        why = why_broken(sink)
        told = printable(f"The channel `{name}` tells nobody anything: {why}") if why else None
        alert = Alert.of_platform("channel_broken", now, told)
        bad, good = (frozenset({""}), frozenset[str]()) if why else (frozenset[str](), EVERYTHING)
        yield AlertCondition(f"{CHANNEL}{name}", alert.body(), bad, good)
    for each in opened:
        if each.subject.startswith(CHANNEL) and each.subject.removeprefix(CHANNEL) not in sinks:
            yield AlertCondition(each.subject, each.said, good=EVERYTHING)


def _made(name: str, make: Callable[[], AlertSink]) -> AlertSink:
    try:
        return make()
    except PlatformError as error:
        return MisconfiguredSink(why=str(error))
    except Exception as error:  # noqa: BLE001 - whatever one channel raises, the others are told
        return MisconfiguredSink(why=f"`{name}` cannot be made ({type(error).__name__}). Check its variables.")


def _email(receivers: list[str], environment: Mapping[str, str]) -> EmailAlertSink:
    sender, login = environment.get("DE_ALERT_FROM", ""), environment.get("DE_ALERT_LOGIN", "")
    user, _, password = login.partition(":")
    if not (environment.get("DE_ALERT_SMTP") and sender):
        raise PermanentError("`DE_ALERT_EMAIL` needs `DE_ALERT_SMTP` (host:port) and `DE_ALERT_FROM` as well.")
    if login and not (user and password):
        raise PermanentError("`DE_ALERT_LOGIN` is not `user:secret://name`. Correct it, or unset it.")
    try:
        server = MailServerAddress.parse(environment["DE_ALERT_SMTP"])
    except ValueError:
        raise PermanentError("`DE_ALERT_SMTP` is not `host:port` of a mail server. Correct it.") from None
    return EmailAlertSink(
        host=server.host,
        port=server.port,
        sender=sender,
        receivers=receivers,
        user=user or None,
        password=password or None,
        starttls=server.host not in LOOPBACK,
    )


def _plugin(place: str) -> AlertSink:
    remedy = "`DE_ALERT_SINKS` needs `module:Class` of an `AlertSink` that is made without arguments."
    try:
        sink = pkgutil.resolve_name(place)()
    except Exception as error:  # noqa: BLE001 - code of others, also while it is imported
        raise PermanentError(f"`{place}` cannot be made ({type(error).__name__}). {remedy}") from None
    if not isinstance(sink, AlertSink):
        raise PermanentError(f"`{place}` is no channel. {remedy}")
    return sink


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
