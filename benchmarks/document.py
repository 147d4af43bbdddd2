"""`docs/benchmarks.md`: the machine, the figures, how each was measured, and every single sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.case import Case
from benchmarks.figure import Figure, Verdict
from benchmarks.machine import QUIET_LOAD, QUIET_OTHERS, Machine
from benchmarks.measure import Sample
from benchmarks.table import COLUMNS, cells, markdown_table

COMMAND = "make bench"
_METHOD = f"""\
Written by `{COMMAND}`. Absolute times tell about the machine, so every bar is about two things measured beside each other: same
machine, data and layout, in turns A B A B after a warm-up, and only after their results were found equal. The figure is the
median of the rounds' own figures; the spread is their least and greatest. Seconds are medians of wall time, in brackets the CPU
time of all processes involved."""


def render(machine: Machine, figures: Sequence[Figure], cases: Sequence[Case], image: str) -> str:
    """The whole document. `image` is the plot's path, relative to the document."""
    parts = (
        "# Benchmarks",
        _METHOD,
        summary(figures),
        f"![How much of each bar is used]({image})",
        "## Figures",
        markdown_table(COLUMNS, [cells(figure) for figure in figures]),
        "\n".join(f"- {note}" for note in notes(figures)),
        "## Machine",
        describe(machine),
        "## How each case is measured",
        *(f"**{case.name}.** {' '.join(case.how.split())}" for case in cases),
        "## Every sample",
        "Wall seconds (CPU seconds) of each round, in the order in which they were taken.",
        markdown_table(("case", "contender", "rounds"), list(_raw(figures))),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(figures: Sequence[Figure]) -> str:
    """One sentence about the bars."""
    judged = [f for f in figures if f.bar is not None]
    missed = [f"{f.case} ({f.what})" for f in judged if f.verdict is Verdict.MISSED]
    named = f" Missed: {'; '.join(missed)}." if missed else ""
    return f"**{len(judged) - len(missed)} of {len(judged)} bars hold.{named}**"


def describe(machine: Machine) -> str:
    """The machine as a list; a load that makes figures doubtful is named as such."""
    lines = [
        f"- {machine.cpu}, {machine.cores} cores, {machine.memory_gib:.0f} GiB of memory, {machine.system}",
        f"- {', '.join(f'{name} {version}' for name, version in machine.versions.items())}",
        f"- {machine.date}, load average at the start {machine.load:.1f}",
    ]
    if machine.others:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in machine.others.items())
        lines.append(f"- share of the machine that others used while a case was measured: {shares}")
    if not machine.is_quiet:
        lines.append(
            f"- **The machine was not quiet** (load above {QUIET_LOAD}, or others above {QUIET_OTHERS:.0%}). Read the spread "
            "before the figure, and measure again."
        )
    return "\n".join(lines)


def notes(figures: Sequence[Figure]) -> list[str]:
    """What belongs to a figure and fits into no cell."""
    return [f"{f.case}, {f.ours} beside {f.peer}: {f.note}" for f in figures if f.note]


def _raw(figures: Sequence[Figure]) -> Iterator[tuple[str, str, str]]:
    seen: set[tuple[str, str, str]] = set()
    for figure in figures:
        for name, samples in ((figure.ours, figure.our_samples), (figure.peer, figure.peer_samples)):
            row = (figure.case, name, _rounds(samples))
            if samples and row not in seen:
                seen.add(row)
                yield row


def _rounds(samples: Sequence[Sample]) -> str:
    return ", ".join(f"{s.wall:.2f} ({s.cpu:.2f})" for s in samples)
