"""What the matrix' assets are computed from, written by delta-rs: its cells ask what follows from them, not how they came.

Of two hours around a midnight: visits of people and of a robot, on time and late, some in one sitting over midnight and some
not; of users one who moved at midnight, and visitors whom nobody knows; devices, and one that is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from seeding import seed

from de_assets.contracts.devices import Devices
from de_assets.contracts.users import Users
from de_assets.contracts.visits import Visits, VisitsLate
from de_resources.contract import Contract

SEEDED = ("silver/devices", "silver/users", "silver/visits", "silver/visits_late")
MINUTES = 60
PEOPLE, KNOWN, ROBOT = 10, 7, 9
EARLY = 20
"""Minutes in which people with an even number are there; the odd ones are there all the hour, over midnight too."""


def write(lake: Path, first: datetime) -> None:
    """Two hours of visits, of which the second is the first of its day, and what they refer to."""
    second = first + timedelta(hours=1)
    on_time = [visit for hour in (first, second) for visit in _visits(hour)]
    late = [
        {**visit, "landing_hour": second, "lateness_seconds": int((second - visit["event_time"]).total_seconds())}
        for visit in _visits(first, ahead=30, step=7, name="late")
    ]
    for model, rows in ((Visits, on_time), (VisitsLate, late), (Users, _users(second)), (Devices, _devices())):
        contract = Contract.of(model)
        place = lake / contract.name.replace(".", "/")
        seed(str(place), rows, contract.struct_type(), partitioned_by=contract.partitioned_by)


def _visits(hour: datetime, *, ahead: int = 0, step: int = 1, name: str = "visit") -> Iterator[dict[str, Any]]:
    for minute in range(0, MINUTES, step):
        who = minute % PEOPLE
        if who % 2 or minute < EARLY:
            yield {
                "visit_id": f"{name} {hour:%H}:{minute:02}",
                "event_time": hour + timedelta(minutes=minute, seconds=ahead),
                "user_id": f"u{who}",
                "page": f"/{minute % 4}",
                "referral": ("search", None, "feed")[minute % 3],
                "ip": f"10.0.{who}.1",
                "device_type": ("Phone", "tablet")[minute % 2],
                "device_version": f"{minute % 3}",
                "is_bot": who == ROBOT,
                "raw": "{}",
                "event_hour": hour,
            }


def _users(midnight: datetime) -> Iterator[dict[str, Any]]:
    began = datetime(2024, 1, 1, tzinfo=UTC)
    for who in range(KNOWN):
        user = {"user_id": f"u{who}", "login": f"login {who}", "email": None, "country": ("France", "Peru")[who % 2]}
        moved = who == 1
        yield {**user, "valid_from": began, "valid_to": midnight if moved else None, "is_current": not moved}
        if moved:
            yield {**user, "country": "Japan", "valid_from": midnight, "valid_to": None, "is_current": True}


def _devices() -> Iterator[dict[str, Any]]:
    for type_, version in (("phone", "0"), ("phone", "2"), ("tablet", "1")):
        yield {"type": type_, "version": version, "full_name": f"{type_} {version}", "is_deleted": False}
