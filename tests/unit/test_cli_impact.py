"""`de impact` and `de trace` as people type them, in a home in which nothing has run yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from de_assets.cli import trace
from de_assets.cli.application import application
from de_assets.cli.terminal import console
from de_resources.tracing.makers import Maker
from de_resources.tracing.trace import Traced, TracedRow


@pytest.fixture
def new_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def de(*arguments: str) -> Result:
    return CliRunner().invoke(application(), list(arguments))


@pytest.mark.usefixtures("new_home")
@pytest.mark.pattern("dataset_tracker")
class TestImpact:
    def test_before_the_first_run_the_graph_answers_and_that_is_said(self) -> None:
        said = json.loads(de("impact", "silver/visits_enriched", "--json").stdout)
        found = {each["asset"]: each for each in said["affected"]}
        assert {each["known"] for each in found.values()} == {"graph"}
        assert {"gold/sessions", "gold/visits_cube_daily", "serving/daily_traffic", "dashboards/daily_traffic"} <= set(
            found
        )
        assert found["dashboards/daily_traffic"]["owners"] == ["team:visualization"], "it is of another code location"
        assert "gold/sessions" in said["breaks"]
        assert "dashboards/daily_traffic" not in said["breaks"], "it reads none of it itself"
        text = de("impact", "silver/visits_enriched.user_id").output
        assert "No complete lineage is recorded for" in text

    def test_what_nobody_knows_is_refused_with_a_suggestion(self) -> None:
        for said, meant in (("silver/visit.page", "`silver/visits`"), ("silver/visits.pgae", "`page`")):
            refused = de("impact", said)
            assert refused.exit_code == 1
            assert f"Did you mean {meant}" in " ".join(refused.output.split())

    def test_what_nothing_depends_on(self) -> None:
        assert "Nothing depends on dashboards/daily_traffic." in de("impact", "dashboards/daily_traffic").output


@pytest.mark.usefixtures("new_home")
@pytest.mark.pattern("fine_grained_tracker")
def test_a_trace_needs_the_whole_key_of_a_known_dataset() -> None:
    for arguments, said in (
        (("gold/session", "x"), "Did you mean `gold/sessions`"),
        (("gold/sessions", "user_id=a", "more"), "is named by session_id"),
        (("silver/users", "a"), "is named by user_id, valid_from: user_id=…, valid_from=…"),
        (("bronze/visits", "a"), "nothing: it has no key"),
    ):
        refused = de("trace", *arguments)
        assert refused.exit_code == 1
        assert said in " ".join(refused.output.split())


@pytest.mark.pattern("fine_grained_tracker")
def test_a_narrow_terminal_cuts_neither_place_nor_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = {"topic_partition": 2, "topic_offset": 41, "page": "p" * 70, "referral": "r" * 70}
    row = TracedRow(values, values, (Maker(7, "74b59362-7f71-481a-b9c7-4e10d7184759", "WRITE"),))
    found = Traced("bronze/visits_stream", "asked for", (row,), 1)
    monkeypatch.setattr(trace, "_traced", lambda _dataset, _key: (found, {}))
    monkeypatch.setattr(console, "width", 60)
    with console.capture() as printed:
        trace.trace("bronze/visits_stream", ["x"])
    told = " ".join(printed.get().replace("│", " ").split())
    assert "partition 2, offset 41" in told
    assert "version 7 by run 74b59362-7f71-481a-b9c7-4e10d7184759" in told
    assert max(map(len, printed.get().splitlines())) <= 60


@pytest.mark.pattern("fine_grained_tracker")
def test_a_trace_is_shown_in_one_way_at_a_time() -> None:
    with pytest.raises(typer.BadParameter, match="Choose one"):
        trace.trace("bronze/visits_stream", ["x"], as_json=True, as_page=True)
