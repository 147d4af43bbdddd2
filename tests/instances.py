"""Dagster's instances for tests: on the disk, with the platform's event log, made once and then copied.

What a step prints is not captured, which takes two processes for each step.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import dagster as dg
from alembic.config import Config
from alembic.script import ScriptDirectory

CONFIGURATION = {
    "telemetry": {"enabled": False},
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    },
    "event_log_storage": {"module": "de_resources.event_log", "class": "SqliteEventLog", "config": {}},
}


def read_migrations_once() -> None:
    """Alembic imports Dagster's migrations, ninety files, whenever a database is made: four fifths of an ephemeral instance.

    They are the same for every database of a process. What is read holds no connection.
    """
    read = ScriptDirectory.from_config
    kept: dict[tuple[str | None, str | None], ScriptDirectory] = {}

    def read_once(config: Config) -> ScriptDirectory:
        place = str(config.config_file_name), config.get_main_option("script_location")
        if place not in kept:
            kept[place] = read(config)
        return kept[place]

    ScriptDirectory.from_config = read_once  # type: ignore[method-assign]


@cache
def fresh_instance() -> Path:
    """A DAGSTER_HOME with its databases made, to be copied: Dagster does not let two processes make them at once."""
    folder = Path(tempfile.mkdtemp(prefix="de-dagster-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "dagster.yaml").write_text(json.dumps(CONFIGURATION))  # which is YAML as well
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        instance.get_runs(limit=1)
        instance.all_asset_keys()
        instance.all_instigator_state()
    return folder


@contextmanager
def silent_instance() -> Iterator[dg.DagsterInstance]:
    """An instance on the disk, in a folder of its own, removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(fresh_instance(), folder, dirs_exist_ok=True)
        with dg.instance_for_test(overrides=CONFIGURATION, temp_dir=folder) as instance:
            yield instance
