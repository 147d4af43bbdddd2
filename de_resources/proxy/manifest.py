"""What the store of a proxied dataset says about itself: versions, and manifests that tell which of them are live.

Both are small JSON documents that are written once. A version says what it holds; manifest N says which version holds
each partition. The newest manifest is the access point: going back is a new manifest that equals an old one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

WHOLE = "*"
"""The one partition of a dataset without partitions."""


@dataclass(frozen=True)
class ProxyVersion:
    """A complete version: a table that nobody writes any more.

    `log_version` is the version of its log that is published: whatever somebody forces in later is not read.
    `predicates` tell the rows of each partition key, `rows` their number where it is known.
    """

    id: str
    log_version: int
    predicates: Mapping[str, str]
    rows: Mapping[str, int]
    run: str
    completed: datetime

    def to_json(self) -> str:
        """The document."""
        return _document(self)

    @classmethod
    def from_json(cls, text: str) -> ProxyVersion:
        """The version that `to_json` wrote."""
        facts = json.loads(text)
        return cls(**{**facts, "completed": datetime.fromisoformat(facts["completed"])})


@dataclass(frozen=True)
class Manifest:
    """Which version is live for each partition key. `brought` are the versions that it showed for the first time."""

    number: int
    live: Mapping[str, str]
    at: datetime
    why: str
    brought: tuple[str, ...] = field(default=())

    @property
    def versions(self) -> frozenset[str]:
        """The versions that readers of this manifest need."""
        return frozenset(self.live.values())

    def keys_by_version(self, keys: Iterable[str] | None = None) -> dict[str, list[str]]:
        """The live partition keys of each version; with `keys`, of these only."""
        wanted = None if keys is None else set(keys)
        found: dict[str, list[str]] = {}
        for key, version in self.live.items():
            if wanted is None or key in wanted or key == WHOLE:
                found.setdefault(version, []).append(key)
        return found

    def to_json(self) -> str:
        """The document."""
        return _document(self)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """The manifest that `to_json` wrote."""
        facts = json.loads(text)
        at, brought = datetime.fromisoformat(facts["at"]), tuple(facts["brought"])
        return cls(**{**facts, "at": at, "brought": brought})


def _document(facts: ProxyVersion | Manifest) -> str:
    def plain(value: Any) -> Any:
        return value.isoformat() if isinstance(value, datetime) else value

    return json.dumps({name: plain(value) for name, value in asdict(facts).items()}, indent=1) + "\n"
