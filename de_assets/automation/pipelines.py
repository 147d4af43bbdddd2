"""Which runs go one at a time and in the order of their partitions, and which side by side, whoever launches them."""

SESSIONS = "sessions"
"""A day continues the sessions that the day before has left open."""

PIPELINES = (SESSIONS,)

LANDING = "landing"
"""The pool of what is loaded hour by hour from outside: each run writes hours of its own. The limit: `dagster.yaml`."""
