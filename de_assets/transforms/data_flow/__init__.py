"""Transforms of the data-flow patterns."""
