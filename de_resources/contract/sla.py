"""What a dataset promises about time: how long its work takes, and when it is there.

In the contract's `Config.metadata`, in minutes:

    "sla": {"takes_at_most": 10, "ready_within": 90, "input_within": 60}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from de_resources.errors import PermanentError

_KNOWN = ("takes_at_most", "ready_within", "input_within")


class UnusablePromise(PermanentError):
    """A contract that promises something that nobody measures, or that cannot be kept."""

    def __init__(self, contract: str, why: str) -> None:
        self.contract, self.why = contract, why
        super().__init__(f"The `sla` of the contract `{contract}` {why}. It can say {', '.join(_KNOWN)}, in minutes.")


@dataclass(frozen=True)
class Sla:
    """`takes_at_most`: one partition's work, from its own start. `ready_within`: after the end of a partition's window, and
    `input_within`: what of that is the sources' time, so that the rest is ours. None: nothing is promised.
    """

    takes_at_most: timedelta | None = None
    ready_within: timedelta | None = None
    input_within: timedelta = timedelta(0)

    @classmethod
    def of(cls, contract: str, said: Mapping[str, float] | None) -> Sla | None:
        """From a contract's words; None where it promises nothing. Raises `UnusablePromise`."""
        if not said:
            return None
        if unknown := sorted(said.keys() - set(_KNOWN)):
            raise UnusablePromise(contract, f"says `{unknown[0]}`")
        if any(minutes <= 0 for minutes in said.values()):
            raise UnusablePromise(contract, "has a time that is not positive")
        promised = cls(**{name: timedelta(minutes=minutes) for name, minutes in said.items()})
        if promised.ready_within is not None and promised.input_within >= promised.ready_within:
            raise UnusablePromise(contract, "leaves no time between input and result")
        return promised
