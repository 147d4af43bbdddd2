"""Landed files as nobody should deliver them: each line is a visit or a dead letter with its place, and the rest loads."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from instances import silent_instance

from de_assets.bronze.visits import checks
from de_assets.definitions import defs
from de_assets.partitions import CALENDAR
from de_assets.sources.landing import hour_folder, incoming, publish
from de_checks.damaged_files import ACCEPT_TAG as DAMAGE_ACCEPTED
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

Verdicts = dict[str, dg.AssetCheckEvaluation]

pytestmark = [pytest.mark.faults, pytest.mark.pattern("dead_letter")]

HOUR = CALENDAR.start
KEY = f"{HOUR:%Y-%m-%d-%H:%M}"
NO_OBJECT, NO_TEXT = "not a JSON object of the expected form", "the bytes are not UTF-8"


def visit(number: int, **changes: Any) -> bytes:
    """A line that is a visit, whatever else stands in it."""
    own = {"visit_id": f"v{number}", "event_time": HOUR.isoformat(), "user_id": "u1", "page": "home"}
    return json.dumps({**own, **changes}, ensure_ascii=False).encode()


EARLIEST, LATEST = "1970-01-01T00:00:00+00:00", "2261-12-31T23:59:59.999999+00:00"
"""The bounds within which every reader of a table can hold a time."""
BEYOND = {
    "0001-01-01T00:00:00+14:00": "is before 1970 or after 2261",
    "1969-12-31T23:59:59.999999Z": "is before 1970 or after 2261",
    "2262-01-01T00:00:00Z": "is before 1970 or after 2261",
    "9999-12-31T23:59:59Z": "is before 1970 or after 2261",
    "10000-01-01T00:00:00Z": "is no timestamp",
}
ADDED: dict[str, Any] = {
    "source_file": "mine",
    "source_line": 7,
    "landing_hour": EARLIEST,
    "event_hour": EARLIEST,
    "lateness_seconds": 7,
    "raw": "mine",
    "was_dead_lettered": True,
    "letter_id": "mine",
    "reason": "mine",
    "field": "mine",
    "job_version": "mine",
    "status": "discarded",
    "repair_of": "mine",
    "attempts": 7,
    "why": "mine",
}
"""What the platform adds to a record, as a record may say it itself."""


def connected(number: int, since: str) -> bytes:
    """A visit of somebody who logged in at this time."""
    return visit(number, context={"user": {"connected_since": since}})


MEGABYTES = 4
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NESTED = b'{"a":' * 500 + b"1" + b"}" * 500
GOOD: dict[str, bytes] = {
    "byte order mark at the file's beginning": BYTE_ORDER_MARK + visit(3),
    "plain": visit(1),
    "carriage return": visit(2) + b"\r",
    "not a number": visit(4, score=float("nan"), limit=float("inf")),
    "nested 500 deep beside it": visit(5)[:-1] + b', "extra": ' + NESTED + b"}",
    f"{MEGABYTES} MB in a field nobody reads": visit(6, extra="x" * MEGABYTES * 1024 * 1024),
    "look-alikes and controls": visit(7, page="hоme\u202e\u0007"),
    "last of two keys": visit(8)[:-1] + b', "page": "second"}',
    "as early as a time may be": visit(9, event_time=EARLIEST),
    "as late as a time may be": visit(10, event_time=LATEST),
    "logged in as early as may be": connected(11, EARLIEST),
    "logged in as late as may be": connected(12, LATEST),
    "the platform's own names": visit(13, **ADDED),
}
BAD: dict[str, tuple[bytes, str]] = {
    "half a line": (visit(20)[:-9], NO_OBJECT),
    "nested 500 deep": (b"[" * 500 + b"]" * 500, NO_OBJECT),
    "an error page": (b"<html><body>200 OK, try later</body></html>", NO_OBJECT),
    "byte order mark between lines": (BYTE_ORDER_MARK + visit(25), NO_OBJECT),
    "null bytes": (b"\x00" * 64, NO_OBJECT),
    "half a character": (visit(21, page="pagé").replace("é".encode(), b"\xc3"), NO_TEXT),
    "utf-16": (visit(22).decode().encode("utf-16-le").replace(b"\n", b""), NO_OBJECT),
    "an array of visits": (b"[" + visit(23) + b"]", NO_OBJECT),
    "the column's type": (visit(24, keep_private={"yes": 1}), NO_OBJECT),
    "the platform's own names": (visit(26, **{**ADDED, "user_id": None}), "user_id is missing"),
    **{f"at {time}": (visit(30, event_time=time), f"event_time {why}") for time, why in BEYOND.items()},
    **{f"logged in at {time}": (connected(31, time), f"connected_since {why}") for time, why in BEYOND.items()},
}
FILES = {
    "good.json": b"\n".join(GOOD.values()) + b"\n",
    "bad.json": b"\n".join(line for line, _ in BAD.values()),  # and no end of line at the end
    "empty.json": b"",
    "blank.json": b"\n\r\n",
}
RESCUED = 3
WHOLE = gzip.compress(b"".join(visit(n) + b"\n" for n in range(100, 100 + RESCUED)))
DAMAGED = {
    # Without its checksum, so that all lines are before the break.
    "broken_off.json.gz": (WHOLE[:-8], RESCUED + 1, "the compressed file is damaged from here on"),
    "no_gzip.json.gz": (visit(200) + b"\n", 1, "the compressed file is damaged: nothing of it was read"),
}
PLACE = f"visits/date={HOUR:%Y-%m-%d}/hour={HOUR:%H}/"


@dataclass
class Run:
    """What one run made of the hour."""

    settings: Settings
    instance: dg.DagsterInstance
    verdicts: Verdicts


@pytest.fixture(scope="module")
def run(home: Path, engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The hour, loaded by one run of the graph."""
    assert engine.spark_session is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DE_HOME", str(tmp_path_factory.mktemp("home")))
        settings = Settings.from_environment()
        with incoming(settings.landing) as prepared:
            landed = {**FILES, **{name: content for name, (content, *_) in DAMAGED.items()}}
            for name, content in landed.items():
                (prepared / name).write_bytes(content)
            publish(hour_folder(settings.landing, HOUR), {name: prepared / name for name in landed})
        from de_assets.resources import resources

        with silent_instance() as instance:
            wanted = {dg.AssetKey([layer, "visits"]) for layer in ("bronze", "silver")}
            assets = [a for a in defs.assets or [] if wanted & set(getattr(a, "keys", ()))]
            # That most lines of the hour are dead letters would end the run.
            judged = [check for check in checks if not any(spec.blocking for spec in check.check_specs)]
            result = dg.materialize(
                [*assets, *judged], partition_key=KEY, resources=resources(settings, engine), instance=instance
            )
            assert result.success
            yield Run(settings, instance, {each.check_name: each for each in result.get_asset_check_evaluations()})


