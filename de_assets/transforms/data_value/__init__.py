"""Joins, aggregates and sessions."""
