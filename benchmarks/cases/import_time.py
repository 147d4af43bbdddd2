"""How long a person waits before anything of ours begins: the command's help, and the code location.

`de --help` is a process of its own, from its start to its end. For information: importing `de_assets.definitions`, the whole
code location, in a process that does nothing else. Checked: the help names the commands. What Python itself needs to start is
in the note.
"""

from functools import partial
from pathlib import Path
from subprocess import run as run_program
from sys import executable

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import alternate, middle
from benchmarks.workbench import PROJECT, Workbench

BAR = 0.3
HELP, LOCATION, NOTHING = "`de --help`", "`import de_assets.definitions`", "`python -c pass`"


def run(bench: Workbench) -> list[Figure]:
    """Seconds of both."""

    def verify() -> None:
        require_equal("the help (names a command)", True, "patterns" in _said(str(_de()), "--help"))

    samples = alternate(
        {
            HELP: partial(_said, str(_de()), "--help"),
            LOCATION: partial(_said, executable, "-c", "import de_assets.definitions"),
            NOTHING: partial(_said, executable, "-c", "pass"),
        },
        verify=verify,
        rounds=bench.pick(small=2, full=9),
    )
    note = f"Python itself: {middle(samples[NOTHING]):.2f} s"
    return [
        Figure("import_time", "the command's help", Kind.SECONDS, HELP, samples[HELP], bar=BAR, note=note),
        Figure("import_time", "the code location", Kind.SECONDS, LOCATION, samples[LOCATION]),
    ]


def _de() -> Path:
    """The installed command."""
    return Path(executable).with_name("de")


def _said(*command: str) -> str:
    return run_program(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
