"""The catalogue: 70 patterns in nine families, what carries each in the graph, and which tests prove it."""

from de_assets.catalogue.carriers import LOCATIONS, Carrier, carriers, load_locations
from de_assets.catalogue.index import COMMAND, PAGES, index, page
from de_assets.catalogue.patterns import (
    ALIASES,
    PATTERNS,
    PREFIX,
    Alias,
    Family,
    Pattern,
    UnknownPattern,
    look_up,
    pattern_named,
)
from de_assets.catalogue.proofs import UnreadableMark, tests
from de_assets.catalogue.status import PACKAGES, PROJECT, Status, modules, status

__all__ = [
    "ALIASES",
    "COMMAND",
    "LOCATIONS",
    "PACKAGES",
    "PAGES",
    "PATTERNS",
    "PREFIX",
    "PROJECT",
    "Alias",
    "Carrier",
    "Family",
    "Pattern",
    "Status",
    "UnknownPattern",
    "UnreadableMark",
    "carriers",
    "index",
    "load_locations",
    "look_up",
    "modules",
    "page",
    "pattern_named",
    "status",
    "tests",
]
