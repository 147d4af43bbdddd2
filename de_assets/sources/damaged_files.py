"""Landed files that cannot be read, or not to their end: found before the engine fails a whole hour for one of them.

Of a file whose name the engine cannot read nothing is read, whatever it holds. A compressed file that breaks off, as after an
interrupted transfer, is as its producer wrote it up to there: the whole lines before the break are read. Of one whose checksum
is wrong, or that holds something else than its name says, any line may be another one: nothing of it is read. In each case one
rejected line stands for what is missing, as in the reader of access logs.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from de_assets.sources.landing import rejected_line
from de_resources.engine.literal_paths import why_unreadable

BREAKS_OFF = "the compressed file is damaged from here on"
CORRUPT = "the compressed file is damaged: nothing of it was read"
NO_CODEC = "the file is compressed in a way that is not read: land it as .gz, .bz2, or plain"

_CHUNK = 1024 * 1024
_GZIP, _ZLIB = 31, 15


@dataclass(frozen=True, slots=True)
class FileDamage:
    """What is wrong with a file, and how many whole lines of it can be read."""

    file: Path
    reason: str
    lines: int = 0

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.reason} ({self.lines:,} line(s) before it were read)" if self.lines else self.reason

    def rejected(self, place: str) -> str:
        """The rejected line that stands for the rest of the file at `place`."""
        return rejected_line("", self.reason, self.lines + 1, place).decode().rstrip("\n")


def damaged(files: Iterable[Path]) -> list[FileDamage]:
    """Those of the files that the engine cannot read to their end. Plain files are not looked into, and cost nothing.

    Compressed ones are read once, several at a time, in bounded memory.
    """
    unnamed, compressed = [], []
    for file in files:
        if why := why_unreadable(file.name):
            unnamed.append(FileDamage(file, f"the file {why}: land it under another name"))
        elif file.suffix.lower() in _TEXT_OF:
            compressed.append(file)
    with ThreadPoolExecutor() as pool:
        return unnamed + [damage for damage in pool.map(_damage, compressed) if damage is not None]


def _damage(file: Path) -> FileDamage | None:
    text_of = _TEXT_OF[file.suffix.lower()]
    if text_of is None:
        return FileDamage(file, NO_CODEC)
    lines = 0
    try:
        with file.open("rb") as disk:
            for chunk in text_of(disk):
                lines += chunk.count(b"\n")
    except EOFError:
        return FileDamage(file, BREAKS_OFF, lines)
    except (OSError, zlib.error) as error:
        # What the disk has to say has a number, and is no property of the file.
        if getattr(error, "errno", None) is not None:
            raise
        return FileDamage(file, CORRUPT)
    return None


def _inflated(disk: IO[bytes], form: int) -> Iterator[bytes]:
    """The text of all members of a file. As strict as the engine: what follows a member is another one.

    Raises `EOFError` where the file breaks off, and `zlib.error` where it holds something else.
    """
    data = disk.read(_CHUNK)
    while data:
        member = zlib.decompressobj(form)
        while not member.eof:
            yield member.decompress(data, _CHUNK)
            data = member.unconsumed_tail or (b"" if member.eof else disk.read(_CHUNK))
            if not data and not member.eof:
                yield member.flush()
                if not member.eof:
                    raise EOFError
        data = member.unused_data or disk.read(_CHUNK)


def _bunzipped(disk: IO[bytes]) -> Iterator[bytes]:
    with bz2.BZ2File(disk) as text:
        while chunk := text.read(_CHUNK):
            yield chunk


_TEXT_OF: dict[str, Callable[[IO[bytes]], Iterator[bytes]] | None] = {
    ".gz": lambda disk: _inflated(disk, _GZIP),
    ".deflate": lambda disk: _inflated(disk, _ZLIB),
    ".bz2": _bunzipped,
    # The engine takes these endings for formats of Hadoop's own, which no compressor writes: it fails, or finds no lines.
    ".zst": None,
    ".lz4": None,
    ".snappy": None,
}
"""How a file is read by its ending, as the engine decides; None: it cannot be."""
