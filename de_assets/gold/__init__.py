"""Gold: what people and other teams read."""

from de_assets.gold import (
    daily_report,
    pages_per_visit,
    referral_stats,
    sessions,
    sessions_live,
    sessions_pending,
    sessions_stream,
    traffic_live,
    user_activity,
    users_by_country,
    users_latest,
    users_snapshot,
    visitor_sketches_daily,
    visits_cube_daily,
    visits_cube_weekly,
)

assets = [
    visits_cube_daily.visits_cube_daily,
    visitor_sketches_daily.visitor_sketches_daily,
    visits_cube_weekly.visits_cube_weekly,
    referral_stats.referral_stats,
    sessions_pending.sessions_pending,
    sessions.sessions,
    sessions_live.sessions_live,
    sessions_stream.sessions_stream,
    traffic_live.traffic_live,
    pages_per_visit.pages_per_visit,
    users_snapshot.users_snapshot,
    users_latest.users_latest,
    users_by_country.users_by_country,
    user_activity.user_activity,
    daily_report.daily_report,
]
checks = [
    *visits_cube_daily.checks,
    *visitor_sketches_daily.checks,
    *visits_cube_weekly.checks,
    *referral_stats.checks,
    *sessions_pending.checks,
    *sessions.checks,
    *sessions_live.checks,
    *sessions_stream.checks,
    *traffic_live.checks,
    *pages_per_visit.checks,
    *users_snapshot.checks,
    *users_by_country.checks,
    *user_activity.checks,
    *daily_report.checks,
]
polls = [*pages_per_visit.polls, *sessions_live.polls]
