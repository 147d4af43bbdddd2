"""A folder with one CSV file per day, each replaced as a whole, and a manifest beside each.

`2026-01-31.csv` is what its readers open: a rename puts the new file in the place of the old one, so that whoever opens it
gets all of one of them, whenever a writer dies. `2026-01-31.json` comes after it and says how many rows and bytes it has, their
SHA-256, its columns, and which run wrote it; a file that does not fit its manifest was left by a writer who died in between,
and the next run of the day mends it.

The same rows are the same bytes: they are in a declared order, and a value has one text (`csv_files.text`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import uuid4

import dagster as dg
from pydantic import Field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from de_resources.csv_files.text import END, header, line
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.lock import commit_lock, local_folder
from de_resources.engine.literal_paths import literally
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier
from de_resources.storage import NotAFolder

_DAY, _PLACE, _TEXT = "day", "place", "value"
_KEY = re.compile(r"[0-9A-Za-z_-]{1,100}")
_INCOMING = ".incoming-"
_CHUNK = 1 << 20
# What unquoted nothing is read as; no text that somebody writes.
_NULL = "\0null\0"


class RowsOutside(PermanentError):
    """Rows of days that the run does not own."""

    def __init__(self, name: str, days: Sequence[str]) -> None:
        self.name, self.days = name, tuple(days)
        super().__init__(
            f"The frame for `{name}` holds rows of {', '.join(self.days[:3])}, which the run does not own. Nothing was "
            "written. Look at the filter of the transform."
        )


class UnusableKey(PermanentError):
    """A partition key that is no name of a file."""

    def __init__(self, name: str, key: str) -> None:
        self.name, self.key = name, key
        super().__init__(f"`{name}` has the partition {key[:80]!r}, which cannot name a file. Nothing was written.")


@dataclass(frozen=True)
class DayFile:
    """What a manifest says. `origin` is the run, or the first of a chain of automatic retries; `repeated`: it was there."""

    rows: int
    bytes: int
    sha256: str
    columns: tuple[str, ...]
    run: str
    origin: str
    repeated: bool = False


@dataclass(frozen=True)
class DayFiles:
    """The files of one dataset (`layer.dataset`) in its folder."""

    name: str
    folder: Path

    def file(self, key: str) -> Path:
        """Where the day's rows are. Raises `UnusableKey`."""
        return self._at(key, "csv")

    def manifest(self, key: str) -> DayFile | None:
        """What is said about the day; None where it was never written."""
        path = self._at(key, "json")
        if not path.is_file():
            return None
        facts = json.loads(path.read_text())
        return DayFile(**{**facts, "columns": tuple(facts["columns"])})

    def any(self) -> bool:
        """Whether there is a day that was written."""
        return any(self.folder.glob("*.json"))

    def days(self) -> list[str]:
        """The days that have a file, in order."""
        return sorted(path.stem for path in self.folder.glob("[!.]*.csv"))

    def is_whole(self, key: str) -> bool:
        """Whether the day's file is the one that its manifest tells of; reads it."""
        told, path = self.manifest(key), self.file(key)
        return told is not None and path.is_file() and _look(path, ()) == replace(told, columns=(), run="", origin="")

    def write(
        self, frame: DataFrame, day: str, keys: Sequence[str], *, order: Sequence[str], run: str, origin: str
    ) -> dict[str, DayFile]:
        """Replace the files of these days by the rows of the frame, whose column `day` says which day they are of.

        A day without rows is a file with a header. `order` are the columns that say where a row stands in its file. A day
        that was written under this `origin` already is left as it is (`repeated`), and its rows are not computed again.

        One writer of the folder at a time: a second one waits. Raises `RowsOutside`, `UnusableKey`, `NoText`; the files are
        then as they were.
        """
        for key in keys:
            self.file(key)
        with commit_lock(str(self.folder), table=self.name, shared=False):
            self._sweep()
            crash_point("before_write", self.name)
            there = {key: found for key in keys if (found := self._written_by(key, origin))}
            wanted = [key for key in keys if key not in there]
            written = self._replace(frame, day, wanted, order, run, origin) if wanted else {}
        return {key: written.get(key) or replace(there[key], repeated=True) for key in keys}

    def read(self, session: SparkSession, key: str, schema: StructType) -> DataFrame:
        """The day's rows by another reader than Python's: Spark's own, in the types of the schema.

        A text that is no value of its column's type is null. A NUL beside a quote is lost.
        """
        rows = read_texts(session, [self.file(key)], schema.names)
        return rows.select(*(F.col(identifier(f.name)).try_cast(f.dataType).alias(f.name) for f in schema.fields))

    def header_of(self, key: str) -> str:
        """The first line of the day's file."""
        with self.file(key).open(newline="") as file:
            return file.readline().removesuffix(END)

    def _written_by(self, key: str, origin: str) -> DayFile | None:
        told = self.manifest(key)
        return told if told is not None and told.origin == origin and self.is_whole(key) else None

    def _replace(
        self, frame: DataFrame, day: str, keys: Sequence[str], order: Sequence[str], run: str, origin: str
    ) -> dict[str, DayFile]:
        columns = tuple(name for name in frame.columns if name != day)
        with self._incoming() as folder:
            crash_point("before_commit", self.name)
            _write_lines(frame, day, columns, keys, order, folder)
            found = {each.name.removeprefix(f"{_DAY}="): each for each in folder.glob(f"{_DAY}=*")}
            if outside := sorted(found.keys() - {*keys}):
                raise RowsOutside(self.name, outside)
            files = {key: next(found[key].glob("part-*")) for key in keys}
            told = {key: replace(_look(file, columns), run=run, origin=origin) for key, file in files.items()}
            crash_point("before_switch", self.name)
            for key, file in files.items():
                file.replace(self.file(key))
                crash_point("after_switch", self.name)
                _write(self._at(key, "json"), told[key])
        crash_point("after_commit", self.name)
        return told

    @contextmanager
    def _incoming(self) -> Iterator[Path]:
        """A hidden folder beside the files, for as long as it is needed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        folder = self.folder / f"{_INCOMING}{uuid4().hex}"
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what writers left who died; nobody else writes now."""
        for leftover in self.folder.glob(f"{_INCOMING}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _at(self, key: str, suffix: str) -> Path:
        if not _KEY.fullmatch(key):
            raise UnusableKey(self.name, key)
        return self.folder / f"{key}.{suffix}"


class CsvFolders(dg.ConfigurableResource):
    """Where CSV files are kept: a folder per dataset below `root_uri`. Asking for one touches nothing."""

    root_uri: str = Field(description="Root of the folders: a folder of this machine.")

    def of(self, key: dg.AssetKey) -> DayFiles:
        """The files of an asset: `<root>/<layer>/<dataset>/<day>.csv`. Raises `NotAFolder`."""
        root = local_folder(self.root_uri)
        if root is None:
            raise NotAFolder(type(self).__name__, f"a place at `{self.root_uri.split('://')[0]}://`")
        return DayFiles(".".join(key.path), root.joinpath(*key.path))


def read_texts(session: SparkSession, files: Sequence[Path], columns: Sequence[str]) -> DataFrame:
    """The values of files with these columns in this order, as texts; nothing between two commas is null."""
    return session.read.csv(
        literally(list(map(str, files))),
        schema=StructType([StructField(name, StringType()) for name in columns]),
        header=True,
        multiLine=True,
        quote='"',
        escape='"',
        nullValue=_NULL,
        lineSep=END,  # left to itself, the reader turns CR LF in a value into LF
    )


def _write_lines(
    frame: DataFrame, day: str, columns: Sequence[str], keys: Sequence[str], order: Sequence[str], folder: Path
) -> None:
    """One file per day: a header, and the rows in their order. A day is one task's, so that its file is one."""
    session, places = frame.sparkSession, [f"{_PLACE}_{n}" for n in range(len(order))]
    rows = frame.select(
        F.col(identifier(day)).cast("string").alias(_DAY),
        F.lit(1).alias(_PLACE),
        *(F.col(identifier(name)).alias(place) for name, place in zip(order, places, strict=True)),
        line(frame.select(*map(identifier, columns)).schema).alias(_TEXT),
    )
    first = session.createDataFrame(
        [(key, 0, header(columns)) for key in keys], f"{_DAY} string, {_PLACE} int, {_TEXT} string"
    )
    lines = rows.unionByName(first, allowMissingColumns=True)
    in_order = lines.repartition(len(keys), _DAY).sortWithinPartitions(_DAY, _PLACE, *places, _TEXT)
    in_order.select(_DAY, _TEXT).write.partitionBy(_DAY).option("lineSep", END).text(str(folder))


def _look(path: Path, columns: tuple[str, ...]) -> DayFile:
    """Rows, bytes and digest of a file, which is on the disk when this returns. Ends of lines inside of quotes end no row."""
    digest, size, ends, quoted = hashlib.sha256(), 0, 0, False
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            for number, part in enumerate(chunk.split(b'"')):
                quoted = quoted if number == 0 else not quoted
                ends += 0 if quoted else part.count(END.encode())
        os.fsync(file.fileno())
    return DayFile(max(ends - 1, 0), size, digest.hexdigest(), columns, "", "")


def _write(path: Path, told: DayFile) -> None:
    facts = {name: value for name, value in asdict(told).items() if name != "repeated"}
    staged = path.with_name(f".{path.name}")
    with staged.open("w") as file:
        file.write(json.dumps(facts, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
