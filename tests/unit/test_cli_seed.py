"""`de seed`: what it says of a log that it landed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

LOG = Path(__file__).resolve().parents[3] / "shared" / "data" / "blog_access.log"


@pytest.mark.skipif(not LOG.exists(), reason=f"the shared log ../shared/data/{LOG.name} is not on this machine")
def test_a_real_log_is_told_in_figures(run_de: Callable[..., str]) -> None:
    """What the graph makes of such a log is asked in `tests/soak/test_real_log.py`."""
    output = run_de("seed", "--log", str(LOG))
    assert "10,000 lines read: 9,999 visits in 84 hours, 1 dead letter(s)" in output
    assert "blog_access.log line 8899" in output
