"""A traced row as `de trace` finds one, built by hand: two sessions of one person are asked for no engine."""

from datetime import datetime
from typing import Any

from de_resources.tracing.makers import OUTSIDE, Maker
from de_resources.tracing.trace import Traced, TracedRow

NOW = datetime.fromisoformat("2024-10-12T06:30:00+00:00")
LINE = '{"visit_id": "v-1", "user_id": "ann@example.com", "page": "/"}'
OWNERS = {
    "gold/sessions": ("team:analytics",),
    "silver/visits_enriched": ("team:web",),
    "silver/devices": ("team:devices",),
    "bronze/visits": ("team:web",),
    "sources/access_log": ("team:web",),
}


def row(values: dict[str, Any], *makers: Maker, personal: tuple[str, ...] = ("user_id", "raw")) -> TracedRow:
    return TracedRow(values, {k: "***" if k in personal else v for k, v in values.items()}, makers)


def run(number: int) -> str:
    return f"{number:08x}-5d1c-4c3e-9a54-2f0c6ad3b7e1"


def session_of(visits: int) -> Traced:
    """One session, the visits that it was made of, their landed lines, and what the visits were joined with."""
    numbers = range(1, visits + 1)
    landed = [
        row(
            {
                "visit_id": f"v-{n}",
                "source_file": "visits/2024-10-11T07/part-0.json",
                "raw": LINE.replace("v-1", f"v-{n}"),
            },
            Maker(4, run(0xB10), "WRITE"),
        )
        for n in numbers
    ]
    enriched = [
        row(
            {
                "visit_id": f"v-{n}",
                "user_id": "ann@example.com",
                "page": f"/articles/<b>{n}</b>",
                "event_time": f"2024-10-11 07:{n:02}:00",
                "country": "DE",
                "device_type": None,
                "referral": "x" * 200,
            },
            Maker(7, run(0x51), "WRITE"),
        )
        for n in numbers
    ]
    devices = Traced(
        "silver/devices",
        "by equal device_type, device_version",
        (row({"device_type": "phone", "device_version": "17.1"}, *(Maker(n, run(n), "MERGE") for n in range(9, 14))),),
        1,
        (Traced("sources/devices_table", "outside of the lake"),),
    )
    source = Traced("sources/access_log", "outside of the lake")
    bronze = Traced("bronze/visits", "by equal visit_id", tuple(landed), visits, (source,))
    joined = Traced("silver/visits_enriched", "as the asset declares", tuple(enriched), visits + 120, (devices, bronze))
    asked = row(
        {"session_id": "s-42", "user_id": "ann@example.com", "visits": visits + 120}, Maker(3, run(0x601D), "WRITE")
    )
    return Traced("gold/sessions", "the row that was asked for", (asked,), 1, (joined,))


def served() -> Traced:
    """A row outside of the lake, of which nobody has recorded the run, beside one of a commit without a stamp."""
    rows = (
        row({"day": "2024-10-11"}),
        row({"day": "2024-10-12"}, Maker(OUTSIDE, run(5))),
        row({"day": "2024-10-13"}, Maker(2, "", "WRITE")),
    )
    return Traced("serving/daily_traffic", "the row that was asked for", rows, 3)
