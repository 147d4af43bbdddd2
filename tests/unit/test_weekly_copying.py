"""Rows as COPY reads them, and what cannot be kept by week."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest

from de_resources.postgres.transaction import Relation
from de_resources.postgres.weekly import NotByWeek, WeeklyView
from de_resources.postgres.weekly.copying import CopyLines, TimeWithoutZone

pytestmark = pytest.mark.pattern("fast_metadata_cleaner")


def test_values_are_spelled_so_that_none_ends_a_column_or_a_line() -> None:
    moment = datetime(2024, 10, 7, 1, 2, 3, 4, tzinfo=UTC)
    row = ("a\tb\nc\rd\\.", None, True, 1.5, date(2024, 10, 7), moment, "", "\\N")
    text = CopyLines([row]).read(100)
    assert text == b"a\\tb\\nc\\rd\\\\.\t\\N\tTrue\t1.5\t2024-10-07\t2024-10-07T01:02:03.000004+00:00\t\t\\\\N\n"


def test_no_more_rows_are_taken_than_fill_the_buffer() -> None:
    taken: list[int] = []

    def rows() -> Iterator[tuple[int]]:
        for n in range(1_000_000):
            taken.append(n)
            yield (n,)

    lines = CopyLines(rows())
    while len(taken) < 2000:
        assert lines.read(100)
    assert len(taken) < 2100


def test_what_the_rows_raise_is_kept_for_who_asked() -> None:
    lines = CopyLines(iter([(datetime(2024, 10, 7),)]))
    with pytest.raises(TimeWithoutZone):
        lines.read(10)
    assert isinstance(lines.failure, TimeWithoutZone)


@pytest.mark.parametrize(
    ("name", "type_", "why"),
    [
        ("serving.visits", "timestamptz NOT NULL", "is timestamptz NOT NULL, not date NOT NULL"),
        ("serving.visits", "date", "is date, not date NOT NULL"),
        ("serving." + "v" * 41, "date NOT NULL", "up to 40 bytes"),
        ("visits", "date NOT NULL", "`schema.name`"),
    ],
)
def test_what_cannot_be_kept_by_week_is_refused_with_the_reason(name: str, type_: str, why: str) -> None:
    with pytest.raises(NotByWeek, match=why):
        WeeklyView(Relation(name, (("day", type_), ("id", "int")), ("id",), "day"))
