"""Replicating folders, topics and tables into another environment, as they are or by allow-list. Knows no blog."""
