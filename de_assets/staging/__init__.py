"""Staging: replicas of production in an environment of its own (`DE_STAGING_ROOT`). Production is only read."""

from de_assets.staging import devices, devices_raw, users, visits, visits_topic

assets = [
    devices_raw.devices_raw,
    visits_topic.visits_topic,
    devices.devices,
    users.users,
    visits.visits,
]
checks = [
    *devices_raw.checks,
    *visits_topic.checks,
    *devices.checks,
    *users.checks,
    *visits.checks,
]
polls = [*devices_raw.polls, *visits_topic.polls]
