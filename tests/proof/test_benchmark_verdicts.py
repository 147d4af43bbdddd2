"""When a bar holds: not by luck. And figures that have no peer: of a run, of the suite, of a start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import comb, isnan
from pathlib import Path
from random import Random

import pytest

from benchmarks.cases.make_run import at_work, lasting, peak_of_run
from benchmarks.cases.make_test import figure_of
from benchmarks.document import render, summary
from benchmarks.figure import CERTAINTY, Figure, Kind, Verdict, median_interval
from benchmarks.machine import Machine
from benchmarks.measure import Sample, Samples, alternate
from benchmarks.plot import draw
from benchmarks.record import Record, load, save
from benchmarks.table import cells

MACHINE = Machine("EPYC", 2, 23.4, "Linux x86_64", {"Python": "3.11"}, "2026-01-05", load=0.4)


def samples(*walls: float) -> Samples:
    return tuple(Sample(wall, 2 * wall) for wall in walls)


def ratio(*rounds: float, bar: float | None = 1.3) -> Figure:
    """A figure whose rounds have these ratios."""
    ones = samples(*(1.0 for _ in rounds))
    return Figure("rules", "1 row", Kind.RATIO, "with", samples(*rounds), "without", ones, bar)


@pytest.mark.parametrize("count", range(1, 40))
def test_the_interval_has_the_median_as_often_as_it_says_and_no_narrower_one_does(count: int) -> None:
    """All ways in which a coin falls `count` times: how many values lie below the true median."""
    interval = median_interval([float(n) for n in range(count)])
    chances = [comb(count, below) / 2**count for below in range(count + 1)]

    def certainty(beyond: int) -> float:
        """Of the interval from the value with `beyond` others below it to the one with as many above it."""
        return sum(chances[beyond + 1 : count - beyond])

    if interval is None:
        assert certainty(0) < CERTAINTY
        return
    beyond = int(interval[0])
    assert interval == (beyond, count - 1 - beyond)
    assert certainty(beyond) >= CERTAINTY
    assert beyond + 1 > count - 2 - beyond or certainty(beyond + 1) < CERTAINTY


def test_the_order_of_rounds_and_the_size_of_outliers_are_no_matter() -> None:
    assert median_interval([9.0, 1.0, 3.0, 2.0, 4.0]) == (1.0, 9.0)
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 100.0]
    assert all(median_interval(Random(seed).sample(values, 8)) == (1.1, 1.6) for seed in range(20))  # noqa: S311


@pytest.mark.parametrize(
    ("rounds", "verdict", "decided"),
    [
        ((1.0, 1.1, 1.2, 1.1, 1.29), Verdict.HOLDS, True),
        ((1.0, 1.1, 1.2, 1.1, 1.31), Verdict.UNDECIDED, False),  # its median alone would hold
        ((1.4, 1.5, 1.6, 1.2, 1.9), Verdict.UNDECIDED, False),
        ((1.4, 1.5, 1.6, 1.31, 1.9), Verdict.MISSED, True),
        ((1.0, 1.1, 1.2, 1.1, 1.2, 1.1, 1.2, 9.9), Verdict.HOLDS, True),  # one disturbed round of eight is none
        ((1.0, 1.1, 9.9), Verdict.HOLDS, False),  # too few to tell: the median
        ((1.31,), Verdict.MISSED, False),
        ((), Verdict.UNDECIDED, False),
    ],
)
def test_a_bar_holds_where_the_interval_does(rounds: tuple[float, ...], verdict: Verdict, decided: bool) -> None:
    figure = ratio(*rounds)
    assert (figure.verdict, figure.is_decided) == (verdict, decided)
    rate = Figure("rate", "1 row", Kind.RATE, "ours", figure.our_samples, bar=1 / 1.3, units=1)
    assert (rate.verdict, rate.is_decided) == (verdict, decided), "more is better there"
    assert ratio(*rounds, bar=None).is_decided


def test_rounds_go_on_until_they_are_enough_and_not_beyond_the_most() -> None:
    calls: list[str] = []

    def measured(stop: int) -> Mapping[str, Samples]:
        calls.clear()
        return alternate(
            {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")},
            verify=lambda: None,
            rounds=2,
            at_most=5,
            enough=lambda taken: len(taken["a"]) == len(taken["b"]) >= stop,
        )

    for stop, rounds in ((0, 2), (2, 2), (4, 4), (9, 5)):
        assert [len(taken) for taken in measured(stop).values()] == [rounds, rounds]
        assert "".join(calls) == "ab" * (rounds + 1), "a warm-up before"


def test_undecided_bars_are_named_and_do_not_count_as_held() -> None:
    unsure = replace(ratio(1.0, 1.1, 1.2, 1.1, 1.31), case="backfill")
    missed = replace(ratio(2.0), case="file_loader")
    assert summary([ratio(1.0), missed, unsure, ratio(bar=None)]) == (
        "**1 of 3 bars hold. Missed: file_loader (1 row). Undecided: backfill (1 row).**"
    )


def test_the_spread_says_how_many_rounds_there_were_and_where_the_median_is() -> None:
    assert cells(ratio(1.0, 1.1, 1.2, 1.1, 1.31))[-1] == "1.00x to 1.31x in 5 rounds; median in [1.00x, 1.31x]"
    assert cells(ratio(1.0, 1.2))[-1] == "1.00x to 1.20x in 2 rounds"


def test_a_run_has_seconds_and_memory() -> None:
    run = Figure("make_run", "once", Kind.SECONDS, "`de run`", samples(140.0, 150.0, 145.0), bar=150.0)
    memory = replace(run, kind=Kind.MEMORY, bar=4.0, gib=(3.5, 4.5, 3.75))
    assert (run.value, run.verdict, memory.value, memory.verdict) == (145.0, Verdict.HOLDS, 3.75, Verdict.HOLDS)
    assert cells(run)[3:6] == ("none", "145.00 s", "≤ 150 s")
    assert cells(memory)[3:6] == ("none", "3.75 GiB", "≤ 4 GiB")
    assert replace(memory, gib=(4.1,)).verdict is Verdict.MISSED


def test_the_suite_is_judged_by_its_last_report(tmp_path: Path) -> None:
    report = {
        "wall_seconds": 1100.5,
        "parts": {"unit": 170.2, "services": 600.0},
        "tests": 1234,
        "date": "2026-01-05",
        "commit": "0123456789abcdef0123",
    }
    figure = figure_of(report)
    assert (figure.value, figure.verdict) == (1100.5, Verdict.HOLDS)
    assert figure.note == "1,234 tests on 2026-01-05, commit 0123456789ab: unit 170 s, services 600 s"
    assert cells(figure)[2:6] == ("tests: 1100.50 s", "none", "1,100.50 s", "≤ 1200 s")
    assert figure_of({**report, "wall_seconds": 1200.1}).verdict is Verdict.MISSED

    absent = figure_of(None)
    assert isnan(absent.value)
    assert absent.verdict is Verdict.UNDECIDED
    assert "`make test`" in absent.note
    assert cells(absent)[4] == ""
    record = Record("make_test", MACHINE, (figure, absent))
    text = render([record], [], "x.png", {})
    assert "**1 of 2 bars hold. Undecided: make_test (the whole suite).**" in text
    assert "- make_test, tests: no report yet" in text
    save(tmp_path / "records.json", [record, Record("make_run", MACHINE, (replace(figure, gib=(1.0, 2.0)),))])
    assert load(tmp_path / "records.json")["make_test"] == record
    assert load(tmp_path / "records.json")["make_run"].figures[0].gib == (1.0, 2.0)
    draw([figure, absent], tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")


HOLD = "import time; kept = bytearray(b'x' * 60_000_000); print('held', flush=True); input()"
NESTED = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {HOLD!r}]).returncode)"


def test_a_supervisor_whom_this_process_has_adopted_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (tmp_path / "run" / "supervisord.pid").write_text(str(child.pid))
        assert [process.pid for process in at_work(tmp_path)].count(child.pid) == 1
        child.communicate(b"\n")


def test_the_memory_of_children_and_of_theirs_is_seen_at_its_greatest(tmp_path: Path) -> None:
    with peak_of_run(tmp_path, every=0.05) as peak:
        child = subprocess.Popen(
            [sys.executable, "-c", NESTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        _look_twice(peak)
        child.communicate("\n")
    assert max(peak) * 2**30 > 60_000_000


def test_the_memory_of_services_is_seen_though_they_are_nobodys_children(tmp_path: Path) -> None:
    end, ours = os.pipe()
    hold = "import sys; kept = bytearray(b'x' * 60_000_000); print('held', file=sys.stderr, flush=True); input()"
    start = f"import os, subprocess, sys; held = subprocess.Popen([sys.executable, '-c', {hold!r}], stdin={end}, "
    start += "stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True); "
    start += "held.stderr.readline(); print(held.pid)"
    started = subprocess.run(
        [sys.executable, "-c", start], pass_fds=(end,), capture_output=True, text=True, check=True, timeout=60
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "supervisord.pid").write_text(started.stdout)
    with peak_of_run(tmp_path, every=0.05) as peak:
        _look_twice(peak)
    os.close(ours)
    assert max(peak) * 2**30 > 60_000_000


def _look_twice(peak: list[float]) -> None:
    """The second of two looks began while it was held."""
    looked = len(peak)
    while len(peak) < looked + 2:
        time.sleep(0.05)


def test_every_kind_has_cells() -> None:
    for kind, rounds in product(Kind, (0, 1, 5)):
        figure = replace(ratio(*[1.0] * rounds), kind=kind, units=1, gib=(1.0,) * rounds)
        assert len(cells(figure)) == 8


def test_what_one_look_found_is_no_peak() -> None:
    """A child that is about to become another program has its parent's memory."""
    assert lasting([0.0, 1.0, 3.5, 3.4, 5.6, 3.6, 3.6, 0.5]) == 3.6
    assert lasting([0.0]) == 0.0
