"""No test touches the developer's data, nor reads its calendar."""

import subprocess
import sys
from pathlib import Path

from processes import OWN_PROJECT

from de_assets.calendar import DEFAULT, Calendar, CalendarOrigin
from de_resources.settings import Settings

TESTS = Path(__file__).resolve().parent.parent
IMPORT = "import conftest; import de_assets.calendar as c; print(c.Calendar.load()); conftest.pytest_unconfigure()"


def test_what_conftest_modules_import_reads_no_home_but_the_tests_own(tmp_path: Path) -> None:
    """The graph is imported by a conftest of a folder below, long before any hook runs."""
    theirs = Settings.from_environment({"DE_HOME": str(tmp_path)})
    Calendar.parse("2031-01-01T00/2031-01-02T00").save(theirs, CalendarOrigin.LOGS)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=TESTS,
        env={"DE_HOME": str(tmp_path), **OWN_PROJECT},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(DEFAULT)
