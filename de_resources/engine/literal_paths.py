"""Files that the engine reads by their very names: nothing in a name is a pattern, whoever landed it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from de_resources.errors import PermanentError

# Signs that Spark takes for a glob in a path: it would read other files instead, or the same one twice. Its option against that
# (`__globPaths__`) reads all files once for every name with such a sign.
_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "*?[]{}\\"})


class UnreadableName(PermanentError):
    """A file whose name the engine cannot read."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The file `{name}` has a colon in its name, which Hadoop's file system takes for the end of a scheme. Nothing was "
            "read. Have its producer land it under another name."
        )


def literally(files: Sequence[str]) -> list[str]:
    """The files as paths by which the engine reads exactly these. Raises `UnreadableName`."""
    for file in files:
        if ":" in (name := PurePosixPath(file).name):
            raise UnreadableName(name)
    return [file.translate(_SIGNS) for file in files]
