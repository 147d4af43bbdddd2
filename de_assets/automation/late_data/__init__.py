"""Partitions whose sources changed after they were computed."""
