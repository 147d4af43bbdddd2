"""What the declarations of untouched replicas have in common."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from de_assets.dataset import pattern_tags


def replica(name: str, *, owner: str, kind: str, patterns: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments for the asset `staging/<name>` that writes its replica itself, without an IO manager."""
    return {
        "key": dg.AssetKey(["staging", name]),
        "owners": [owner],
        "group_name": "staging",
        "kinds": {kind},
        "tags": pattern_tags(*patterns),
    }
