"""Runs that are given secrets and fail with them, in an instance that a webserver shows.

In a process of its own: the secrets are in the environment and in the home's files; no service answers.
"""

from unittest.mock import patch

import dagster as dg
from waiting import waits

from de_assets.automation.maintenance.weeks import week_jobs
from de_assets.bronze.devices import devices
from de_assets.bronze.features import features
from de_assets.serving.weekly_visits import weekly_visits
from de_assets.sources.landing_zone import LandingZone
from de_resources.kafka import KafkaBroker
from de_resources.postgres import PostgresDatabase
from de_resources.retries import TransientRetries
from de_resources.spark import SparkEngine

NOBODY_ANSWERS = "127.0.0.1:1"
BROKER = {"bootstrap_servers": NOBODY_ANSWERS, "user": "blog", "password": "secret://canary_of_the_environment"}
DATABASE = {"host": "127.0.0.1", "port": 1, "database": "blog", "user": "blog", "password": "secret://canary_of_a_file"}


_delay = TransientRetries.calculate_delay


def _one_more(policy: TransientRetries, attempt: int) -> float:
    """Two attempts: what is said of one that is followed by another, and of the last."""
    return _delay(policy, attempt if attempt == 1 else policy.max_retries + 1)


def main() -> None:
    """The broker's password from a variable, the database's from a file, the engine's token in its address."""
    stored = {"io_manager": dg.mem_io_manager, "spark": SparkEngine(), "landing": LandingZone()}
    # Nobody answers at the next attempt either.
    with waits(), patch.object(TransientRetries, "calculate_delay", _one_more), dg.DagsterInstance.get() as instance:
        dg.materialize(
            [features],
            resources={**stored, "broker": KafkaBroker.configure_at_launch()},
            run_config={"resources": {"broker": {"config": BROKER}}},
            instance=instance,
            raise_on_error=False,
        )
        dg.materialize([devices], resources=stored, instance=instance, raise_on_error=False)
        freeze, *_ = week_jobs([weekly_visits])
        dg.Definitions(jobs=[freeze], resources={"database": PostgresDatabase.configure_at_launch()}).get_job_def(
            freeze.name
        ).execute_in_process(
            run_config={"resources": {"database": {"config": DATABASE}}}, instance=instance, raise_on_error=False
        )
