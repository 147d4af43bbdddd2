"""How soon data that lands is taken in: the pause between two looks of the sensors that make data flow."""

import os

from de_resources.errors import PermanentError

VARIABLE = "DE_SENSOR_SECONDS"
DEFAULT = 30


class UnusableInterval(PermanentError):
    """A pause that is none."""

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(
            f"{VARIABLE} says `{said[:40]}`. Set it to a whole number of seconds, 1 or more, or leave it out."
        )


def is_interval(said: str) -> bool:
    """Whether it is a whole number of seconds, 1 or more."""
    return said.isascii() and said.isdigit() and int(said) > 0


def sensor_seconds() -> int:
    """`DE_SENSOR_SECONDS`, else 30. Dagster's daemon itself looks every five seconds. Raises `UnusableInterval`."""
    said = os.environ.get(VARIABLE) or str(DEFAULT)
    if not is_interval(said):
        raise UnusableInterval(said)
    return int(said)