@pytest.fixture
def settings(run: Run) -> Settings:
    return run.settings


def rows(settings: Settings, table: str, layer: str = "bronze") -> list[dict[str, Any]]:
    """As a reader has them that is no Spark, and keeps times in 64 bits."""
    found: list[dict[str, Any]] = DeltaTable(f"{settings.lake_root}/{layer}/{table}").to_pyarrow_table().to_pylist()
    return found


def by_id(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["visit_id"]: row for row in found}


def test_every_good_line_is_a_visit_whatever_its_neighbours_are(settings: Settings) -> None:
    visits = by_id(rows(settings, "visits"))
    rescued = range(100, 100 + RESCUED)
    assert sorted(visits) == sorted(f"v{n}" for n in [*range(1, len(GOOD) + 1), *rescued])
    times = {name: row["event_time"] for name, row in visits.items()}
    assert (times.pop("v9").isoformat(), times.pop("v10").isoformat()) == (EARLIEST, LATEST)
    assert set(times.values()) == {HOUR.astimezone(UTC)}
    assert visits["v8"]["page"] == "second"


def test_every_reader_can_read_times_at_the_bounds_in_each_layer(settings: Settings) -> None:
    """Those beyond are dead letters: one of them in a table, and nobody but Spark could read it."""
    late, valid = by_id(rows(settings, "visits_late", "silver")), by_id(rows(settings, "visits", "silver"))
    assert {name: row["event_time"].isoformat() for name, row in late.items()} == {"v9": EARLIEST, "v10": LATEST}
    for visits in (by_id(rows(settings, "visits")), valid):
        assert [visits[name]["connected_since"].isoformat() for name in ("v11", "v12")] == [EARLIEST, LATEST]


