"""Full Loader on the graph: bad dumps stop at the gate, the last good data stays, and a load can be taken back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from checks_world import verdicts
from deltalake import DeltaTable

from de_assets import automation, bronze, silver
from de_assets.bronze import devices as loaded
from de_assets.resources import resources
from de_assets.silver import devices as merged
from de_assets.sources.landing import DEVICES, MARKER
from de_assets.sources.systems import systems
from de_resources.delta.write.crash_points import at
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("full_loader")

CHECK = "volume_is_stable"
GOOD = [{"type": "iphone", "full_name": f"iPhone {n}", "version": f"v{n}"} for n in range(48)]
BAD_DUMPS = {"empty": [], "truncated": GOOD[:24], "doubled": GOOD * 2}


@dataclass
class Provider:
    """The provider's drop folder, the two datasets of devices, and jobs on their tables, in a lake of their own."""

    settings: Settings
    engine: SparkEngine
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        assets = [*systems, loaded.devices, merged.devices]
        self.definitions = dg.Definitions(
            assets=assets,
            asset_checks=[*loaded.checks, *merged.checks],
            jobs=automation.jobs([*assets, *bronze.assets, *silver.assets]),
            resources=resources(self.settings, self.engine),
            executor=dg.in_process_executor,
        )

    def land(self, text: str | bytes) -> None:
        folder = self.settings.landing / DEVICES
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "devices.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        (folder / MARKER).touch()

    def land_devices(self, devices: list[dict[str, str]]) -> None:
        self.land("".join(json.dumps(device) + "\n" for device in devices))

    def load(self, *only: str, checks_only: bool = False) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        keys = {dg.AssetKey([layer, "devices"]) for layer in only or ("bronze", "silver")}
        checks = {c for c in job.asset_layer.asset_graph.asset_check_keys if c.asset_key in keys}
        subset = job.get_subset(asset_selection=set() if checks_only else keys, asset_check_selection=checks)
        return subset.execute_in_process(instance=self.instance, raise_on_error=False)

    def restore(self, table: str, version: int) -> dg.ExecuteInProcessResult:
        config = {"ops": {"restore_to_version": {"config": {"table": table, "version": version}}}}
        job = self.definitions.resolve_job_def("restore_table")
        return job.execute_in_process(run_config=config, instance=self.instance, raise_on_error=False)

    def table(self, layer: str) -> DeltaTable:
        return DeltaTable(f"{self.settings.lake_root}/{layer}/devices")

    def names(self, layer: str) -> list[str]:
        """The devices that a reader sees; silver's without those that are marked as deleted."""
        rows = self.table(layer).to_pyarrow_table().to_pylist()
        return sorted(row["full_name"] for row in rows if not row.get("is_deleted"))


def names_of(devices: list[dict[str, str]]) -> list[str]:
    return sorted(device["full_name"] for device in devices)


def reason(result: dg.ExecuteInProcessResult) -> str:
    """The innermost error of the first failed step."""
    error = result.get_step_failure_events()[0].step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message if error else ""


