"""What a page allows itself: its own style and script, named by their digests, and nothing from anywhere else."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256


def policy(style: str, script: str = "") -> str:
    """The content security policy of a page with this style, and with this script or none."""
    scripts = f"script-src '{_digest(script)}'; " if script else ""
    return f"default-src 'none'; style-src '{_digest(style)}'; {scripts}base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
