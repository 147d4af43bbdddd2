"""Reading the drop folder through the engine: only complete folders, byte by byte, with their place."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import get_args

import dagster as dg
from pydantic import Field
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from de_assets.sources.arrivals import Arrivals, closed_hours
from de_assets.sources.damaged_files import damaged
from de_assets.sources.decisions import DECISIONS, decision_files
from de_assets.sources.devices_dump import check_dump
from de_assets.sources.landing import DEVICES, VISITS, Readiness, contents_of, hour_folder
from de_assets.sources.systems import DEVICES_DROP, LANDED_VISITS
from de_resources.engine.literal_paths import literally, printable
from de_resources.errors import PermanentError, TransientError
from de_resources.lineage.inputs import made_of, read_as
from de_resources.settings import Settings

READINESS_VARIABLE = "DE_VISITS_READINESS"
_LINE = "payload STRING, source_file STRING, landing_hour TIMESTAMP"
_DECISION = "letter_id STRING, kind STRING, attempt INT, raw STRING, why STRING"


class FolderNotReady(TransientError):
    """A folder is read before its producer said that it is complete."""

    soon = False

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)
        shown = ", ".join("/".join(f.parts[-3:]) for f in folders[:5])
        super().__init__(
            f"{len(folders)} landed folder(s) are not complete, for lack of `_SUCCESS` (or, without markers, of a later hour): "
            f"{shown}. Nothing was read. Wait for the producer (the sensor `visits_hour_landed` does), or land them with "
            "`de seed`."
        )


class UnknownReadiness(PermanentError):
    """A readiness that nobody knows."""

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(f"{READINESS_VARIABLE} says `{said}`. Set it to one of: {', '.join(get_args(Readiness))}.")


@dataclass(frozen=True)
class Landed:
    """The lines of some hours, and the files of which lines are missing, by hour."""

    lines: DataFrame
    damaged: Mapping[datetime, Mapping[str, str]]
    """What is wrong with each such file, by its place."""


class LandingZone(dg.ConfigurableResource):
    """The drop folder. Every read demands first that what is read is complete."""

    root: str = Field(default="", description="The folder; default: `$DE_HOME/landing`.")
    visits_readiness: str | None = Field(
        default=None,
        description="`marker` or `next_hour`: what closes an hour; default: DE_VISITS_READINESS, else `marker`.",
    )

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.root) if self.root else Settings.from_environment().landing

    @property
    def readiness(self) -> Readiness:
        """What closes an hour of visits. Raises `UnknownReadiness`."""
        said = self.visits_readiness or os.environ.get(READINESS_VARIABLE) or "marker"
        for known in get_args(Readiness):
            if said == known:
                readiness: Readiness = known
                return readiness
        raise UnknownReadiness(said)

    def arrivals(self) -> Arrivals:
        """The hours of visits as they are now, looked into when asked about."""
        return Arrivals(self.path, self.readiness)

    def closed_hours(self) -> list[datetime]:
        """The hours of visits that may be read, oldest first."""
        return closed_hours(self.path, self.readiness)

    def looks(self) -> dict[datetime, str]:
        """A fingerprint of all that a run of each closed hour reads: its folder, and what was decided about its letters."""
        arrivals = self.arrivals()
        return {
            hour: " ".join([arrivals.look(hour) or "", *(file.name for file in decision_files(self.path, [hour]))])
            for hour in arrivals.hours
            if arrivals.is_closed(hour)
        }

    def visit_lines(self, session: SparkSession, hours: Sequence[datetime]) -> Landed:
        """The landed lines of these hours: `payload` (text, with the bytes as they lie there), `source_file`, `landing_hour`.

        A file that cannot be read, or not to its end, is named, and a rejected line stands for what is missing of it; what
        can be read of it is described in `damaged_files`. Raises `FolderNotReady` when an hour is not closed. Hours without
        lines are silent, which is for a check to judge.
        """
        arrivals = self.arrivals()
        folders = {hour: hour_folder(self.path, hour) for hour in hours}
        missing = [folder for hour, folder in folders.items() if not arrivals.is_closed(hour)]
        if missing:
            raise FolderNotReady(missing)
        return self._landed(session, {file: hour for hour in folders for file in arrivals.files(hour)})

    def _landed(self, session: SparkSession, files: Mapping[Path, datetime]) -> Landed:
        damages = damaged(files)
        whole = sorted(files.keys() - {damage.file for damage in damages})
        # Only of these the engine may pass over what it cannot read.
        broken_off = [damage.file for damage in damages if damage.lines]
        frames = [*_read(session, whole), *_read(session, broken_off, ignore_corrupt=True)]
        told: defaultdict[datetime, dict[str, str]] = defaultdict(dict)
        rejected = []
        for damage in damages:
            hour, place = files[damage.file], printable(damage.file.relative_to(self.path).as_posix())
            told[hour][place] = damage.sentence
            rejected.append((damage.rejected(place), place, hour))
        if rejected or not frames:
            frames.append(made_of(session.createDataFrame(rejected, _LINE), LANDED_VISITS, ["value"]))
        return Landed(reduce(DataFrame.unionAll, frames), told)

    def decisions(self, session: SparkSession, hours: Sequence[datetime]) -> DataFrame | None:
        """What was decided about dead letters of these hours: the fields of `Decision`, `source_file`, `landing_hour`.

        None where nothing was. A file that holds something else fails the job that reads it.
        """
        files = [str(file) for file in decision_files(self.path, hours)]
        if not files:
            return None
        read = session.read.schema(_DECISION).option("mode", "FAILFAST").json(literally(files))
        return read_as(read.select("letter_id", "kind", "attempt", "raw", "why", *_place(DECISIONS)), LANDED_VISITS)

    def devices(self, session: SparkSession) -> DataFrame:
        """The provider's dump: `type`, `full_name`, `version`. A dump without lines is empty, which a check judges.

        Raises `FolderNotReady`, `UnreadableDump` for a line that is not as agreed, and `PermanentError` for a file that
        vanishes meanwhile.
        """
        folder = self.path / DEVICES
        contents = contents_of(folder)
        if contents is None or not contents.is_ready:
            raise FolderNotReady([folder])
        schema = "type STRING, full_name STRING, version STRING"
        try:
            dump = [folder / name for name in contents.published]
            check_dump(dump)
            if not dump:
                return session.createDataFrame([], schema)
            files = literally([str(file) for file in dump])
            return read_as(session.read.schema(schema).option("mode", "FAILFAST").json(files), DEVICES_DROP)
        except FileNotFoundError as error:
            raise PermanentError(
                f"The devices' dump {error.filename} vanished while it was read. Land it again."
            ) from None


def _read(session: SparkSession, files: Sequence[Path], *, ignore_corrupt: bool = False) -> Iterator[DataFrame]:
    """The lines of these files, where there are any."""
    if files:
        reader = session.read.option("ignoreCorruptFiles", str(ignore_corrupt).lower())
        lines = reader.text(literally([str(file) for file in files]))
        yield read_as(lines.select(F.col("value").alias("payload"), *_place(VISITS)), LANDED_VISITS)


def _place(dataset: str) -> tuple[Column, Column]:
    """`source_file` and `landing_hour` of a line, from where its file lies."""
    # Cut by position, for every line pays for it: `date=2026-01-31/hour=07/part-00000.json`.
    place = F.substring_index(F.col("_metadata.file_path"), f"/{dataset}/", -1)
    hour = F.concat(F.substring(place, 6, 10), F.lit(" "), F.substring(place, 22, 2), F.lit(":00:00"))
    return F.concat(F.lit(f"{dataset}/"), place).alias("source_file"), hour.cast("timestamp").alias("landing_hour")
