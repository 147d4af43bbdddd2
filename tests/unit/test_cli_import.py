"""What the command line loads when it starts."""

import subprocess
import sys

from waiting import PATIENCE


def test_the_commands_do_not_fix_the_calendar() -> None:
    """Partitions follow the calendar that is in force when they are imported; `de run --log` records one first."""
    program = "import sys, de_assets.cli.application; sys.exit('de_assets.partitions' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr.decode()