@pytest.fixture(scope="module")
def provider(engine: SparkEngine, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Provider:
    assert engine.spark_session is not None
    folder = tmp_path_factory.mktemp("provider")
    return Provider(Settings.from_environment({"DE_HOME": str(folder)}), engine)


@dataclass
class Load:
    """What a load did, and what readers saw after it."""

    result: dg.ExecuteInProcessResult
    version: int
    silver: list[str]


@pytest.fixture(scope="module")
def loads(provider: Provider) -> dict[str, Load]:
    """A good dump, the three bad ones after it, and a good one of the first one's size, in which a device stands twice."""
    done = {}
    for name, dump in {"good": GOOD, **BAD_DUMPS, "good again": [*GOOD[:-1], GOOD[0]]}.items():
        provider.land_devices(dump)
        result = provider.load()
        done[name] = Load(result, provider.table("bronze").version(), provider.names("silver"))
    return done


@pytest.mark.parametrize("dump", BAD_DUMPS)
def test_a_bad_dump_stops_at_the_gate_and_the_last_good_data_stays(loads: dict[str, Load], dump: str) -> None:
    load = loads[dump]
    assert loads["good"].result.success
    assert not load.result.success
    (verdict,) = verdicts(load.result, CHECK).values()
    assert not verdict.passed
    assert verdict.metadata["rows"].value == len(BAD_DUMPS[dump])
    assert not load.result.asset_materializations_for_node("silver__devices")
    assert load.silver == loads["good"].silver == names_of(GOOD)


def test_the_measure_is_the_last_good_load_and_not_the_last_one(loads: dict[str, Load]) -> None:
    baselines = {name: verdicts(load.result, CHECK)[None].metadata.get("baseline_rows") for name, load in loads.items()}
    assert {name: found.value for name, found in baselines.items() if found} == {
        "truncated": 48,
        "doubled": 48,
        "good again": 48,
    }
    assert loads["good again"].result.success


@pytest.mark.pattern("merger")
def test_a_device_that_stands_twice_is_one(loads: dict[str, Load]) -> None:
    assert loads["good again"].silver == names_of(GOOD[:-1])


def test_every_earlier_load_can_be_read_by_version(
    provider: Provider, loads: dict[str, Load], engine: SparkEngine
) -> None:
    lake: Any = resources(provider.settings, engine)["lake"]
    table = lake.table(dg.AssetKey(["bronze", "devices"]))
    sizes = {name: table.read(engine.spark_session, load.version).count() for name, load in loads.items()}
    assert sizes == {"good": 48, "empty": 0, "truncated": 24, "doubled": 96, "good again": 48}


@pytest.fixture(scope="module")
def restored(provider: Provider, loads: dict[str, Load]) -> tuple[dg.ExecuteInProcessResult, dg.ExecuteInProcessResult]:
    """The job, after another load: back to the first one, twice."""
    first = provider.restore("bronze/devices", loads["good"].version)
    return first, provider.restore("bronze/devices", loads["good"].version)


def test_a_restored_version_is_recorded_judged_and_flows_on(
    provider: Provider, loads: dict[str, Load], restored: tuple[dg.ExecuteInProcessResult, dg.ExecuteInProcessResult]
) -> None:
    (event,) = restored[0].get_asset_materialization_events()
    recorded = event.step_materialization_data.materialization
    metadata = {name: value.value for name, value in recorded.metadata.items()}
    version = provider.table("bronze").version()
    assert metadata["delta/version"] == version
    assert metadata["restored_from"] == loads["good"].version
    assert metadata["dagster/row_count"] == 48
    assert recorded.tags is not None
    assert recorded.tags["dagster/data_version"] == str(version)
    assert provider.table("bronze").history(1)[0]["operation"] == "RESTORE"
    assert provider.names("bronze") == names_of(GOOD)

    judged = provider.load("bronze", checks_only=True)
    assert judged.success
    assert all(e.passed for e in judged.get_asset_check_evaluations())
    assert provider.load("silver").success
    assert provider.names("silver") == names_of(GOOD)


def test_a_second_restore_commits_nothing_and_says_so(
    restored: tuple[dg.ExecuteInProcessResult, dg.ExecuteInProcessResult],
) -> None:
    first, second = restored
    assert second.success
    assert not second.get_asset_materialization_events()
    outputs = [
        {name: value.value for name, value in event.step_output_data.metadata.items()}
        for result in (first, second)
        for event in result.all_events
        if event.is_successful_output
    ]
    assert "skipped" not in outputs[0]
    assert "already; nothing was committed" in str(outputs[1]["skipped"])
    assert outputs[1]["delta/version"] == outputs[0]["delta/version"]


@pytest.mark.parametrize(
    ("table", "version", "said"),
    [
        ("bronze/devices", 99, "there is no such version. The oldest readable version is 0; available are 0-"),
        (
            "bronze/device",
            1,
            "`bronze/device` is no table of this lake. There are: bronze/ads_stream, bronze/devices, ",
        ),
        ("bronze/visits", 1, "`bronze/visits` has partitions"),
        ("bronze/visits_stream", 1, "`bronze.visits_stream` does not exist yet"),
    ],
)
def test_what_cannot_be_restored_is_refused_in_a_sentence(
    provider: Provider,
    restored: tuple[dg.ExecuteInProcessResult, dg.ExecuteInProcessResult],
    table: str,
    version: int,
    said: str,
) -> None:
    before = provider.table("bronze").version()
    result = provider.restore(table, version)
    assert not result.success
    assert said in reason(result)
    assert provider.table("bronze").version() == before


def line(**changes: object) -> str:
    return json.dumps({**GOOD[0], **changes}) + "\n"


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        (line() + line()[:20], "devices.json:2", "the line is no JSON"),
        ("type;full_name;version\niphone;iPhone 1;v1\n", "devices.json:1", "the line is no JSON"),
        ('["iphone"]\n', "devices.json:1", "the line is no JSON object"),
        (line() + "\n" + line(version=8), "devices.json:3", "the column `version` is a number and not text"),
        (line(full_name={"en": "x"}), "devices.json:1", "the column `full_name` is an object and not text"),
        ('{"type": "iphone", "name": "x", "version": "v1"}\n', "devices.json:1", "the column `full_name` is missing"),
        (line().encode() + b'{"type": "\xff"}\n', "devices.json:2", "the line is not UTF-8"),
        ("[" * 100_000 + "\n", "devices.json:1", "nested too deeply"),
    ],
    ids=["cut off", "wrong format", "no object", "a number", "an object", "renamed", "no UTF-8", "nested"],
)
def test_an_unreadable_dump_names_place_and_reason_and_leaves_the_last_load(
    provider: Provider,
    restored: tuple[dg.ExecuteInProcessResult, dg.ExecuteInProcessResult],
    text: str | bytes,
    place: str,
    why: str,
) -> None:
    before = provider.table("bronze").version()
    provider.land(text)
    result = provider.load()
    assert not result.success
    assert f"unreadable at {place}: " in reason(result)
    assert why in reason(result)
    assert provider.table("bronze").version() == before
    assert provider.names("bronze") == names_of(GOOD)


