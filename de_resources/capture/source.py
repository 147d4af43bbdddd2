"""What is captured, and into which topic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from de_resources.errors import PermanentError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,50}")


class UnusableCaptureName(PermanentError):
    """A name that cannot be that of a replication slot."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"`{name}` cannot name a capture: use lower-case letters, digits and `_`, a letter first.")


class UnknownCapture(PermanentError):
    """A name that is none of the captures."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        super().__init__(f"There is no capture `{name}`: choose from {', '.join(known)}.")

    @classmethod
    def unless_named(cls, name: str, captures: Sequence[CaptureSource]) -> CaptureSource:
        """The capture of this name. Raises `UnknownCapture`."""
        for source in captures:
            if source.name == name:
                return source
        raise cls(name, [source.name for source in captures])


@dataclass(frozen=True)
class CaptureSource:
    """Tables (`schema.table`) whose changes go to a topic. Slot and publication in the database are named `de_<name>`.

    Raises `UnusableCaptureName`.
    """

    name: str
    tables: tuple[str, ...]
    topic: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UnusableCaptureName(self.name)

    @property
    def slot(self) -> str:
        """The replication slot; the publication has the same name."""
        return f"de_{self.name}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def heart_of(source: CaptureSource) -> str:
    """The name under which the relay of a source tells that it lives (`de_resources.heartbeat`)."""
    return f"capture.{source.name}"
