"""Files that the engine reads by their very names: nothing in a name is a pattern, whoever landed it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from de_resources.errors import PermanentError

# Signs that Spark takes for a glob in a path: it would read other files instead, or the same one twice. Its option against that
# (`__globPaths__`) reads all files once for every name with such a sign.
_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "*?[]{}\\"})


_COLON = "has a colon in its name, which Hadoop's file system takes for the end of a scheme"
_NO_TEXT = "has a name that is not UTF-8"


class UnreadableName(PermanentError):
    """A file whose name the engine cannot read."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(
            f"The file `{printable(name)}` {why}. Nothing was read. Have its producer land it under another name."
        )


def literally(files: Sequence[str]) -> list[str]:
    """The files as paths by which the engine reads exactly these. Raises `UnreadableName`."""
    for file in files:
        name = PurePosixPath(file).name
        if why := why_unreadable(name):
            raise UnreadableName(name, why)
    return [file.translate(_SIGNS) for file in files]


def why_unreadable(name: str) -> str | None:
    """What keeps the engine from reading a file of this name: the rest of a sentence about it. None where nothing does."""
    if ":" in name:
        return _COLON
    return None if printable(name) == name else _NO_TEXT


def printable(name: str) -> str:
    """The name, or path, as text that anybody can store: bytes of it that are no UTF-8 are replaced."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
