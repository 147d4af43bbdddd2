"""Sensors that start runs when something has arrived."""
