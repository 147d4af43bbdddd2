"""The pipelines whose runs go one at a time and in the order of their partitions, whoever launches them."""

SESSIONS = "sessions"
"""A day continues the sessions that the day before has left open."""

PIPELINES = (SESSIONS,)
