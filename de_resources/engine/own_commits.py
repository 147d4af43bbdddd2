"""By what the commits of this process's sessions are known where no writer has stamped them.

Delta takes a commit's user metadata from the write's options, else from the session: whatever code writes around the
IO managers carries this mark, and that of nobody else.
"""

from __future__ import annotations

import os
import time
from uuid import uuid4

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The session's setting."""


_marks: dict[int, tuple[str, float]] = {}
"""By process: a forked one has a mark of its own."""


def session_mark() -> str:
    """The mark of this process."""
    # No JSON: a stamp of the platform is an object, and this is not to be taken for one.
    return _marks.setdefault(os.getpid(), (f"session {uuid4().hex}", time.time()))[0]


def marked_since() -> float | None:
    """Since when this process has sessions with its mark; None: it has opened none."""
    known = _marks.get(os.getpid())
    return known[1] if known else None
