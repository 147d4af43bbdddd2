"""Bronze: what came, as it came, typed and in partitions."""

from de_assets.bronze import ads_stream, devices, features, legacy_visits, users_changes, visits, visits_stream

assets = [
    visits.landed_visits,
    visits_stream.visits_stream,
    ads_stream.ads_stream,
    devices.devices,
    legacy_visits.legacy_visits,
    users_changes.users_changes,
    features.features,
    features.features_dead_letter,
]
checks = [
    *visits.checks,
    *visits_stream.checks,
    *ads_stream.checks,
    *devices.checks,
    *legacy_visits.checks,
    *users_changes.checks,
    *features.checks,
]
polls = [*ads_stream.polls, *devices.polls, *users_changes.polls, *visits_stream.polls]
