"""Release notifications: what the teams of the blog announce when a feature goes live, and how one is read.

A notification is an event in the JSON format of CloudEvents 1.0 (https://github.com/cloudevents/spec, `spec.md` and
`formats/json-format.md`); `source` and `id` together identify it, for ever:

    {"specversion": "1.0", "id": "r-17", "source": "/blog/releases", "type": "blog.feature.released",
     "time": "2024-10-10T09:00:00Z", "dataschema": "feature-released/1",
     "data": {"feature": "dark_mode", "version": "1.2.0", "title": "Dark mode", "rollout_percent": 25}}
"""

import json
from datetime import datetime
from typing import Any, Literal

import dagster as dg
from pydantic import Field, ValidationError, field_validator

from de_resources.errors import PermanentError
from de_resources.moments import INCONCEIVABLE, is_conceivable

RELEASED = "blog.feature.released"
LARGEST_EVENT = 32 * 1024
"""Bytes. An event travels in the run's configuration, which is kept for as long as the run."""


class UnreadableEvent(PermanentError):
    """A record that is no notification that this version understands. Says what and where, never the values."""

    def __init__(self, reason: str, field: str | None = None) -> None:
        self.reason, self.field = reason, field
        super().__init__(f"{field}: {reason}" if field else reason)


class Release(dg.Config):
    """What the notification is about."""

    feature: str = Field(min_length=1, description="Name of the feature, such as `dark_mode`")
    version: str = Field(min_length=1, description="Version that went live")
    title: str | None = Field(default=None, description="What readers see announced")
    rollout_percent: int = Field(default=100, ge=0, le=100, description="Share of the visitors who get it")


class ReleaseEvent(dg.Config):
    """A release notification: the envelope of CloudEvents around a release."""

    specversion: Literal["1.0"] = Field(description="Version of the envelope")
    id: str = Field(min_length=1, description="Identity of the event within its source")
    source: str = Field(min_length=1, description="Who announced it")
    type: Literal["blog.feature.released"] = Field(description="Kind of event")
    time: str = Field(description="When the release happened: ISO 8601 with a time zone")
    dataschema: Literal["feature-released/1"] = Field(description="Shape and version of `data`")
    data: Release

    @field_validator("time")
    @classmethod
    def _instant(cls, value: str) -> str:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError("the time zone is missing")
        if not is_conceivable(moment):
            raise ValueError(f"the time {INCONCEIVABLE}")
        return value

    @property
    def identity(self) -> str:
        """Source and id: the same for every delivery of the event."""
        return f"{self.source}#{self.id}"

    @property
    def event_time(self) -> datetime:
        """When the release happened."""
        return datetime.fromisoformat(self.time)

    def envelope(self) -> dict[str, str]:
        """The event without what it is about."""
        told: dict[str, str] = self.model_dump(exclude={"data"})
        return told


def read_event(payload: bytes | None) -> ReleaseEvent | None:
    """The event in a record; None for an event of another type, whatever else it says.

    Attributes beyond those of `ReleaseEvent` are allowed by CloudEvents and passed over. Raises `UnreadableEvent`.
    """
    said = _json_object(payload)
    if isinstance(said.get("type"), str) and said["type"] != RELEASED:
        return None
    data = said.get("data")
    if isinstance(data, dict):
        said["data"] = {name: value for name, value in data.items() if name in Release.model_fields}
    known = {name: value for name, value in said.items() if name in ReleaseEvent.model_fields}
    try:
        return ReleaseEvent(**known)
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False, include_url=False)[0]
        raise UnreadableEvent(first["msg"], ".".join(map(str, first["loc"]))) from None


def _json_object(payload: bytes | None) -> dict[str, Any]:
    if payload is None:
        raise UnreadableEvent("the record has no value")
    if len(payload) > LARGEST_EVENT:
        raise UnreadableEvent(f"the event has {len(payload)} bytes, more than the {LARGEST_EVENT} that are taken")
    try:
        said: Any = json.loads(payload.decode())
    except UnicodeDecodeError:
        raise UnreadableEvent("the event is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableEvent(f"the event is no JSON ({getattr(error, 'msg', 'nested too deeply')})") from None
    if not isinstance(said, dict):
        raise UnreadableEvent("the event is no JSON object")
    return said
