"""Every automation of the graph on real services: what reads a system by the clock starts nothing where nothing is new."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from confluent_kafka import Producer
from geo_visits import land
from platform_world import HOURS, WORLD, Lakehouse
from waiting import PATIENCE

from de_assets.definitions import defs, lags
from de_assets.graph_assets import assets
from de_assets.resources import resources
from de_assets.sources.simulator import land_devices
from de_assets.sources.topics import ADS, FEATURES, TOPICS, USERS, VISITS
from de_assets.staging.visits_topic import visits_topic
from de_resources.kafka import KafkaBroker
from de_resources.local import LocalServices

pytestmark = pytest.mark.services

BY_THE_CLOCK = {
    "bronze_ads_stream_poll": "bronze/ads_stream",
    "devices_reload": "bronze/devices",
    "bronze_users_changes_poll": "bronze/users_changes",
    "bronze_visits_stream_poll": "bronze/visits_stream",
    "gold_pages_per_visit_poll": "gold/pages_per_visit",
    "gold_sessions_live_poll": "gold/sessions_live",
    "silver_network_countries_poll": "silver/network_countries",
    "serving_visits_reduced_poll": "serving/visits_reduced",
    "staging_devices_raw_poll": "staging/devices_raw",
    "staging_visits_topic_poll": "staging/visits_topic",
}
# Their time is what is new: a day that has ended, a night that has come, a reader that is later than it was.
BY_TIME = {
    "lag_measured",
    "maintenance_nightly",
    "observatory_nightly",
    "offline_observer_nightly",
    "referral_stats_daily",
}


def test_every_schedule_either_asks_first_or_is_about_time() -> None:
    assert {schedule.name for schedule in defs.schedules or []} == BY_THE_CLOCK.keys() | BY_TIME
    declared = [spec.automation_condition for spec in defs.resolve_all_asset_specs() if spec.automation_condition]
    # How long something is awaited is about time.
    conditions = [condition.replace("done_without", dg.AutomationCondition.missing()) for condition in declared]
    assert not [c for c in conditions if "cron" in str(c).lower()], (
        "a condition cannot ask whether a source has changed"
    )


@pytest.fixture
def lake(lone_services: LocalServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """A lake and services of its own: positions belong to one broker and one lake."""
    lone_services.up(["postgres", "kafka"], topics=TOPICS)
    lake = Lakehouse(lone_services, tmp_path)
    for name in ("DE_HOME", "LAKE_ROOT"):
        monkeypatch.setenv(name, lake.variables()[name])
    return lake


def wanted(lake: Lakehouse) -> set[str]:
    """What the schedules request at this moment, by asset."""
    here = resources()  # those of the code location were configured when it was loaded
    found = set()
    with dg.DagsterInstance.from_config(str(lake.instance)) as instance:
        for name, asset in BY_THE_CLOCK.items():
            schedule = defs.resolve_schedule_def(name)
            needed = {key: here[key] for key in schedule.required_resource_keys}
            moment = datetime.now(UTC)
            with dg.build_schedule_context(instance, scheduled_execution_time=moment, resources=needed) as context:
                requests = schedule.evaluate_tick(context).run_requests
            if requests:
                found.add(asset)
    return found


TOPIC_READERS = {
    "bronze/ads_stream",
    "bronze/features",
    "bronze/users_changes",
    "bronze/visits_stream",
    "gold/pages_per_visit",
    "gold/sessions_live",
    "serving/visits_reduced",
    "staging/visits_topic",
}


def keeping_up(lake: Lakehouse, *readers: str) -> set[str]:
    """Which of these readers of topics keep up, by their own checks in the graph."""
    of_topics = [check for check in lags if {key.asset_key.to_user_string() for key in check.check_keys} <= {*readers}]
    assert len(of_topics) == len(readers)
    look = dg.define_asset_job("look", selection=dg.AssetSelection.checks(*of_topics))
    judges = dg.Definitions(assets, asset_checks=of_topics, jobs=[look], resources=resources())
    with dg.DagsterInstance.from_config(str(lake.instance)) as instance:
        done = judges.resolve_job_def("look").execute_in_process(instance=instance)
    return {each.asset_key.to_user_string() for each in done.get_asset_check_evaluations() if each.passed}


def publish(topic: str, *values: object) -> None:
    """One Kafka transaction, whose marker takes an offset, too."""
    producer = Producer({**KafkaBroker().client_config(), "transactional.id": "test", "log_level": 0})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, json.dumps(value), key="k")  # a compacted topic takes nothing without
    producer.commit_transaction(PATIENCE)


def publish_first(lake: Lakehouse) -> None:
    publish(USERS, {"op": "c"})
    publish(VISITS, {"visit_id": "broken"})
    publish(FEATURES, {"no": "release"})
    publish(ADS, {"no": "showing"})
    land_devices(lake.services.settings.landing, WORLD, HOURS[-1])
    land({0: ["198.18.0.1"]})


@pytest.mark.pattern("checkpointer", "passthrough_replicator")
@pytest.mark.red_check("keeps_up_with_visits")
def test_what_is_new_is_asked_for_until_it_was_read(lake: Lakehouse) -> None:
    """Of those who read, the one that needs no engine; the others are asked in the long proof below."""
    everything, copied = set(BY_THE_CLOCK.values()), "staging/visits_topic"
    assert wanted(lake) == set(), "no record, no dump"
    publish_first(lake)
    assert wanted(lake) == everything
    assert keeping_up(lake, copied) == set(), "it has not begun to read"

    here = resources()
    with dg.DagsterInstance.from_config(str(lake.instance)) as instance:
        needed = {name: here[name] for name in ("broker", "staging_broker")}
        assert dg.materialize([visits_topic], instance=instance, resources=needed).success

    assert keeping_up(lake, copied) == {copied}
    assert wanted(lake) == everything - {copied}
    assert wanted(lake) == everything - {copied}
    publish(VISITS, {"visit_id": "another"})
    assert wanted(lake) == everything


@pytest.mark.pattern("checkpointer")
@pytest.mark.red_check("keeps_up_with_visits", "keeps_up_with_users", "keeps_up_with_features", "keeps_up_with_ads")
def test_nothing_runs_where_nothing_is_new_and_what_is_new_is_asked_for_once(lake: Lakehouse) -> None:
    """Every asset that is asked by the clock, in runs of its own: a minute, most of which is the engine's start."""
    lake.services.up(["spark_connect", "geo"])
    everything = set(BY_THE_CLOCK.values())
    publish_first(lake)
    assert wanted(lake) == everything
    assert keeping_up(lake, *TOPIC_READERS) == set(), "nobody has begun to read"

    settled = {"ops": {"gold__sessions_live": {"config": {"settle_seconds": 0}}}}
    lake.run({"assets": sorted(everything | TOPIC_READERS), "config": settled}).succeeded()
    assert wanted(lake) == set()
    assert wanted(lake) == set()
    assert keeping_up(lake, *TOPIC_READERS) == TOPIC_READERS

    of_visits = {
        "bronze/visits_stream",
        "gold/pages_per_visit",
        "gold/sessions_live",
        "serving/visits_reduced",
        "staging/visits_topic",
    }
    publish(VISITS, {"visit_id": "another"})
    assert wanted(lake) == of_visits
    publish(USERS, {"op": "c"})
    assert wanted(lake) == of_visits | {"bronze/users_changes"}
