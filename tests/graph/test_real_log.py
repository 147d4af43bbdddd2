"""A real blog's access log, end to end. The log is not part of the project: skipped where its folder is absent."""

from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
LOG = PROJECT.parent / "shared" / "data" / "blog_access.log"

pytestmark = pytest.mark.skipif(
    not LOG.exists(), reason=f"the shared log ../shared/data/{LOG.name} is not on this machine"
)


def test_the_whole_log_becomes_the_known_figures(run_de: Callable[..., str]) -> None:
    """`de run --log` in a process of its own: another calendar needs another process."""
    output = run_de("run", "--once", "--without-services", "--log", str(LOG))
    for figure in (
        "10,000 lines read: 9,999 visits in 84 hours, 1 dead letter(s)",
        "10,000 records, 1 dead letter(s), 9,999 understood in 84 hourly partitions, 19 duplicate(s) removed",
        "2015-05-17 1,632, 2015-05-18 2,893, 2015-05-19 2,896, 2015-05-20 2,578",
        "blog_access.log line 8899",
    ):
        assert figure in output
