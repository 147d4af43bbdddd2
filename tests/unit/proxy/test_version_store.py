"""Manifests and versions as documents: created once, switched without loss, taken back, and kept as promised."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from de_assets.filling.stores import behind_a_manifest
from de_resources.delta.write.crash_points import at
from de_resources.errors import PermanentError
from de_resources.proxy.manifest import Manifest, ProxyVersion
from de_resources.proxy.retention import RetentionPolicy, retain, retained
from de_resources.proxy.store import NoSuchManifest, VersionMissing, VersionStore, create
from de_resources.proxy.switching import NothingPublished, UnknownPartition, publish, roll_back

pytestmark = pytest.mark.pattern("proxy")

NOON = datetime(2026, 1, 10, 12, tzinfo=UTC)
FOREVER = timedelta(days=36500)


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return VersionStore(tmp_path / "snapshot", "gold.snapshot")


def complete(store: VersionStore, id_: str, *keys: str, now: datetime = NOON) -> str:
    """A version that waits for its switch."""
    folder = store.versions_folder / id_
    folder.mkdir(parents=True)
    (folder / "data").write_text(id_)
    store.add(ProxyVersion(id_, 1, dict.fromkeys(keys, "TRUE"), dict.fromkeys(keys, 3), f"run of {id_}", now))
    return id_


def show(store: VersionStore, id_: str, *keys: str, now: datetime = NOON) -> Manifest:
    return publish(store, complete(store, id_, *keys, now=now), now=now)


def seen(store: VersionStore) -> dict[str, str]:
    live = store.live()
    return dict(live.live) if live else {}


def test_documents_come_back_as_they_were_written(store: VersionStore) -> None:
    manifest = show(store, "v1", "2026-01-01", "2026-01-02")
    assert store.manifest(1) == manifest == store.live()
    assert store.version("v1") == ProxyVersion(
        "v1", 1, {"2026-01-01": "TRUE", "2026-01-02": "TRUE"}, {"2026-01-01": 3, "2026-01-02": 3}, "run of v1", NOON
    )


def test_a_rerun_of_one_day_switches_this_day_only(store: VersionStore) -> None:
    show(store, "v1", "a", "b")
    assert show(store, "v2", "b").number == 2
    assert seen(store) == {"a": "v1", "b": "v2"}
    assert dict(store.manifest(1).live) == {"a": "v1", "b": "v1"}


def test_the_later_day_may_come_first(store: VersionStore) -> None:
    for version, day in enumerate(("c", "b", "a", "c"), 1):
        show(store, f"v{version}", day)
    assert seen(store) == {"a": "v3", "b": "v2", "c": "v4"}


def test_looking_creates_nothing(store: VersionStore) -> None:
    assert (store.live(), store.manifests(), store.numbers(), store.complete_versions()) == (None, [], [], [])
    assert store.complete("any") is None
    with pytest.raises(NoSuchManifest, match="nothing was published yet"):
        store.manifest(1)
    assert not store.folder.exists()

    show(store, "v1", "mon")
    before = sorted(store.folder.rglob("*"))
    assert store.live() == store.manifest(1)
    assert [v.id for v in store.complete_versions()] == ["v1"]
    assert sorted(store.folder.rglob("*")) == before


def test_documents_cannot_be_created_twice(store: VersionStore) -> None:
    show(store, "v1", "a")
    assert not create(store.manifest_path(1), "something else")
    assert seen(store) == {"a": "v1"}
    assert not store.manifest_path(1).stat().st_mode & 0o222
    assert not [p for p in store.manifests_folder.iterdir() if p.name.startswith(".")]


def test_an_incomplete_version_is_never_shown(store: VersionStore) -> None:
    show(store, "v1", "a")
    (store.versions_folder / "half").mkdir()
    with pytest.raises(VersionMissing, match="Readers see what they saw before"):
        publish(store, "half", now=NOON)
    assert seen(store) == {"a": "v1"}


def test_a_switch_that_failed_is_made_up_for_alone(store: VersionStore) -> None:
    show(store, "v1", "a")
    complete(store, "v2", "a")

    def broken(_: str) -> None:
        raise OSError("disk full")

    with at("before_switch", broken), pytest.raises(OSError, match="disk full"):
        publish(store, "v2", now=NOON)
    assert seen(store) == {"a": "v1"}
    assert publish(store, "v2", now=NOON).number == 2
    assert publish(store, "v2", now=NOON).number == 2
    assert seen(store) == {"a": "v2"}


def test_a_late_retry_does_not_undo_what_came_after_it(store: VersionStore) -> None:
    show(store, "v1", "a")
    show(store, "v2", "a")
    assert publish(store, "v1", now=NOON).number == 2
    assert seen(store) == {"a": "v2"}


def test_switches_that_come_at_once_all_take_effect(store: VersionStore) -> None:
    ids = [complete(store, f"v{i}", f"day {i}") for i in range(24)]
    together = threading.Barrier(4)

    def switch(id_: str) -> None:
        together.wait()
        publish(store, id_, now=NOON)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(switch, ids))
    assert seen(store) == {f"day {i}": f"v{i}" for i in range(24)}
    assert store.numbers() == list(range(1, 25))


def test_of_two_versions_of_one_day_at_once_readers_see_the_one_that_came_last(store: VersionStore) -> None:
    ids = [complete(store, f"v{i}", "a") for i in range(2)]
    together = threading.Barrier(2)

    def switch(id_: str) -> int:
        together.wait()
        return publish(store, id_, now=NOON).number

    with ThreadPoolExecutor(2) as pool:
        numbers = dict(zip(pool.map(switch, ids), ids, strict=True))
    assert sorted(numbers) == store.numbers() == [1, 2]
    assert seen(store) == {"a": numbers[2]}


def test_readers_of_many_switches_never_miss_the_manifest_nor_see_half_of_one(store: VersionStore) -> None:
    """Retention removes the states before at once, which is the worst that can happen to a reader."""
    show(store, "v0", "a", "b")
    done, found = threading.Event(), set[tuple[str, ...]]()

    def look() -> None:
        while not done.is_set():
            live = store.live()
            assert live is not None
            found.add(tuple(live.live.values()))

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(look) for _ in range(2)]
        for i in range(1, 51):
            show(store, f"v{i}", "a", "b")
            retain(store, RetentionPolicy(keep=1, age=timedelta()), NOON)
        done.set()
        for reader in readers:
            reader.result()
    assert all(len(versions) == 2 and len(set(versions)) == 1 for versions in found)
    assert seen(store) == {"a": "v50", "b": "v50"}


def test_a_process_killed_before_the_switch_leaves_readers_what_they_had(store: VersionStore) -> None:
    show(store, "v1", "a")
    complete(store, "v2", "a")
    command = (
        "from datetime import UTC, datetime; from pathlib import Path; from de_resources.proxy.store import VersionStore;"
        "from de_resources.proxy.switching import publish;"
        f"publish(VersionStore(Path({str(store.folder)!r}), 'gold.snapshot'), 'v2', now=datetime.now(UTC))"
    )
    run = [sys.executable, "-c", command]
    killed = subprocess.run(run, check=False, env={**os.environ, "DE_KILL_AT": "before_switch:gold.snapshot"})
    assert killed.returncode == -signal.SIGKILL
    assert seen(store) == {"a": "v1"}
    subprocess.run(run, check=True)
    assert seen(store) == {"a": "v2"}


def test_going_back_is_a_new_manifest_that_equals_an_old_one(store: VersionStore) -> None:
    show(store, "v1", "a", "b")
    show(store, "v2", "b")
    show(store, "v3", "c")
    manifest, changes = roll_back(store, 1, now=NOON)
    assert (manifest.number, changes) == (4, {"b": "v1", "c": None})
    assert seen(store) == dict(store.manifest(1).live)
    assert roll_back(store, 1, now=NOON) == (manifest, {})
    # And forward again.
    assert roll_back(store, 3, now=NOON)[0].number == 5
    assert seen(store) == dict(store.manifest(3).live)


def test_single_partitions_go_back_alone(store: VersionStore) -> None:
    show(store, "v1", "a", "b")
    show(store, "v2", "a", "b")
    assert roll_back(store, 1, partitions=["b"], now=NOON)[1] == {"b": "v1"}
    assert seen(store) == {"a": "v2", "b": "v1"}
    with pytest.raises(UnknownPartition, match="z"):
        roll_back(store, 1, partitions=["z"], now=NOON)


def test_what_cannot_be_gone_back_to(store: VersionStore) -> None:
    with pytest.raises(NothingPublished):
        roll_back(store, 1, now=NOON)
    show(store, "v1", "a")
    with pytest.raises(NoSuchManifest, match="1 to 1"):
        roll_back(store, 7, now=NOON)
    assert store.numbers() == [1]


def test_the_way_to_a_version_that_was_removed_is_closed_and_readers_keep_what_they_have(store: VersionStore) -> None:
    """As between the two steps of a retention that was killed, or after somebody's hand."""
    show(store, "v1", "a", "b")
    show(store, "v2", "b")
    store.version_path("v1").unlink()
    with pytest.raises(VersionMissing, match=r"`v1`.*Readers see what they saw before"):
        roll_back(store, 1, now=NOON)
    assert store.numbers() == [1, 2]
    assert seen(store) == {"a": "v1", "b": "v2"}


