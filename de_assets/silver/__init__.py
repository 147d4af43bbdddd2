"""Silver: valid, deduplicated, on time, joined."""

from de_assets.silver import devices, legacy_visits, users, visits, visits_enriched

assets = [
    visits.valid_visits,
    devices.devices,
    users.users,
    visits_enriched.visits_enriched,
    legacy_visits.legacy_visits,
]
checks = [*visits.checks, *devices.checks, *users.checks, *visits_enriched.checks, *legacy_visits.checks]
