"""The report of `make test` says which pattern's tests take more than its budget, and which tests are the dearest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import timings


def line(name: str, cpu: float, services: float = 0.0, patterns: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "kind": "test",
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
    lines = [line("a::dear@a group", 15.0, 5.5, ("merger",)), line("a::cheap", 19.9, 0.0, ("proxy",))]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    timings.main(tmp_path, tmp_path / "report")
    assert json.loads((tmp_path / "report.json").read_text())["patterns_over_budget"] == {"merger": 20.5}
    rows = (tmp_path / "report.md").read_text().splitlines()
    assert "| merger | 20.5 | missed |" in rows
    assert "| proxy | 19.9 | held |" in rows
    dearest = rows[rows.index("| dearest tests | wall s | CPU s | of services |") + 2 :]
    assert [row.split(" | ")[0] for row in dearest] == ["| a::dear", "| a::cheap"]