def history(*hours: float) -> list[Manifest]:
    """Manifests that came so many hours before noon."""
    return [Manifest(i, {"a": f"v{i}"}, NOON - timedelta(hours=h), "") for i, h in enumerate(hours, 1)]


@pytest.mark.parametrize(
    ("promise", "kept"),
    [
        (RetentionPolicy(keep=1, age=timedelta()), [4]),
        (RetentionPolicy(keep=2, age=timedelta()), [3, 4]),
        # The second state came long ago, but was live until five hours ago.
        (RetentionPolicy(keep=1, age=timedelta(hours=6)), [2, 3, 4]),
        (RetentionPolicy(keep=3, age=timedelta(hours=1)), [2, 3, 4]),
        (RetentionPolicy(keep=1, age=FOREVER), [1, 2, 3, 4]),
    ],
    ids=["live only", "by count", "by age", "the more generous one", "all"],
)
def test_states_stay_by_count_or_by_age(promise: RetentionPolicy, kept: list[int]) -> None:
    assert [m.number for m in retained(history(900, 800, 5, 2), promise, NOON)] == kept


def test_an_old_live_state_stays() -> None:
    assert [m.number for m in retained(history(90000), RetentionPolicy(1, timedelta()), NOON)] == [1]


@pytest.mark.parametrize("promise", [{"keep": 0}, {"age": timedelta(days=-1)}], ids=["no state", "the future"])
def test_a_promise_that_would_remove_the_live_state_is_refused(promise: dict[str, int]) -> None:
    with pytest.raises(PermanentError, match="at least the live one"):
        RetentionPolicy(**promise)  # type: ignore[arg-type]


