"""What a writer of a topic is known by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TopicOutput:
    """A topic as the output of one application. The password in the configuration never shows."""

    config: Mapping[str, str] = field(repr=False)
    topic: str
    application: str

    @property
    def group(self) -> str:
        """The consumer group whose offsets say which batch comes next."""
        return f"writer.{self.application}"