def test_what_the_platform_adds_to_a_record_never_comes_from_it(settings: Settings) -> None:
    def added(row: dict[str, Any], *of_the_line: str) -> dict[str, Any]:
        return {name: value for name, value in row.items() if name in ADDED and name not in of_the_line}

    for layer in ("bronze", "silver"):
        visits = by_id(rows(settings, "visits", layer))
        assert added(visits["v13"], "raw") == added(visits["v1"], "raw"), layer
        assert json.loads(visits["v13"]["raw"])["raw"] == "mine", layer
    dead = {bytes(row["payload"]): row for row in rows(settings, "visits_dead_letter")}
    own, other = (dead[BAD[name][0]] for name in ("the platform's own names", f"at {next(iter(BEYOND))}"))
    of_the_line = ("raw", "letter_id", "reason", "field")
    assert added(own, *of_the_line) == added(other, *of_the_line)
    assert (own["reason"], own["field"]) == ("user_id is missing", "user_id")
    assert own["letter_id"] != "mine"


def test_every_bad_line_is_a_dead_letter_with_reason_and_place(settings: Settings) -> None:
    dead = rows(settings, "visits_dead_letter")
    of_lines = [row for row in dead if row["payload"].strip() and row["source_line"] is None]
    assert {row["source_file"] for row in of_lines} == {f"{PLACE}bad.json"}
    reasons = {bytes(row["payload"]): row["reason"] for row in dead}
    assert {name: reasons[line] for name, (line, _) in BAD.items()} == {name: why for name, (_, why) in BAD.items()}


def test_lines_in_are_rows_out(settings: Settings) -> None:
    lines = len(GOOD) + len(BAD) + 2  # the two blank ones
    lines += RESCUED + len(DAMAGED)
    assert len(rows(settings, "visits")) + len(rows(settings, "visits_dead_letter")) == lines


def test_a_damaged_file_is_a_dead_letter_with_the_place_where_it_breaks_off(settings: Settings) -> None:
    letters = {row["source_file"]: row for row in rows(settings, "visits_dead_letter") if row["source_line"]}
    told = {name: (letters[f"{PLACE}{name}"]["source_line"], letters[f"{PLACE}{name}"]["reason"]) for name in DAMAGED}
    assert told == {name: (line, reason) for name, (_, line, reason) in DAMAGED.items()}
    assert len({row["letter_id"] for row in letters.values()}) == len(letters) == len(DAMAGED)


def test_a_check_names_the_damaged_files_and_holds_nothing_back(run: Run) -> None:
    verdict = run.verdicts["files_are_whole"]
    assert (verdict.passed, verdict.severity, verdict.blocking) == (False, dg.AssetCheckSeverity.ERROR, False)
    assert all(f"`{PLACE}{name}`" in (verdict.description or "") for name in DAMAGED)


def _judged(run: Run, engine: SparkEngine, *, again: bool = False, **tags: str) -> bool:
    """Whether the files are whole, by a run of the check alone, with a person's tags, or behind another load of the hour."""
    from de_assets.resources import resources

    assets = [a for a in defs.assets or [] if dg.AssetKey(["bronze", "visits"]) in getattr(a, "keys", ())]
    judged = [check for check in checks if {spec.name for spec in check.check_specs} == {"files_are_whole"}]
    job = dg.Definitions(
        assets, asset_checks=judged, resources=resources(run.settings, engine)
    ).resolve_implicit_global_asset_job_def()
    if not again:
        job = job.get_subset(asset_selection=set(), asset_check_selection=job.asset_layer.asset_graph.asset_check_keys)
    done = job.execute_in_process(partition_key=KEY, instance=run.instance, tags=tags)
    (verdict,) = done.get_asset_check_evaluations()
    return verdict.passed


@pytest.mark.red_check("files_are_whole")
def test_damaged_files_are_done_without_or_landed_again(run: Run, engine: SparkEngine) -> None:
    """Comes last: the hour is another one afterwards."""
    assert not _judged(run, engine)
    assert _judged(run, engine, **{DAMAGE_ACCEPTED: "the rest is lost"})
    assert not _judged(run, engine), "accepted once"
    with incoming(run.settings.landing) as prepared:
        (prepared / "broken_off.json.gz").write_bytes(WHOLE)
        publish(hour_folder(run.settings.landing, HOUR), {"broken_off.json.gz": prepared / "broken_off.json.gz"})
    assert _judged(run, engine, again=True)