def test_retention_removes_what_no_kept_state_needs(store: VersionStore) -> None:
    show(store, "v1", "a", "b")
    show(store, "v2", "b")
    show(store, "v3", "b")
    removed = retain(store, RetentionPolicy(keep=1, age=timedelta()), NOON)
    # The oldest version is still live for the day `a`.
    assert (removed.manifests, removed.versions) == ((1, 2), ("v2",))
    assert {v.id for v in store.complete_versions()} == {"v1", "v3"}
    assert not (store.versions_folder / "v2").exists()
    assert retain(store, RetentionPolicy(keep=1, age=timedelta()), NOON).versions == ()
    assert show(store, "v4", "a").number == 4


def test_what_waits_for_its_switch_stays_and_what_a_dead_run_left_goes(store: VersionStore) -> None:
    show(store, "v1", "a")
    complete(store, "waits", "a")
    (store.versions_folder / "half").mkdir()
    promise, tomorrow = RetentionPolicy(keep=1, age=timedelta()), datetime.now(UTC) + timedelta(days=2)
    assert retain(store, promise, NOON) == retain(store, promise, NOON)
    assert store.complete("waits") is not None
    removed = retain(store, promise, tomorrow)
    assert (removed.versions, removed.unfinished) == (("waits",), ("half",))
    assert seen(store) == {"a": "v1"}
    assert store.complete("v1") is not None


def test_the_summary_of_a_fill_counts_what_is_live(store: VersionStore) -> None:
    assert behind_a_manifest(str(store.folder), store.name) is None
    show(store, "v1", "a", "b")
    show(store, "v2", "b")
    assert behind_a_manifest(str(store.folder), store.name) == ({"a": 3, "b": 3}, 2)
    assert behind_a_manifest("s3a://bucket/gold/snapshot", store.name) is None
