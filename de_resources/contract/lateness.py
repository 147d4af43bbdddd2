"""Up to what age a dataset takes in rows that come late: part of its contract, and written down nowhere else.

    metadata = {"late_for": timedelta(days=31)}

A partition whose source changes is computed again by itself until it has been over for so long. What comes later than that is
told, and is in no answer, unless a person runs the partition.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from de_resources.errors import PermanentError


class UnusableLateness(PermanentError):
    """An age that nothing can have."""

    def __init__(self, contract: str, said: Any) -> None:
        self.contract, self.said = contract, said
        super().__init__(
            f"The contract `{contract}` takes in late rows for {said!r}. Say `late_for` as a positive timedelta: how long "
            "after its time a partition is still computed again."
        )


def lateness(contract: str, said: Any) -> timedelta | None:
    """What a contract says; None where it says nothing. Raises `UnusableLateness`."""
    if said is None:
        return None
    if not isinstance(said, timedelta) or said <= timedelta(0):
        raise UnusableLateness(contract, said)
    return said
