"""Where the pages lie inside the site."""

from __future__ import annotations

import re
from hashlib import blake2b

INDEX = "index.html"


def page_path(name: str) -> str:
    """Where the page of a dataset lies in the site. Names that are no names of files get one of their own."""
    parts = [_file(part) for part in name.split("/")]
    return f"{'/'.join(parts)}.html"


def _file(part: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", part)[:80]
    if plain == part and plain.strip(".") and not plain.startswith(".") and plain != "index":
        return plain
    return f"{plain.lstrip('.')}-{blake2b(part.encode(), digest_size=4).hexdigest()}"
