"""Lines that arrive for an hour that is landed already: of each line as many copies as the side that has more of them.

Logs overlap: today's file begins with what yesterday's copy of it ended with. What both have is the same line; what one of them
has twice was written twice.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

BUCKET_BYTES = 256 * 1024 * 1024
"""Lines are compared in passes over about so many bytes each, so that memory stays bounded in an absurd hour."""


def missing_lines(landed: Iterable[Path], arrived: Path) -> Iterator[bytes]:
    """The lines of `arrived` of which the landed files do not hold as many copies, each with its line feed.

    A visit is known by its identity, which is made of the whole raw line, so that a later version of the parser does not land
    it again; a rejected line by its text alone, for the file that it stood in is renamed when logs rotate. Memory is bounded.
    """
    files = [*landed]
    passes = 1 + sum(file.stat().st_size for file in (*files, arrived)) // BUCKET_BYTES
    for number in range(passes):
        known = Counter(identity for identity, _ in _identified(files, passes, number))
        for identity, line in _identified([arrived], passes, number):
            if known[identity] > 0:
                known[identity] -= 1
            else:
                yield line


def append(lines: Iterable[bytes], landed: Path, merged: Path) -> int:
    """Write what `landed` holds and then the lines to `merged`; how many lines were added. `landed` need not exist."""
    added = 0
    with merged.open("wb") as out:
        if landed.exists():
            with landed.open("rb") as before:
                shutil.copyfileobj(before, out)
            if out.tell() and not _ends_with_line_feed(landed):
                out.write(b"\n")
        for line in lines:
            out.write(line)
            added += 1
    return added


def _ends_with_line_feed(file: Path) -> bool:
    with file.open("rb") as opened:
        opened.seek(-1, 2)
        return opened.read() == b"\n"


def _identified(files: Iterable[Path], passes: int, number: int) -> Iterator[tuple[bytes, bytes]]:
    """The lines that belong to this pass, with their identities."""
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                identity = hashlib.blake2b(_identity(line), digest_size=16).digest()
                if int.from_bytes(identity[:4]) % passes == number:
                    yield identity, line.removesuffix(b"\n") + b"\n"


def _identity(line: bytes) -> bytes:
    try:
        record = json.loads(line)
        if "rejected" in record:
            return b"rejected " + str(record["rejected"]["raw"]).encode("utf-8", "surrogatepass")
        return b"visit " + str(record["visit_id"]).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, KeyError):
        return line.rstrip(b"\r\n")
