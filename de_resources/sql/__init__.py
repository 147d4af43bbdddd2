"""Typed literals, quoted names and balanced expressions: the only way in which values and names get into SQL."""
