"""CSV as Python's own reader gets it, and days that are replaced as a whole, on a real engine and a real folder."""

from __future__ import annotations

import csv
import random
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from de_resources.csv_files import DayFile, DayFiles, RowsOutside
from de_resources.csv_files.days import UnusableKey, _look
from de_resources.csv_files.text import NoText, header
from de_resources.delta.write.crash_points import at

pytestmark = pytest.mark.pattern("parallel_split")

DAY, NEXT = "2026-01-30", "2026-01-31"
SCHEMA = "n int, text string, other string, at timestamp, yes boolean, on date, much decimal(20, 4), day date"
NASTY = [
    '"',
    '""',
    ",",
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    "a",
    "ß",
    "😀",
    "\\",
    "'",
    ";",
    "#",
    "=1+1",
    "\u2028",
    "\ufeff",
    "",
]
Row = tuple[Any, ...]


def row(n: int, text: str | None = "a", other: str | None = None, day: str = DAY) -> Row:
    return (n, text, other, datetime(2026, 1, 30, 23, 59, 59, n), True, None, None, date.fromisoformat(day))


def python_reads(file: Path) -> list[list[str]]:
    csv.field_size_limit(1 << 30)
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.reader(lines, strict=True))


@pytest.fixture
def files(tmp_path: Path) -> DayFiles:
    return DayFiles("serving.shop", tmp_path / "lake [1]" / "serving" / "shop")


@pytest.fixture
def write(spark: SparkSession, files: DayFiles) -> Any:
    def written(rows: list[Row], *keys: str, origin: str = "first", schema: str = SCHEMA) -> dict[str, DayFile]:
        frame = spark.createDataFrame(rows, schema)
        return files.write(frame, "day", keys or [DAY], order=["n"], run=origin, origin=origin)

    return written


def test_any_text_comes_back_by_two_readers(spark: SparkSession, files: DayFiles, write: Any) -> None:
    """Python's reader and Spark's get what was written, whatever it is; only null and empty are the same to Python's."""
    chance = random.Random(5)  # noqa: S311 - texts, not secrets
    texts = [
        None,
        "",
        *NASTY,
        *("".join(chance.choices(NASTY, k=chance.randint(2, 9))) for _ in range(60)),
        "x" * 140_000,
    ]
    rows = [row(n, text, chance.choice(texts[:-1])) for n, text in enumerate(texts)]
    told = write(chance.sample(rows, len(rows)))[DAY]

    head, *found = python_reads(files.file(DAY))
    assert head == ["n", "text", "other", "at", "yes", "on", "much"]
    assert [(int(n), text, other) for n, text, other, *_ in found] == [(r[0], r[1] or "", r[2] or "") for r in rows]
    assert (told.rows, told.bytes) == (len(rows), files.file(DAY).stat().st_size)

    schema = T.StructType(spark.createDataFrame([], SCHEMA).schema.fields[:-1])
    back = files.read(spark, DAY, schema).orderBy("n").collect()
    assert [tuple(each) for each in back] == [each[:-1] for each in rows]


def test_null_and_empty_are_told_apart_and_types_have_one_text(files: DayFiles, write: Any) -> None:
    when = datetime(1999, 12, 31, 23, 59, 59, 7)
    write([(1, None, "", when, False, date(1, 1, 1), Decimal("-0.5"), date.fromisoformat(DAY))])
    assert files.file(DAY).read_bytes() == (
        b'"n","text","other","at","yes","on","much"\n1,,"",1999-12-31T23:59:59.000007Z,false,0001-01-01,-0.5000\n'
    )


def test_a_name_is_a_text_as_well() -> None:
    assert next(csv.reader([header(["a", 'b"c', "d,e", "f\r\ng"])])) == ["a", 'b"c', "d,e", "f\r\ng"]


def test_what_has_no_text_is_refused(files: DayFiles, write: Any) -> None:
    with pytest.raises(NoText, match="`tags` is array<string>"):
        write([(["a"], date.fromisoformat(DAY))], schema="tags array<string>, day date")
    assert files.manifest(DAY) is None
    assert not list(files.folder.glob("*"))


def test_several_days_are_a_file_each_and_a_quiet_one_is_a_header(files: DayFiles, write: Any) -> None:
    days = [DAY, NEXT, "2026-02-01"]
    told = write([row(2), row(1), row(3, day=NEXT)], *days)
    assert {key: each.rows for key, each in told.items()} == dict(zip(days, [2, 1, 0], strict=True))
    assert [[int(r[0]) for r in python_reads(files.file(key))[1:]] for key in days] == [[1, 2], [3], []]
    assert sorted(path.name for path in files.folder.iterdir()) == sorted(
        f"{d}.{s}" for d in days for s in ("csv", "json")
    )


