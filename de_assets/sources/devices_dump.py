"""Whether the provider's dump of devices is what was agreed, line by line, before anything of it is loaded.

A dump replaces everything, so a line that cannot be read is not set aside: its device would seem to have vanished. The
whole dump is refused with the place of its first bad line, and what was loaded before stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from de_resources.errors import PermanentError

COLUMNS = ("type", "full_name", "version")
_KINDS: dict[type, str] = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}


class UnreadableDump(PermanentError):
    """A line of the dump that is not the agreed JSON object. Lines count from 1."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        self.file, self.line, self.reason = file, line, reason
        super().__init__(
            f"The devices' dump is unreadable at {file}:{line}: {reason}. Nothing was loaded, the last good load stands. "
            "Have the provider land it again."
        )


def check_dump(files: Iterable[Path]) -> None:
    """Read the files once. Raises `UnreadableDump` at the first line without the three columns as text or null."""
    for file in files:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                reason = problem(line)
                if reason is not None:
                    raise UnreadableDump(file.name, number, reason)


def problem(line: bytes) -> str | None:
    """What is wrong with one line, without its values; None for a good or blank line."""
    if not line.strip():
        return None
    try:
        record: Any = json.loads(line.decode())
    except UnicodeDecodeError:
        return "the line is not UTF-8"
    except (ValueError, RecursionError) as error:
        return f"the line is no JSON ({getattr(error, 'msg', 'nested too deeply')})"
    if not isinstance(record, dict):
        return "the line is no JSON object"
    for column in COLUMNS:
        if column not in record:
            return f"the column `{column}` is missing"
        if record[column] is not None and not isinstance(record[column], str):
            return f"the column `{column}` is {_KINDS[type(record[column])]} and not text"
    return None
