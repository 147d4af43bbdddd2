"""Who visited, and with what: keyed pseudonyms and the user agent's browser and device."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ua_parser import parse

from de_resources.errors import PermanentError

_SHORTEST_KEY = 16
_PARSED_OF_AGENT = 1000
_ROBOT_WORDS = re.compile(
    r"bot\b|bot/|crawl|spider|slurp|feed|curl|wget|python|java/|libwww|http[-_ ]?client|monitor|scan", re.IGNORECASE
)


class WeakKeyError(PermanentError):
    """The key for pseudonyms is too short to protect anybody."""

    def __init__(self, length: int) -> None:
        self.length = length
        super().__init__(
            f"The key for pseudonyms has {length} bytes: give at least {_SHORTEST_KEY} random ones, "
            "e.g. from `secrets.token_bytes(32)`."
        )


@dataclass(frozen=True, slots=True)
class Technical:
    """Browser and device of a user agent. `device_version` is the operating system's name and version."""

    browser: str
    browser_version: str
    device_type: str
    device_version: str | None
    is_bot: bool


def pseudonyms(key: bytes) -> Callable[[bytes], str]:
    """A keyed hash, stable over processes and machines: 32 hexadecimal digits of HMAC-SHA256. Raises `WeakKeyError`."""
    if len(key) < _SHORTEST_KEY:
        raise WeakKeyError(len(key))

    def pseudonym(value: bytes) -> str:
        return hmac.digest(key, value, "sha256").hex()[:32]

    return pseudonym


@lru_cache(maxsize=20_000)
def technical(agent: str | None) -> Technical:
    """Parse a user agent; what the parser does not know is `Other`.

    Marked as a bot: what the parser calls a spider, a client that sends no user agent, and one whose user agent has a
    word that only programs use (`bot`, `crawl`, `feed`, `curl`, `python` …). Only the first 1,000 characters count,
    which bounds the time of a parse.
    """
    if agent is None:
        return Technical("Other", "", "Other", None, is_bot=True)
    shown = agent[:_PARSED_OF_AGENT]
    result = parse(shown)
    browser, system, device = result.user_agent, result.os, result.device
    family = device.family if device else "Other"
    return Technical(
        browser=browser.family if browser else "Other",
        browser_version=_dotted(browser.major, browser.minor) if browser else "",
        device_type=family,
        device_version=f"{system.family} {_dotted(system.major, system.minor)}".rstrip() if system else None,
        is_bot=family == "Spider" or _ROBOT_WORDS.search(shown) is not None,
    )


def _dotted(*numbers: str | None) -> str:
    return ".".join(number for number in numbers if number)
