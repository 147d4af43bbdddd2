"""`docs/benchmarks.md`: the machine, the figures, how each was measured, and every single sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.case import Case
from benchmarks.figure import Figure, Verdict
from benchmarks.machine import QUIET_LOAD, QUIET_OTHERS
from benchmarks.measure import Sample, Samples
from benchmarks.record import Record
from benchmarks.table import COLUMNS, cells, markdown_table

COMMAND = "make bench"
_METHOD = f"""\
Written by `{COMMAND}`, which measures all cases, or the ones named in `ARGS` again. Absolute times tell about the machine, so
every bar is about two things measured beside each other: same machine, data and layout, in turns A B A B after a warm-up, and
only after their results were found equal. The figure is the median of the rounds' own figures; the spread is their least and
greatest. Seconds are medians of wall time, in brackets the CPU
time of all processes involved.

A shared machine's speed swings within a round, in CPU seconds as in wall seconds, so that one median may hold a bar by luck.
Rounds go on until the bar lies outside the interval that has the true median in nine of ten cases (it is made from the order of
the rounds alone), or until there are as many as the case allows: the verdict then is *undecided*, which is not *holds*. Fewer
than five rounds have no interval, and are judged by their median."""


def render(records: Sequence[Record], cases: Sequence[Case], image: str, growth: Mapping[str, str]) -> str:
    """The whole document. `image` is the path of the plot of all bars, `growth` of those of single cases by their names,
    all relative to the document."""
    figures = [figure for record in records for figure in record.figures]
    parts = (
        "# Benchmarks",
        _METHOD,
        summary(figures),
        f"![How much of each bar is used]({image})",
        "## Figures",
        markdown_table(COLUMNS, [cells(figure) for figure in figures]),
        "\n".join(f"- {note}" for note in notes(figures)),
        *(f"![{case}: seconds by size]({path})" for case, path in growth.items()),
        "## Machine",
        describe(records),
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
    held = sum(f.verdict is Verdict.HOLDS for f in judged)
    others = (_named(judged, verdict) for verdict in (Verdict.MISSED, Verdict.UNDECIDED))
    return f"**{held} of {len(judged)} bars hold.{''.join(others)}**"


def _named(figures: Sequence[Figure], verdict: Verdict) -> str:
    named = [f"{f.case} ({f.what})" for f in figures if f.verdict is verdict]
    return f" {verdict.value.capitalize()}: {'; '.join(named)}." if named else ""


def describe(records: Sequence[Record]) -> str:
    """The machines as a list, each with its cases; a load that makes figures doubtful is named as such."""
    here: dict[tuple[str, str], list[str]] = {}
    for record in records:
        m = record.machine
        machine = f"{m.cpu}, {m.cores} cores, {m.memory_gib:.0f} GiB of memory, {m.system}"
        versions = ", ".join(f"{name} {version}" for name, version in m.versions.items())
        here.setdefault((machine, versions), []).append(_circumstances(record))
    lines = []
    for (machine, versions), cases in here.items():
        lines += [f"- {machine}; {versions}", *(f"  - {case}" for case in cases)]
    return "\n".join(lines)


def _circumstances(record: Record) -> str:
    m = record.machine
    said = f"{record.case}: {m.date}, load average at the start {m.load:.1f}, others used {m.others:.0%} of the machine"
    if m.is_quiet:
        return said
    return (
        f"{said}. **The machine was not quiet** (load above {QUIET_LOAD}, or others above {QUIET_OTHERS:.0%}). Read the "
        "spread before the figure, and measure again."
    )


def notes(figures: Sequence[Figure]) -> list[str]:
    """What belongs to a figure and fits into no cell."""
    return [f"{f.case}, {f.ours}{f' beside {f.peer}' if f.peer else ''}: {f.note}" for f in figures if f.note]


def _raw(figures: Sequence[Figure]) -> Iterator[tuple[str, str, str]]:
    seen: set[tuple[str, str, str]] = set()
    for figure in figures:
        for name, samples in ((figure.ours, figure.our_samples), (figure.peer, figure.peer_samples)):
            row = (figure.case, name, _rounds(samples))
            if samples and row not in seen:
                seen.add(row)
                yield row


def _rounds(samples: Samples) -> str:
    return ", ".join(f"{s.wall:.2f}{_cpu(s)}" if s.wall >= 0.1 else f"{s.wall:.4f}{_cpu(s)}" for s in samples)


def _cpu(sample: Sample) -> str:
    return f" ({sample.cpu:.2f})" if sample.cpu else ""
