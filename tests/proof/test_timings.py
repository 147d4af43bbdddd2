"""The report of `make test` says which pattern's tests take more than its budget, and which tests are the dearest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
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
        "patterns": {pattern: 1 / len(patterns) for pattern in patterns},
    }


def test_a_test_of_two_patterns_counts_for_each_with_a_half() -> None:
    lines = [line("a::1", 6.0, 2.0, ("merger", "proxy")), line("a::2", 1.0, 0.0, ("proxy",)), line("a::3", 9.0)]
    assert timings.seconds_of_patterns(lines) == {"proxy": 5.0, "merger": 4.0}


def test_parts_run_side_by_side(tmp_path: Path) -> None:
    parts = [line(name, 0.0, kind="session") | {"wall": wall} for name, wall in (("engine", 61.0), ("services", 75.0))]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in parts))
    timings.main(tmp_path, tmp_path / "report")
    told = json.loads((tmp_path / "report.json").read_text())
    assert (told["wall_seconds"], told["parts"]) == (75.0, {"engine": 61.0, "services": 75.0})


def test_the_report_names_what_is_over_its_budget(tmp_path: Path) -> None:
    lines = [
        line("a::dear@a group", 15.0, 5.0, ("merger",)),
        line("a::cheap", 39.9, 0.0, ("proxy",)),
        line("world", 21.0, 0.0, ("merger",), "fixture"),
        line("a::other", 4.0, 2.0, ("full_loader",)),
    ]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    timings.main(tmp_path, tmp_path / "report")
    assert json.loads((tmp_path / "report.json").read_text())["patterns_over_budget"] == {"merger": 20.5}, (
        "two cores take 41 s"
    )
    rows = (tmp_path / "report.md").read_text().splitlines()
    assert "| merger | 41.0 | 20.5 | missed |" in rows
    assert "| proxy | 39.9 | 19.9 | held |" in rows
    assert "| idempotency | 2 | 81 | 40 | Merger, 20 |" in rows
    assert "| data ingestion | 1 | 6 | 3 | Full Loader, 3 |" in rows
    dearest = rows[rows.index("| dearest tests | wall s | CPU s | of services |") + 2 :]
    assert [row.split(" | ")[0] for row in dearest] == ["| a::cheap", "| a::dear", "| a::other"]


WORLDS = """
import pytest

@pytest.fixture(scope="module")
def world(): pass

@pytest.fixture(scope="session")
def engine(): pass

@pytest.mark.pattern("merger")
def test_first(engine, world): pass

@pytest.mark.pattern("merger", "proxy")
def test_second(world): pass

def test_of_no_pattern(world): pass

@pytest.mark.pattern("proxy")
def test_without(): pass
"""


def test_what_a_module_shares_counts_for_who_uses_it_and_what_all_share_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "test_worlds.py").write_text(WORLDS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    pattern: of it\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "timings", "--rootdir", str(tmp_path), str(tmp_path)]
    places = {"PYTHONPATH": str(Path(timings.__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {**os.environ, **places, "DE_TEST_TIMINGS": str(tmp_path / "timings")}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    found = {each["name"]: each["patterns"] for each in timings.lines_of(tmp_path / "timings")}
    assert found["engine"] == {}
    assert found["world"] == {"merger": pytest.approx(1.5 / 3), "proxy": pytest.approx(0.5 / 3)}
    assert found["test_worlds.py::test_second"] == {"merger": 0.5, "proxy": 0.5}
    assert found["test_worlds.py::test_of_no_pattern"] == {}


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
        timings.pytest_collection_finish(SimpleNamespace(items=[]))  # type: ignore[arg-type]
        measured = timings._measured("test", "a::first")
        next(measured)
        with pytest.raises(StopIteration):
            measured.send(None)
    assert [each["cpu"] for each in timings.lines_of(tmp_path)] == [2.0]
