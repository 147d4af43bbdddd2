"""What `de run` has told of its runs when it ends, without a daemon."""

import json
from pathlib import Path

import pytest
from openlineage_reader import require_valid

pytestmark = [pytest.mark.ui, pytest.mark.pattern("dataset_tracker")]


def test_de_run_has_told_its_runs_by_valid_events(lakehouse: dict[str, str]) -> None:
    files = Path(lakehouse["DE_HOME"], "openlineage").glob("events-*.jsonl")
    events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for event in events:
        require_valid(event)
    begun = {e["run"]["runId"] for e in events if e["eventType"] == "START"}
    assert begun <= {e["run"]["runId"] for e in events if e["eventType"] in ("COMPLETE", "FAIL", "ABORT")}
    read = {i["name"] for e in events for i in e["inputs"] if "gold/sessions" in [o["name"] for o in e["outputs"]]}
    assert "silver/visits_enriched" in read