@pytest.mark.faults
def test_the_later_day_may_come_first_and_a_second_run_of_a_day_waits_for_the_one_that_is_writing(
    files: DayFiles, write: Any
) -> None:
    write([row(3, day=NEXT)], NEXT)
    second: list[Future[dict[str, DayFile]]] = []
    order: list[str] = []

    def come(_: str) -> None:
        if not second:
            second.append(beside.submit(write, [row(2)], origin="second"))
            wait([second[0]], timeout=1)  # it would be at work by then if nothing held it

    begins, ends = (
        at("before_write", lambda _: order.append("begins")),
        at("after_commit", lambda _: order.append("ends")),
    )
    with begins, ends, ThreadPoolExecutor(1) as beside, at("before_switch", come):
        first = write([row(1)])[DAY]
    assert order == ["begins", "ends"] * 2
    told = second[0].result()[DAY]
    assert files.manifest(DAY) == told != first
    assert files.is_whole(DAY)
    assert [[int(r[0]) for r in python_reads(files.file(key))[1:]] for key in (DAY, NEXT)] == [[2], [3]]
    assert sorted(path.suffix for path in files.folder.iterdir()) == [".csv"] * 2 + [".json"] * 2


def test_a_rerun_is_the_same_bytes_and_the_same_attempt_writes_once(files: DayFiles, write: Any) -> None:
    first = write([row(n) for n in range(50)])[DAY]
    before = files.file(DAY).stat()
    again = write([], origin="first")[DAY]
    assert (again.repeated, files.file(DAY).stat().st_ino) == (True, before.st_ino), "what it wrote, it leaves"
    other = write([row(n) for n in reversed(range(50))], origin="second")[DAY]
    assert not other.repeated
    assert (other.sha256, other.rows) == (first.sha256, 50), "a person's rerun writes the same bytes"
    assert files.file(DAY).stat().st_ino != before.st_ino


def test_rows_of_another_day_and_keys_that_are_no_names_change_nothing(files: DayFiles, write: Any) -> None:
    write([row(1)])
    with pytest.raises(RowsOutside, match=NEXT):
        write([row(2), row(3, day=NEXT)], origin="second")
    with pytest.raises(UnusableKey):
        write([row(2)], "../x", origin="second")
    assert [r[0] for r in python_reads(files.file(DAY))[1:]] == ["1"]
    assert sorted(path.suffix for path in files.folder.iterdir()) == [".csv", ".json"], "nothing half-written stays"


@pytest.mark.faults
@pytest.mark.parametrize("point", ["before_switch", "after_switch", "after_commit"])
def test_whoever_dies_leaves_a_whole_file_and_the_next_run_mends(files: DayFiles, write: Any, point: str) -> None:
    write([row(1)])

    def dies(_: str) -> None:
        raise KeyboardInterrupt

    with at(point, dies), pytest.raises(KeyboardInterrupt):
        write([row(2)], origin="second")
    seen = [r[0] for r in python_reads(files.file(DAY))[1:]]
    assert seen == (["1"] if point.startswith("before") else ["2"])
    assert files.is_whole(DAY) is (point != "after_switch"), "a file without its manifest is known as such"
    (files.folder / ".incoming-of-a-dead-one").mkdir()
    told = write([row(2)], origin="second")[DAY]
    assert told.repeated is (point == "after_commit")
    assert files.is_whole(DAY)
    assert sorted(path.name for path in files.folder.iterdir()) == [f"{DAY}.csv", f"{DAY}.json"]


def test_a_file_that_somebody_changed_is_not_whole(files: DayFiles, write: Any) -> None:
    write([row(1)])
    assert files.is_whole(DAY)
    with files.file(DAY).open("a") as file:
        file.write("2,\n")
    assert not files.is_whole(DAY)
    assert not write([row(1)])[DAY].repeated, "not taken for what the run wrote"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
def test_rows_are_counted_wherever_a_chunk_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("de_resources.csv_files.days._CHUNK", size)
    rows = [["a", "b"], ['"', "\r\n"], ["\r\n\r\n", '""\r\n"'], ["\r", "\n"], ["", ","]]
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    assert _look(tmp_path / "x.csv", ()).rows == len(rows) - 1
