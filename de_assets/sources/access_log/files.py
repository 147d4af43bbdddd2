"""The files of a log: rotated sets in the order they were written, plain or compressed, as lines of bounded length."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from de_assets.sources.landing import Progress
from de_resources.errors import PermanentError

LONGEST_LINE = 64 * 1024
"""Bytes. Servers refuse requests far shorter than this (8 KiB by default); what is longer is not a log line."""

_KEPT_OF_LONG_LINE = 4 * 1024
_ROTATION = re.compile(
    r"(?P<base>.*?)(?:[.-](?P<date>\d{4}-?\d\d-?\d\d(?:-?\d+)?)|\.(?P<number>\d{1,6}))?(?:\.(?:gz|bz2|xz|zst))?",
    re.DOTALL,
)
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class NoAccessLogError(PermanentError):
    """A path given as an access log names no file."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"No access log at `{path}`: give a file, a folder of logs, or a pattern such as `logs/access.log*`."
        )


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line as it lies in the file, without its end. `damage` says why it cannot be read as a log line."""

    file: str
    number: int
    raw: bytes
    damage: str | None = None


def access_log_files(paths: Iterable[Path | str]) -> list[Path]:
    """Resolve files, folders and glob patterns into files, oldest first within each rotated set; each file once.

    Of a folder, files with `access` in their names are taken, and all files where there are none such; hidden ones
    never. `access.log.2.gz` is older than `access.log.1`, which is older than `access.log`; dated names
    (`access.log-20150517`) go by date. Raises `NoAccessLogError` for a path that names no file.
    """
    found = {file.resolve(): None for path in paths for file in _expanded(path)}
    return sorted(found, key=_age_order)


def _expanded(path: Path | str) -> list[Path]:
    given = Path(path).expanduser()
    if given.is_file():
        return [given]
    if given.is_dir():
        files = [file for file in sorted(given.iterdir()) if file.is_file() and not file.name.startswith((".", "_"))]
        files = [file for file in files if "access" in file.name] or files
    else:
        files = [Path(name) for name in sorted(glob.glob(str(given))) if Path(name).is_file()]  # noqa: PTH207 - absolute patterns
    if not files:
        raise NoAccessLogError(str(path))
    return files


def _age_order(file: Path) -> tuple[str, str, int, int, str]:
    """Sort key: folder, base name, then dated files by date, numbered ones from high to low, and the current one."""
    match = cast("re.Match[str]", _ROTATION.fullmatch(file.name))
    set_name = match["base"]
    if match["date"]:
        return (str(file.parent), set_name, 0, 0, match["date"].replace("-", ""))
    if match["number"]:
        return (str(file.parent), set_name, 1, -int(match["number"]), file.name)
    return (str(file.parent), set_name, 2, 0, file.name)


def raw_lines(files: Iterable[Path], progress: Progress | None = None) -> Iterator[RawLine]:
    """Every line of the files, in order, holding one line at a time.

    A line longer than `LONGEST_LINE` comes cut to its first 4 KiB, as damaged. Where a compressed file breaks off,
    one damaged line stands for the unreadable rest. `progress` counts bytes on disk.
    """
    listed = list(files)
    total = sum(file.stat().st_size for file in listed)
    done = 0
    for file in listed:
        with file.open("rb") as disk:
            for line in _lines_of(file.name, disk):
                yield line
                if progress is not None and line.number % 5000 == 0:
                    progress(done + disk.tell(), total)
        done += file.stat().st_size
        if progress is not None:
            progress(done, total)


def _zstd(disk: IO[bytes]) -> IO[bytes]:
    # Arrow says when a file breaks off, which not every reader of the format does.
    import pyarrow as pa

    return cast("IO[bytes]", io.BufferedReader(pa.CompressedInputStream(disk, "zstd")))


_COMPRESSED: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": lambda disk: cast("IO[bytes]", gzip.GzipFile(fileobj=disk)),
    b"BZh": lambda disk: cast("IO[bytes]", bz2.BZ2File(disk)),
    b"\xfd7zXZ\x00": lambda disk: cast("IO[bytes]", lzma.LZMAFile(disk)),  # noqa: SIM115 - closed with the disk's file
    b"\x28\xb5\x2f\xfd": _zstd,
}
"""What a file begins with, and how it is read then; its name says nothing."""


def _text_of(disk: IO[bytes]) -> IO[bytes]:
    beginning = disk.read(max(map(len, _COMPRESSED)))
    disk.seek(0)
    return next((opened(disk) for magic, opened in _COMPRESSED.items() if beginning.startswith(magic)), disk)


def _lines_of(name: str, disk: IO[bytes]) -> Iterator[RawLine]:
    text = _text_of(disk)
    number = 0
    try:
        while line := text.readline(LONGEST_LINE):
            number += 1
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if len(line) == LONGEST_LINE and not line.endswith(b"\n") and _skip_rest(text):
                yield RawLine(name, number, line[:_KEPT_OF_LONG_LINE], f"line is longer than {LONGEST_LINE} bytes")
            else:
                yield RawLine(name, number, line.removesuffix(b"\n").removesuffix(b"\r"))
    except _DAMAGE as error:
        # What the disk has to say has a number.
        if getattr(error, "errno", None) is not None:
            raise
        yield RawLine(name, number + 1, b"", "the compressed file is damaged from here on")


def _skip_rest(text: IO[bytes]) -> bool:
    """Read on to the end of the line; whether it had more than a line end left."""
    more = 0
    while rest := text.readline(LONGEST_LINE):
        more += len(rest.rstrip(b"\r\n"))
        if rest.endswith(b"\n"):
            break
    return more > 0
