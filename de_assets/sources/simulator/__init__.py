"""The blog's world as a function of (seed, time), with ground truth for every defect it is told to have.

    world = World(seed=7)
    hours = hours_between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC))
    land_visits(landing, world, hours, total=100_000, irregularities=EVERYDAY)
    Truth(landing).counts()

Everything is drawn from generators seeded with SHA-256 of seed, stream and hour: the same on every machine and in
every process, and any hour can be made alone.
"""

from de_assets.sources.simulator.ads import Showings, showings
from de_assets.sources.simulator.database import DatabaseFeed, create_tables, feed_database
from de_assets.sources.simulator.devices import Device, devices
from de_assets.sources.simulator.drop import LandedHour, land_devices, land_visits
from de_assets.sources.simulator.hours import hours_between, spread
from de_assets.sources.simulator.irregularities import (
    EVERYDAY,
    NONE,
    ImpossibleRatesError,
    Irregularities,
    SchemaChange,
)
from de_assets.sources.simulator.legacy import LegacyVisit, legacy_visits
from de_assets.sources.simulator.profiles import UserChange, UserProfile, user_changes, users_at
from de_assets.sources.simulator.releases import Announcements, announcements
from de_assets.sources.simulator.topic import UndeliveredError, VisitMessage, feed_hours, feed_topic, visit_messages
from de_assets.sources.simulator.truth import Defect, HourTruth, Truth
from de_assets.sources.simulator.world import World

__all__ = [
    "EVERYDAY",
    "NONE",
    "Announcements",
    "DatabaseFeed",
    "Defect",
    "Device",
    "HourTruth",
    "ImpossibleRatesError",
    "Irregularities",
    "LandedHour",
    "LegacyVisit",
    "SchemaChange",
    "Showings",
    "Truth",
    "UndeliveredError",
    "UserChange",
    "UserProfile",
    "VisitMessage",
    "World",
    "announcements",
    "create_tables",
    "devices",
    "feed_database",
    "feed_hours",
    "feed_topic",
    "hours_between",
    "land_devices",
    "land_visits",
    "legacy_visits",
    "showings",
    "spread",
    "user_changes",
    "users_at",
    "visit_messages",
]
