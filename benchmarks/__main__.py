"""The command: `python -m benchmarks [CASE…] [--size small|full] [--anyway]`."""

import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from benchmarks.case import Case
from benchmarks.cases import CASES
from benchmarks.document import notes, render, summary
from benchmarks.figure import Figure, Verdict
from benchmarks.machine import Machine, MachineBusy
from benchmarks.measure import Meter
from benchmarks.plot import draw, draw_growth, growing
from benchmarks.record import Record, load, save
from benchmarks.table import cells, terminal_table
from benchmarks.workbench import PROJECT, Size, workbench
from de_resources.errors import PlatformError

DOCUMENT = PROJECT / "docs" / "benchmarks.md"
RECORDS = DOCUMENT.with_suffix(".json")
IMAGES = PROJECT / "docs" / "images"
NAMES = [case.name for case in CASES]
console = Console(
    width=None if sys.stdout.isatty() else 160, markup=False, emoji=False
)  # a log has no width of its own
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[CASE]…", help=f"Any of {', '.join(NAMES)}.")] = None,
    size: Annotated[Size, typer.Option(help="`small` only shows that the cases work.")] = Size.FULL,
    anyway: Annotated[bool, typer.Option("--anyway", help="Measure although the machine is busy.")] = False,
) -> None:
    """Measure, print the table, and after a run of full size write docs/benchmarks.md.

    Ends with status 1 when a bar is missed, or could not be shown to hold.
    """
    unknown = set(names or ()) - set(NAMES)
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    try:
        figures = _measure(names or NAMES, size, anyway)
    except PlatformError as error:
        console.print(Text.assemble((type(error).__name__, "red"), f": {error}"))
        raise typer.Exit(2) from None
    console.print(terminal_table(figures))
    for note in notes(figures):
        console.print(note, highlight=False)
    console.print(summary(figures).strip("*"))
    raise typer.Exit(1 if any(f.verdict in (Verdict.MISSED, Verdict.UNDECIDED) for f in figures) else 0)


def _measure(names: list[str], size: Size, anyway: bool) -> list[Figure]:
    records = list(_records([case for case in CASES if case.name in names], size, anyway))
    if size is Size.FULL:
        _publish(records)
    else:
        console.print("docs/benchmarks.md is left as it is: only runs of full size change it.")
    return [figure for record in records for figure in record.figures]


def _records(cases: list[Case], size: Size, anyway: bool) -> Iterator[Record]:
    with workbench(size) as bench:
        machine = Machine.here(bench.settings)
        console.print(f"{machine.cpu}, {machine.cores} cores, load average {machine.load:.1f}", highlight=False)
        if not machine.is_quiet:
            busy = MachineBusy(machine.load)
            if not anyway:
                raise busy
            console.print(Text(str(busy), "yellow"))
        for number, case in enumerate(cases, start=1):
            with console.status(f"Measuring {case.name} ({number} of {len(cases)}) …"):
                meter = Meter(bench.servers)
                figures = tuple(case.run(bench))
                others = meter.others(bench.servers)
            console.print(f"{case.name}: others used {others:.0%} of the machine", highlight=False)
            for figure in figures:
                console.print("  " + "; ".join(cells(figure)[1:]), highlight=False)
            yield Record(case.name, replace(machine, others=others), figures)


def _publish(records: list[Record]) -> None:
    """The document, from these records and those of the other cases' last runs."""
    known = load(RECORDS) | {record.case: record for record in records}
    ordered = [known[case.name] for case in CASES if case.name in known]
    save(RECORDS, ordered)
    bars = IMAGES / "benchmarks.png"
    draw([figure for record in ordered for figure in record.figures], bars)
    growth = {}
    for record in ordered:
        if figures := growing(record.figures):
            growth[record.case] = IMAGES / f"{record.case}.png"
            draw_growth(figures, growth[record.case])
    paths = {case: _from_document(image) for case, image in growth.items()}
    DOCUMENT.write_text(render(ordered, CASES, _from_document(bars), paths))
    console.print(f"Written: {DOCUMENT.relative_to(PROJECT)}")


def _from_document(image: Path) -> str:
    return str(image.relative_to(DOCUMENT.parent))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave by the way that stops servers and removes folders
    warnings.simplefilter("ignore")  # the framework's notes on previews
    app()
