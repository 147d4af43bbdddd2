"""Each irregularity has its exact rate, and the truth says of each landed line what is wrong with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from de_assets.sources.landing import data_files, hour_folder
from de_assets.sources.simulator import (
    EVERYDAY,
    Defect,
    HourTruth,
    ImpossibleRatesError,
    Irregularities,
    SchemaChange,
    Truth,
    World,
    land_visits,
    users_at,
)

WORLD = World(seed=5, users=300, guests=500)
HOUR = datetime(2026, 2, 2, 9, tzinfo=UTC)
VISITS = 2000
REQUIRED = ("visit_id", "user_id", "event_time", "page")

Landed = tuple[list[bytes], HourTruth]


@pytest.fixture
def land(tmp_path: Path) -> Callable[..., Landed]:
    """Land one hour with the given irregularities; returns its lines and its truth."""

    def land_hour(visits: int = VISITS, **rates: object) -> Landed:
        land_visits(tmp_path, WORLD, [HOUR], per_hour=visits, irregularities=Irregularities(**rates))  # type: ignore[arg-type]
        lines = [line for file in data_files(hour_folder(tmp_path, HOUR)) for line in file.read_bytes().splitlines()]
        return lines, Truth(tmp_path).hour(HOUR)

    return land_hour


def _time(line: bytes) -> datetime:
    return datetime.fromisoformat(json.loads(line)["event_time"])


def _parses(line: bytes) -> bool:
    try:
        record = json.loads(line.decode())
    except ValueError:
        return False
    return isinstance(record["context"], dict) and isinstance(record["keep_private"], bool)


def _positions(truth: HourTruth, kind: str) -> dict[int, str]:
    return {row["position"]: row["detail"] for row in truth.rows(kind)}  # type: ignore[misc]


def test_clean_data_is_clean(land: Callable[..., Landed]) -> None:
    lines, truth = land()
    assert (truth.visits, truth.lines, truth.processable, len(lines)) == (VISITS, VISITS, VISITS, VISITS)
    assert truth.defects.num_rows == 0
    assert all(HOUR <= _time(line) < HOUR + timedelta(hours=1) for line in lines)
    assert lines == sorted(lines, key=_time)
    assert all(json.loads(line)[field] for line in lines for field in REQUIRED)


def test_registered_visitors_show_the_login_that_they_have_then(land: Callable[..., Landed]) -> None:
    users = users_at(WORLD, HOUR)
    seen = [json.loads(line) for line in land()[0]]
    logins = {visit["user_id"]: visit["context"]["user"]["login"] for visit in seen}
    known = {user: login for user, login in logins.items() if user in users}
    assert len(known) > 50
    assert sum(users[user].login != login for user, login in known.items()) <= 2, "edits within the hour"
    assert all(login is None for user, login in logins.items() if user.startswith("guest-"))


@pytest.mark.parametrize("rate", [0.1, 0.0005, 0.0002, 1.0])
@pytest.mark.parametrize("kind", ["duplicates", "late", "malformed", "missing", "future"])
def test_rates_are_exact(land: Callable[..., Landed], kind: str, rate: float) -> None:
    _, truth = land(**{kind: rate})
    assert truth.counts.total() == round(rate * VISITS)


def test_defects_are_not_the_first_rows(land: Callable[..., Landed]) -> None:
    _, truth = land(malformed=0.01)
    positions = list(_positions(truth, Defect.MALFORMED))
    assert positions[0] > 0
    assert positions[-1] > VISITS / 2
    assert max(b - a for a, b in pairwise(positions)) > 1


def test_duplicates_are_exact_copies_right_behind_or_later(land: Callable[..., Landed]) -> None:
    lines, truth = land(duplicates=0.1, schema_changes=(SchemaChange(HOUR, "reading_time"),))
    copies = _positions(truth, Defect.DUPLICATE)
    assert len(lines) == truth.lines == VISITS + 200
    assert len(set(lines)) == VISITS
    assert set(copies.values()) == {"adjacent", "later"}
    for position, detail in copies.items():
        assert lines[position] in lines[:position]
        assert detail == "later" or lines[position] == lines[position - 1]
    assert Counter(json.loads(lines[p])["visit_id"] for p in copies) == Counter(truth.ids(Defect.DUPLICATE))


def test_late_visits_happened_as_many_hours_before_as_the_truth_says(land: Callable[..., Landed]) -> None:
    lines, truth = land(late=0.2, late_delays=((1, 3.0), (30, 1.0)))
    delays = _positions(truth, Defect.LATE)
    for position, line in enumerate(lines):
        hour = HOUR - timedelta(hours=int(delays.get(position, "0")))
        assert hour <= _time(line) < hour + timedelta(hours=1)
    counts = Counter(delays.values())
    assert counts["1"] > 2 * counts["30"] > 0


def test_malformed_lines_and_no_others_cannot_be_read(land: Callable[..., Landed]) -> None:
    lines, truth = land(malformed=0.1)
    malformed = _positions(truth, Defect.MALFORMED)
    assert {position for position, line in enumerate(lines) if not _parses(line)} == set(malformed)
    kinds = Counter(malformed.values())
    assert kinds == dict.fromkeys(("truncated_json", "invalid_utf8", "wrong_type", "not_json"), 50)
    assert truth.processable == VISITS - 200


def test_missing_fields_are_null_or_absent_as_the_truth_says(land: Callable[..., Landed]) -> None:
    lines, truth = land(missing=0.08)
    missing = _positions(truth, Defect.MISSING)
    for position, line in enumerate(lines):
        record = json.loads(line)
        found = [
            f"{field}:{'null' if field in record else 'absent'}" for field in REQUIRED if record.get(field) is None
        ]
        assert found == ([missing[position]] if position in missing else [])
    assert Counter(missing.values()) == {f"{field}:{form}": 20 for field in REQUIRED for form in ("null", "absent")}


def test_out_of_order_visits_come_behind_a_later_one(land: Callable[..., Landed]) -> None:
    lines, truth = land(out_of_order=0.1)
    newest, behind = datetime.min.replace(tzinfo=UTC), set()
    for position, line in enumerate(lines):
        if _time(line) < newest:
            behind.add(position)
        newest = max(newest, _time(line))
    assert behind == set(_positions(truth, Defect.OUT_OF_ORDER))
    assert len(behind) == 200


def test_future_clocks_are_ahead_by_whole_days(land: Callable[..., Landed]) -> None:
    lines, truth = land(future=0.01)
    ahead = {
        position: _time(line) - HOUR for position, line in enumerate(lines) if _time(line) >= HOUR + timedelta(hours=1)
    }
    assert {position: str(lead.days) for position, lead in ahead.items()} == _positions(truth, Defect.FUTURE)
    assert len(ahead) == 20


def test_one_user_owns_the_skewed_share(land: Callable[..., Landed]) -> None:
    lines, truth = land(skew=0.4)
    (user,) = set(_positions(truth, Defect.SKEWED).values())
    owners = Counter(json.loads(line)["user_id"] for line in lines)
    assert owners.most_common(1)[0][0] == user
    assert 800 <= owners[user] < 830, "the guest may come by itself as well"
    assert truth.counts == {Defect.SKEWED: 800}


def test_a_schema_change_reaches_the_visits_from_its_moment_on(land: Callable[..., Landed]) -> None:
    since = HOUR + timedelta(minutes=30)
    lines, truth = land(schema_changes=(SchemaChange(since, "reading_time"),), future=0.01)
    ahead = _positions(truth, Defect.FUTURE)
    for position, line in enumerate(lines):
        true_time = _time(line) - timedelta(days=int(ahead.get(position, "0")))
        assert ("reading_time" in json.loads(line)) == (true_time >= since)
    assert [(row["position"], row["detail"]) for row in truth.rows(Defect.SCHEMA)] == [(None, "reading_time")]


def test_silence_is_a_complete_folder_without_visits(land: Callable[..., Landed], tmp_path: Path) -> None:
    lines, truth = land(silence=((HOUR, HOUR + timedelta(hours=1)),), duplicates=0.5)
    assert (lines, truth.visits, truth.lines, truth.counts) == ([], 0, 0, {Defect.SILENCE: 1})
    assert [path.name for path in hour_folder(tmp_path, HOUR).iterdir()] == ["_SUCCESS"]


@pytest.mark.parametrize("visits", [0, 1, 2, 7, 100, 2000])
def test_all_together_every_record_has_one_defect_at_most(land: Callable[..., Landed], visits: int) -> None:
    rates = {"duplicates": 0.2, "late": 0.2, "malformed": 0.1, "missing": 0.1, "out_of_order": 0.1, "future": 0.1}
    lines, truth = land(visits, **rates)
    ids = [row["visit_id"] for row in truth.defects.to_pylist()]
    assert len(ids) == len(set(ids))
    assert len(lines) == truth.lines == visits + truth.counts[Defect.DUPLICATE]
    if visits >= 100:
        singular = {"duplicates": Defect.DUPLICATE}
        assert truth.counts == {singular.get(kind, kind): round(rate * visits) for kind, rate in rates.items()}


@pytest.mark.parametrize(
    "rates",
    [
        {"late": 1.1},
        {"late": -0.1},
        {"late": 0.6, "missing": 0.6},
        {"out_of_order": 0.6},
        {"late_delays": ()},
        {"late_delays": ((0, 1),)},
    ],
)
def test_impossible_rates_are_refused(rates: dict) -> None:
    with pytest.raises(ImpossibleRatesError, match="impossible"):
        Irregularities(**rates)


def test_everyday_irregularities_are_possible() -> None:
    assert EVERYDAY.duplicates > 0
