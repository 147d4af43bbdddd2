"""Serving: what other systems read where they read, written in transactions."""

from de_assets.automation.maintenance.view_roll_back import roll_back_view_job
from de_assets.serving import (
    daily_traffic,
    page_counts,
    partner_feed,
    profile_changes,
    users_snapshot,
    visits_export,
    visits_reduced,
    weekly_visits,
)

assets = [
    daily_traffic.served_traffic,
    page_counts.page_counts,
    partner_feed.partner_feed,
    profile_changes.profile_changes,
    users_snapshot.users_snapshot,
    visits_export.exported_visits,
    visits_reduced.visits_reduced,
    weekly_visits.weekly_visits,
]
checks = [*page_counts.checks, *partner_feed.checks, *profile_changes.checks, *visits_export.checks]
jobs = [roll_back_view_job(users_snapshot.users_snapshot.key, users_snapshot.view_proxy)]
polls = [*visits_reduced.polls]
