"""The benchmarks' pure parts: from samples to figures, verdicts, cells and the document. Nothing here is timed."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.case import Case, ResultsDiffer, require_equal
from benchmarks.document import render, summary
from benchmarks.figure import Figure, Kind, Verdict
from benchmarks.machine import Machine
from benchmarks.measure import Sample, alternate
from benchmarks.plot import draw_growth, growing
from benchmarks.record import Record, load, save
from benchmarks.table import COLUMNS, amount, bar, cells, markdown_table, terminal_table


def _samples(*walls: float) -> tuple[Sample, ...]:
    return tuple(Sample(wall, 2 * wall) for wall in walls)


RATIO = Figure(
    "rules", "1 row", Kind.RATIO, "with", _samples(2.0, 3.0, 9.0), "without", _samples(2.0, 2.0, 3.0), 1.6, note="a | b"
)
EXTRA = replace(RATIO, kind=Kind.EXTRA, bar=0.5)
RATE = Figure("generator", "lines", Kind.RATE, "simulator", _samples(1.0, 2.0, 4.0), bar=50.0, units=100)
MACHINE = Machine("EPYC", 2, 23.4, "Linux x86_64", {"Python": "3.11"}, "2026-01-05", load=0.4)
RECORD = Record("rules", MACHINE, (RATIO, EXTRA, RATE))


def test_a_figure_is_the_median_of_pairs_and_not_a_pair_of_medians() -> None:
    assert RATIO.per_round == (1.0, 1.5, 3.0)
    assert (RATIO.value, RATIO.spread) == (1.5, (1.0, 3.0))
    assert (EXTRA.value, EXTRA.spread) == (1.0, (0.0, 6.0))
    assert (RATE.value, RATE.spread) == (50.0, (25.0, 100.0))


def test_rounds_without_a_partner_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _ = replace(RATIO, peer_samples=_samples(1.0)).value


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (RATIO, Verdict.HOLDS),
        (replace(RATIO, bar=1.5), Verdict.HOLDS),
        (replace(RATIO, bar=1.49), Verdict.MISSED),
        (replace(RATIO, bar=None), Verdict.INFORMATION),
        (EXTRA, Verdict.MISSED),
        (replace(EXTRA, bar=1.0), Verdict.HOLDS),
        (RATE, Verdict.HOLDS),
        (replace(RATE, bar=50.1), Verdict.MISSED),
    ],
)
def test_less_is_better_except_for_a_rate(figure: Figure, verdict: Verdict) -> None:
    assert figure.verdict is verdict
    if figure.bar is not None:
        assert (figure.share_of_bar(figure.value) <= 1) is (verdict is Verdict.HOLDS)


def test_amounts_and_bars_have_units() -> None:
    assert [amount(Kind.RATIO, 1.234), amount(Kind.EXTRA, -0.5)] == ["1.23x", "-0.50 s"]
    assert [amount(Kind.RATE, rate) for rate in (1234.5, 10.2, 0.857)] == ["1,234/s", "10/s", "0.86/s"]
    assert [bar(RATIO), bar(EXTRA), bar(RATE), bar(replace(RATE, bar=None))] == ["≤ 1.6x", "≤ 0.5 s", "≥ 50/s", ""]


def test_cells_show_both_raw_numbers_beside_the_figure() -> None:
    assert cells(RATIO) == (
        "rules", "1 row", "with: 3.00 s (6.00)", "without: 2.00 s (4.00)", "1.50x", "≤ 1.6x", "holds",
        "1.00x to 3.00x in 3 rounds",
    )  # fmt: skip
    assert cells(RATE)[3] == "none"
    once = replace(RATIO, our_samples=_samples(1.0), peer_samples=_samples(2.0))
    assert cells(once)[-1] == "measured once"


def test_a_pipe_does_not_break_a_markdown_row() -> None:
    assert markdown_table(["a"], [["x|y"]]) == "| a |\n| --- |\n| x\\|y |"


def test_the_terminal_shows_every_figure() -> None:
    console = Console(width=200, file=StringIO())
    console.print(terminal_table([RATIO, EXTRA, RATE]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(word in text for word in (*COLUMNS, "1.50x", "+1.00 s", "50/s", "holds", "missed"))


def test_the_document_has_machine_method_figures_and_every_sample() -> None:
    case = Case("rules", "Two writes\nside by side.", lambda _bench: [])
    text = render([RECORD], [case], "images/benchmarks.png", {"rules": "images/rules.png"})
    assert "**2 of 3 bars hold. Missed: rules (1 row).**" in text
    assert "](images/benchmarks.png)" in text
    assert "](images/rules.png)" in text
    assert "EPYC, 2 cores, 23 GiB of memory" in text
    assert "Python 3.11" in text
    assert "load average at the start 0.4" in text
    assert "**rules.** Two writes side by side." in text
    assert "- rules, with beside without: a | b" in text
    assert text.count("| rules | with | 2.00 (4.00), 3.00 (6.00), 9.00 (18.00) |") == 1
    assert "`make bench`" in text
    assert "not quiet" not in text


def test_a_busy_machine_is_named_in_the_document_beside_its_case() -> None:
    busy = replace(RECORD, machine=replace(MACHINE, load=3.0))
    disturbed = Record("backfill", replace(MACHINE, others=0.31), ())
    for record in (busy, disturbed):
        assert "The machine was not quiet" in render([record], [], "x.png", {})
    lines = render([RECORD, disturbed], [], "x.png", {}).splitlines()
    assert [line for line in lines if "not quiet" in line] == [line for line in lines if "- backfill:" in line]
    assert sum("EPYC" in line for line in lines) == 1


def test_growth_is_drawn_from_figures_of_several_sizes_and_from_nothing_else(tmp_path: Path) -> None:
    few, many = replace(RATIO, units=10), replace(RATIO, units=1_000)
    assert growing([many, RATIO, few, RATE]) == [few, many]
    assert growing([few, RATE]) == growing([few, few]) == growing([RATIO, RATE]) == []
    third = replace(few, ours="in another way")
    assert growing([many, third, few]) == [third, few, many]
    draw_growth([few, third, many, replace(many, ours=third.ours)], tmp_path / "images" / "rules.png")
    assert (tmp_path / "images" / "rules.png").read_bytes().startswith(b"\x89PNG")


def test_a_record_survives_the_file(tmp_path: Path) -> None:
    file = tmp_path / "benchmarks.json"
    assert load(file) == {}
    save(file, [RECORD])
    assert load(file) == {"rules": RECORD}


def test_the_summary_counts_judged_figures_only() -> None:
    assert summary([RATIO, replace(RATIO, bar=None), RATE]) == "**2 of 2 bars hold.**"


def test_contenders_take_turns_after_an_untimed_round_that_is_verified() -> None:
    calls: list[str] = []
    samples = alternate(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")},
        verify=lambda: calls.append("verified"),
        before=lambda: calls.append("-"),
        rounds=2,
    )
    assert "".join(calls) == "-a-bverified-a-b-a-b"
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 2, "b": 2}
    assert all(s.wall >= 0 for taken in samples.values() for s in taken)


def test_different_results_end_the_measuring() -> None:
    require_equal("two tables", 1, 1)
    with pytest.raises(ResultsDiffer, match="Nothing was measured"):
        require_equal("two tables", 1, 2)
