"""A table walked through a migration, forward and back, beside a dictionary that says what it has to hold.

After each step code that knows the old columns writes a row, and code that knows the new ones another one; while both are
stored, a writer around the platform, who leaves the new ones out, adds a third. What the table holds is asked by another
reader than the one that wrote; what each side's readers are shown, and what a stream has taken in, is compared as well.

Also run as a program by the tests, for one process may not have a classic and a Connect session at once. Arguments: `sc://`
address with its token in SPARK_CONNECT_AUTHENTICATE_TOKEN, a folder, and the kinds to be walked; none: the short walk.
Prints how often the stream was started again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyspark.sql.types as T
from dagster_delta import WriteMode
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from seeding import seed

from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.modes import write_table
from de_resources.delta.write.request import WriteRequest
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.migrations import Migration, nest, remove, rename, retype
from de_resources.migrations.dual_write import DualWrite, under_migration
from de_resources.migrations.progress import Phase
from de_resources.migrations.steps import Migrator, StepResult, ValuesGone

Row = dict[str, Any]
DAYS = (date(2024, 1, 1), date(2024, 1, 2))
STREAM = {"skipChangeCommits": "true"}
DROPS = {"allowSourceColumnDrop": "always"}
NAMES = {"name": T.StringType(), "age": T.IntegerType()}

RENAME = rename("address_for_page", "page", "address", T.StringType())
RETYPE = retype("cents_for_amount", "amount", T.StringType(), "cents", T.IntegerType())
NEST = nest("person_for_name_and_age", NAMES, into="person")
REMOVE = remove("without_note", {"note": T.StringType()})


@dataclass(frozen=True)
class Change:
    """A migration, a row of its old columns, and both directions in plain Python: None where a side says nothing."""

    migration: Migration
    path: str
    row: Callable[[int], Row]
    new_of: Callable[[Row], Row]
    old_of: Callable[[Row], Row]


CHANGES = {
    "rename": Change(
        RENAME,
        f"{__name__}:RENAME",
        lambda n: {"page": f"/{n}"},
        lambda old: {"address": old["page"]},
        lambda new: {"page": new["address"]},
    ),
    "retype": Change(
        RETYPE,
        f"{__name__}:RETYPE",
        lambda n: {"amount": str(n)},
        lambda old: {"cents": int(old["amount"])},
        lambda new: {"amount": str(new["cents"])},
    ),
    # Half a person is one all the same.
    "nest": Change(
        NEST,
        f"{__name__}:NEST",
        lambda n: {"name": f"Ann {n}", "age": n if n % 2 else None},
        lambda old: {"person": dict(old)},
        lambda new: dict(new["person"]),
    ),
    "remove": Change(REMOVE, f"{__name__}:REMOVE", lambda n: {"note": f"n{n}"}, lambda _: {}, lambda _: {"note": None}),
}
FORWARD, BACK = ("expand", "migrate", "contract"), ("rollback", "rollback", "rollback")
COURSES = {
    **dict.fromkeys(("rename", "retype", "nest"), (*FORWARD, *BACK)),
    # Nothing brings removed values back: what can be taken back is taken back before the contraction.
    "remove": ("expand", "migrate", "rollback", "rollback", *FORWARD),
}
# What the page tells people: so often a step stops a stream, which its supervisor then starts again.
_THERE_AND_BACK = (("expand", 1), ("migrate", 0), ("contract", 2), ("rollback", 1), ("rollback", 0), ("rollback", 0))
RESTARTS = {
    **{kind: [["start", 0], *map(list, _THERE_AND_BACK)] for kind in ("rename", "retype", "nest")},
    "remove": [["start", 0], *([name, 2 * (name == "contract")] for name in COURSES["remove"])],
}


@dataclass
class Walk:
    """One table under one migration, and what it has to hold by the rows' numbers."""

    session: SparkSession
    folder: Path
    change: Change
    streamed: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    written: dict[int, Row] = field(default_factory=dict)
    restarts: list[list[Any]] = field(default_factory=list)
    stored: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=lambda: dict(STREAM))

    @property
    def table(self) -> Table:
        return Table("silver.walked", str(self.folder / "walked"), partitioned_by=("day",))

    @property
    def migration(self) -> Migration:
        return self.change.migration

    @property
    def migrator(self) -> Migrator:
        return Migrator(self.session, self.table, self.migration, _stamp())

    @property
    def both_stored(self) -> bool:
        return {*self.migration.old_names, *self.migration.new_names} <= set(self.stored)

    def follow(self, course: Sequence[str]) -> list[list[Any]]:
        """Take the steps. How often the stream had to be started again after each."""
        self.stored = self.migration.old_names
        self.write("old")
        self.take_in("start")
        self.write("new")
        self.compare()
        for name in course:
            self.take(name)
            self.compare()
            self.write("old")
            self.write("new")
            if self.both_stored:
                self.around()
            self.compare()
            self.take_in(name)
        return self.restarts

    # The steps, and what each has to do to every row.

    def take(self, name: str) -> StepResult:
        """One step, on table and dictionary alike. Before the old or new columns go, what lies around is filled."""
        before = self.migrator.progress().phase
        drops = (name, before) in (("contract", Phase.MIGRATED), ("rollback", Phase.EXPANDED))
        if drops and any(self.of_sides(row) != {c: row[c] for c in self.stored} for row in self.rows.values()):
            self.migrator.backfill()
            self.fill()
        if name in ("contract", "rollback"):
            self.options |= DROPS
        done = self.step(name)
        old, new = self.migration.old_names, self.migration.new_names
        self.stored = {
            Phase.NOT_STARTED: old,
            Phase.EXPANDED: (*old, *new),
            Phase.MIGRATED: (*old, *new),
            Phase.CONTRACTED: new,
        }[done.phase]
        for row in self.rows.values():
            for column in {*old, *new} - set(self.stored):
                row.pop(column, None)
            row.update({c: None for c in self.stored if c not in row})
        if name == "migrate" or (name, before) == ("rollback", Phase.CONTRACTED):
            self.fill()
        return done

    def step(self, name: str) -> StepResult:
        """One step of the table alone."""
        steps: Mapping[str, Callable[[], StepResult]] = {
            "expand": self.migrator.expand,
            "migrate": self.migrator.backfill,
            "contract": partial(self.migrator.contract, []),
            "rollback": self.migrator.rollback,
        }
        return steps[name]()

    def fill(self) -> None:
        """Each row says on both sides what it said on one."""
        for row in self.rows.values():
            row.update(self.of_sides(row))

    def of_sides(self, row: Row) -> Row:
        old = {c: row.get(c) for c in self.migration.old_names}
        new = {c: row.get(c) for c in self.migration.new_names}
        if not self.migration.new:
            return {c: old[c] for c in self.stored}
        told = [*old.values()] != [None] * len(old)
        both = {**old, **self.change.new_of(old)} if told else {**self.change.old_of(new), **new}
        return {c: both[c] for c in self.stored}

    # Writers.

    def begin_with(self, rows: int, phase: Phase = Phase.NOT_STARTED) -> None:
        """So many rows are there before, in a table that has got so far forward; written without the engine."""
        old, new = self.migration.old_names, self.migration.new_names
        self.stored = old if phase is Phase.NOT_STARTED else (*old, *new)
        for n in range(rows):
            given = self.change.row(n)
            self.added(n, self.of_sides(given) if phase is Phase.MIGRATED else {c: given.get(c) for c in self.stored})
        uri, by = self.table.uri, self.table.partitioned_by
        seed(uri, self.rows.values(), self.columns(self.stored), partitioned_by=by)
        if phase is not Phase.NOT_STARTED:
            said = {self.migration.property_name: str(phase)}
            DeltaTable(uri).alter.set_table_properties(said, raise_if_not_exists=False)

    def write(self, side: str) -> None:
        """A row by code of the platform that knows one side only."""
        n = len(self.rows)
        old = self.change.row(n)
        given = old if side == "old" else self.change.new_of(old)
        prepared = DualWrite().prepare(
            WriteRequest(
                session=self.session,
                frame=self.frame(n, given),
                table=self.table,
                slice=None,
                stamp=_stamp(),
                mode=WriteMode.append,
                metadata=under_migration(self.change.path),
            )
        )
        write_table(prepared)
        self.added(n, self.of_sides(given))

    def around(self) -> None:
        """A row by an old writer that knows nothing of the platform: it leaves the new columns out."""
        n = len(self.rows)
        given = self.change.row(n)
        self.frame(n, given).write.format("delta").mode("append").save(self.table.uri)
        self.added(n, {c: given.get(c) for c in self.stored})

    def added(self, n: int, values: Row) -> None:
        row = {"id": n, "day": DAYS[n % 2], **values}
        self.rows[n], self.written[n] = dict(row), dict(row)

    def frame(self, n: int, given: Row) -> DataFrame:
        return self.session.createDataFrame([(n, DAYS[n % 2], *given.values())], self.columns(given))

    def columns(self, names: Iterable[str]) -> T.StructType:
        """Of a row that says these of the columns that change."""
        types = {f.name: f.type for f in (*self.migration.old, *self.migration.new)}
        fields = [T.StructField("id", T.LongType()), T.StructField("day", T.DateType())]
        return T.StructType(fields + [T.StructField(c, types[c]) for c in names])

    # Readers.

    def compare(self) -> None:
        """The table by another reader, and both sides by the engine, are what the dictionary says."""
        self.compare_stored()
        self.compare_sides()

    def compare_stored(self) -> None:
        """The table, by a reader without a JVM."""
        found = DeltaTable(self.table.uri).to_pyarrow_table()
        assert set(found.column_names) == {"id", "day", *self.stored}
        assert {row["id"]: row for row in found.to_pylist()} == self.rows
        assert found.num_rows == len(self.rows)

    def compare_sides(self) -> None:
        """What readers of either side are shown, in whatever phase the table is; both are asked at once."""
        expected = {n: self.of_both(row) for n, row in self.rows.items()}
        table, m = self.table.read(self.session), self.migration
        sides = {"old": (m.as_old, m.old_names), "new": (m.as_new, m.new_names)}
        old, new = (
            shown(table).select("id", F.lit(side).alias("side"), *names) for side, (shown, names) in sides.items()
        )
        rows = [row.asDict(recursive=True) for row in old.unionByName(new, allowMissingColumns=True).collect()]
        for side, (_, names) in sides.items():
            got = {row["id"]: {c: row[c] for c in names} for row in rows if row["side"] == side}
            assert got == {n: {c: row[c] for c in names} for n, row in expected.items()}

    def of_both(self, row: Row) -> Row:
        """What either side's reader is shown."""
        old = {c: row.get(c) for c in self.migration.old_names}
        new = {c: row.get(c) for c in self.migration.new_names}
        if any(v is not None for v in old.values()) or not self.migration.new:
            return {**old, **self.change.new_of(old)}
        return {**self.change.old_of(new), **new}

    def take_in(self, after: str) -> None:
        """Let the stream read what there is, starting it again where the engine stops it; each row has come once."""
        if not self.streamed:
            return
        checkpoint, out = self.folder / "checkpoint", self.folder / "out"
        options = {**self.options, "schemaTrackingLocation": str(checkpoint / "_schema")}
        for attempt in range(6):
            frame = self.session.readStream.format("delta").options(**options).load(self.table.uri)
            writer = frame.writeStream.format("json").trigger(availableNow=True)
            try:
                writer.option("checkpointLocation", str(checkpoint)).start(str(out)).awaitTermination()
            except ENGINE_ERRORS as error:
                if "DELTA_STREAMING_METADATA_EVOLUTION" not in str(error):
                    raise
            else:
                self.restarts.append([after, attempt])
                break
        else:
            raise AssertionError("the stream does not go on")
        seen = [json.loads(line) for part in out.glob("*.json") for line in part.read_text().splitlines()]
        assert sorted(seen, key=lambda row: row["id"]) == [_as_json(row) for row in self.written.values()]