def test_a_drop_without_a_file_is_an_empty_dump(
    provider: Provider, restored: tuple[dg.ExecuteInProcessResult, dg.ExecuteInProcessResult]
) -> None:
    provider.land("")
    (provider.settings.landing / DEVICES / "devices.json").unlink()
    result = provider.load()
    assert verdicts(result, CHECK)[None].metadata["rows"].value == 0
    assert not result.success


@pytest.fixture
def reading(provider: Provider) -> Iterator[list[tuple[int, list[str]]]]:
    """A reader that reads again and again while the test runs: version and devices of every read."""
    seen: list[tuple[int, list[str]]] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            table = provider.table("bronze")
            seen.append((table.version(), sorted(r["full_name"] for r in table.to_pyarrow_table().to_pylist())))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()


def test_readers_during_a_load_see_the_old_dump_or_the_new_one(
    provider: Provider,
    restored: tuple[dg.ExecuteInProcessResult, dg.ExecuteInProcessResult],
    reading: list[tuple[int, list[str]]],
) -> None:
    provider.restore("bronze/devices", provider.table("bronze").version() - 1)
    provider.land_devices(GOOD)
    assert provider.load("bronze").success
    old, new = names_of(GOOD), names_of([*GOOD, {"full_name": "iPhone X"}])
    first = provider.table("bronze").version()
    at_points: dict[str, list[str]] = {}

    def look(point: str) -> None:
        at_points[point] = provider.names("bronze")

    provider.land_devices([*GOOD, {"type": "iphone", "full_name": "iPhone X", "version": "vX"}])
    with at("before_commit", lambda _: look("before")), at("after_commit", lambda _: look("after")):
        assert provider.load("bronze").success
    assert at_points == {"before": old, "after": new}
    during = [(version, names) for version, names in reading if version >= first]
    assert during
    assert all(names == (old if version == first else new) for version, names in during)


@pytest.mark.pattern("merger")
def test_a_device_with_two_names_is_refused_and_none_of_them_hides_the_other(
    provider: Provider, restored: tuple[dg.ExecuteInProcessResult, dg.ExecuteInProcessResult]
) -> None:
    before = provider.names("silver")
    other = {**GOOD[3], "full_name": "another name"}

    provider.land_devices([*GOOD, GOOD[3], other])
    refused = provider.load()

    assert not refused.success
    assert "Cannot merge into `silver.devices`" in reason(refused)
    assert "another name" in provider.names("bronze"), "what came is kept as it came"
    assert provider.names("silver") == before, "readers keep the last good set"
