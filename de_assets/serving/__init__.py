"""Serving: what other systems read where they read, written in transactions."""

from de_assets.serving import daily_traffic, users_snapshot, visits_reduced

assets = [daily_traffic.served_traffic, users_snapshot.users_snapshot, visits_reduced.visits_reduced]
