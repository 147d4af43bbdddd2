"""Signs of life: the newest thing that a layer of storage tells of each part of a flow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from de_checks.factory import CheckRun

WHOLE = ""
"""The part of a flow that has no parts."""


@dataclass(frozen=True)
class Sign:
    """The newest moment up to which a part is known to have flowed, by the clock of its layer.

    `at`: None where it never did. `ahead`: how many claims lay in the future and are not believed, and the `furthest` of
    them. `before`: nothing is known since then, and what was before is forgotten.
    """

    at: datetime | None
    ahead: int = 0
    furthest: datetime | None = None
    before: datetime | None = None

    @property
    def good_until(self) -> datetime | None:
        """The last good time, as far as anything is known."""
        return self.at or self.before


Signs = Mapping[str, Sign]
"""By part: a partition of the topic, a value of a column; `WHOLE` where there is only one."""


class Layer(Protocol):
    """One place in which a flow leaves signs."""

    @property
    def name(self) -> str:
        """`metadata`, `data`, `storage`, `topic` or `heartbeat`."""

    @property
    def sees(self) -> str:
        """What it looks at, for people: *the newest commit that brought rows*."""

    @property
    def resources(self) -> Collection[str]:
        """The keys of the resources that it asks the run for."""

    def signs(self, run: CheckRun, believable: datetime) -> Signs | None:
        """The signs, of which none after `believable` counts; None where there is no such source at all.

        Empty where the source is there, and never brought anything. Raises a `TransientError` where nobody can tell now.
        """

    def figures(self, signs: Signs) -> Mapping[str, Any]:
        """Metadata of its own."""