def _as_json(row: Row) -> Row:
    """As the engine writes it: without what is null."""
    plain = {k: _as_json(v) if isinstance(v, dict) else v for k, v in row.items() if v is not None}
    return {k: str(v) if isinstance(v, date) else v for k, v in plain.items()}


def _stamp() -> CommitInfo:
    return CommitInfo("silver.walked", "walk", "all", "run", uuid4().hex, uuid4().hex)


def walk(session: SparkSession, folder: Path, kinds: Iterable[str], *, streamed: bool) -> dict[str, Any]:
    """Walk these kinds, each on a table of its own; the restarts of each one's stream."""
    found: dict[str, Any] = {}
    for kind in kinds:
        walked = Walk(session, folder / kind, CHANGES[kind], streamed)
        found[kind] = walked.follow(COURSES[kind])
        if kind == "remove":
            try:
                walked.migrator.rollback()
            except ValuesGone:
                continue
            raise AssertionError("nothing holds the values any more")
    return found


def short_walk(session: SparkSession, folder: Path) -> None:
    """Columns become a struct and come back: new code writes while both are stored, old code when the new one is; no stream."""
    walked = Walk(session, folder, CHANGES["nest"])
    walked.begin_with(2)
    for step, side in (("expand", "new"), ("migrate", ""), ("contract", "old"), ("rollback", "")):
        walked.take(step)
        if side:
            walked.write(side)
    walked.compare()


def main(url: str, folder: str, *kinds: str) -> None:
    """Over Connect: the short walk, or with a stream those of the kinds that are named."""
    session = SparkSession.builder.remote(url).getOrCreate()
    if not kinds:
        short_walk(session, Path(folder))
    json.dump(walk(session, Path(folder), kinds, streamed=True), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
