"""The report of `make test` says which pattern's tests take more than its budget, and which tests are the dearest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import timings


def line(
    name: str, cpu: float, services: float = 0.0, patterns: tuple[str, ...] = (), kind: str = "test"
) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "wall": 1.0,
        "cpu": cpu,
        "services": services,
        "started": {},
        "patterns": list(patterns),
    }


def test_a_test_of_two_patterns_counts_for_each_with_a_half() -> None:
    lines = [line("a::1", 6.0, 2.0, ("merger", "proxy")), line("a::2", 1.0, 0.0, ("proxy",)), line("a::3", 9.0)]
    assert timings.seconds_of_patterns(lines) == {"proxy": 5.0, "merger": 4.0}


def test_the_report_names_what_is_over_its_budget(tmp_path: Path) -> None:
    lines = [
        line("a::dear@a group", 15.0, 5.0, ("merger",)),
        line("a::cheap", 39.9, 0.0, ("proxy",)),
        line("world", 21.0, 0.0, ("merger",), "fixture"),
    ]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    timings.main(tmp_path, tmp_path / "report")
    assert json.loads((tmp_path / "report.json").read_text())["patterns_over_budget"] == {"merger": 20.5}, (
        "two cores take 41 s"
    )
    rows = (tmp_path / "report.md").read_text().splitlines()
    assert "| merger | 41.0 | 20.5 | missed |" in rows
    assert "| proxy | 39.9 | 19.9 | held |" in rows
    dearest = rows[rows.index("| dearest tests | wall s | CPU s | of services |") + 2 :]
    assert [row.split(" | ")[0] for row in dearest] == ["| a::cheap", "| a::dear"]


class _Setup:
    """What the plugin asks of a fixture."""

    argname = "world"

    def __init__(self, scope: str) -> None:
        self.scope = scope


def test_what_a_module_shares_counts_for_who_asks_first_and_what_all_share_for_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "1.jsonl").open("w", buffering=1) as file:
        monkeypatch.setattr(timings, "_state", {"file": file, "cpu": 0.0, "patterns": {"merger"}})
        for scope in ("module", "class", "session", "function"):
            setup = timings.pytest_fixture_setup(_Setup(scope))  # type: ignore[arg-type]
            next(setup)
            with pytest.raises(StopIteration):
                setup.send(None)
    assert [each["patterns"] for each in timings.lines_of(tmp_path)] == [["merger"], ["merger"], []]


def test_what_importing_the_tests_takes_counts_for_none_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first one of each process had it all, some fifteen seconds, and its patterns with it."""
    spent = iter([15.0, 17.0])
    with (tmp_path / "1.jsonl").open("w", buffering=1) as file:
        monkeypatch.setattr(timings, "_state", {"file": file, "cpu": 1.0})
        monkeypatch.setattr(timings, "_cpu_seconds", lambda: next(spent))
        monkeypatch.setattr(timings, "_seconds_of_services", lambda: 0.0)
        monkeypatch.setattr(timings, "_SHORT", -1.0)
        timings.pytest_collection_finish()
        measured = timings._measured("test", "a::first")
        next(measured)
        with pytest.raises(StopIteration):
            measured.send(None)
    assert [each["cpu"] for each in timings.lines_of(tmp_path)] == [2.0]
