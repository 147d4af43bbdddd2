"""Where the summary of a run looks for a dataset: what is not found is computed again each time."""

from pathlib import Path

import pyarrow as pa
from dagster import AssetKey
from deltalake import write_deltalake

from de_assets.cli.summary import is_stored
from de_resources.settings import Settings


def test_a_dataset_is_found_where_its_writer_puts_it(tmp_path: Path) -> None:
    settings = Settings.from_environment({"LAKE_ROOT": f"{tmp_path}/l", "DE_STAGING_ROOT": f"{tmp_path}/s"})
    rows = pa.table({"n": [1]})
    write_deltalake(f"{tmp_path}/l/gold/sessions", rows)
    write_deltalake(f"{tmp_path}/s/staging/visits", rows)
    day = tmp_path / "l/serving/visits_csv/2026-11-23.json"
    day.parent.mkdir(parents=True)
    day.write_text("{}")
    for name in ("gold/sessions", "staging/visits", "serving/visits_csv"):
        assert is_stored(settings, AssetKey(name.split("/"))), name
    for name in ("staging/sessions", "gold/visits", "serving/visits_export"):
        assert not is_stored(settings, AssetKey(name.split("/"))), name
