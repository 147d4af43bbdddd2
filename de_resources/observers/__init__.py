"""Looking at data: what a column holds, in a few figures. Online, in the write's own pass; offline, in a pass of its own."""

from __future__ import annotations

from collections.abc import Mapping

ONLINE_OBSERVER: Mapping[str, str] = {"writer": "de_resources.observers.online:OnlineObserver"}
"""Metadata of an asset whose writes are to be measured; `observe` says more (`de_resources.observers.online`)."""
