"""Silver: valid, deduplicated, on time, joined."""

from de_assets.silver import (
    devices,
    legacy_visits,
    network_countries,
    users,
    visits,
    visits_enriched,
    visits_live,
    visits_live_hours,
    visits_with_ads,
)

assets = [
    visits.valid_visits,
    visits_live.live_visits,
    visits_live_hours.visits_live_hours,
    visits_with_ads.visits_with_ads,
    devices.devices,
    users.users,
    visits_enriched.visits_enriched,
    legacy_visits.legacy_visits,
    network_countries.network_countries,
]
checks = [
    *visits.checks,
    *visits_live.checks,
    *visits_live_hours.checks,
    *visits_with_ads.checks,
    *devices.checks,
    *users.checks,
    *visits_enriched.checks,
    *legacy_visits.checks,
    *network_countries.checks,
]
polls = [*network_countries.polls]
