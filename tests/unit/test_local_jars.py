"""The jar cache, with the real Ivy on a repository that is a folder: no network."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from de_resources.local import jars
from de_resources.local.ivy import Coordinate, IvyFailed
from de_resources.local.jars import JarCorrupt, JarsMissing, engine_jars, ensure_jars
from de_resources.local.jars_lock import FORCED, ROOTS, LockedJar, read_lock
from de_resources.settings import Settings

CONTENT = b"not really a jar"
GOOD = LockedJar("engine", Coordinate("org.example", "thing_2.13", "1.0"), hashlib.sha256(CONTENT).hexdigest())
ABSENT = LockedJar("engine", Coordinate("org.example", "absent", "1.0"), "0" * 64)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"DE_HOME": str(tmp_path / "home")})


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository in a folder that holds one jar, and Ivy settings that know no other place."""
    root = tmp_path / "repository"
    place = root / "org" / "example" / "thing_2.13" / "1.0"
    place.mkdir(parents=True)
    (place / "thing_2.13-1.0.jar").write_bytes(CONTENT)
    (place / "thing_2.13-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        "<artifactId>thing_2.13</artifactId><version>1.0</version></project>"
    )
    ivy_settings = tmp_path / "ivysettings.xml"
    ivy_settings.write_text(
        '<ivysettings><settings defaultResolver="folder"/><resolvers>'
        f'<ibiblio name="folder" m2compatible="true" root="file:{root}/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("DE_IVY_SETTINGS", str(ivy_settings))
    return place


def _lock(monkeypatch: pytest.MonkeyPatch, *locked: LockedJar) -> None:
    monkeypatch.setattr(jars, "read_lock", lambda _file: list(locked))


def test_a_set_is_fetched_once_and_used_offline_afterwards(
    settings: Settings, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lock(monkeypatch, GOOD)
    shown = io.StringIO()

    fetched = ensure_jars(settings, ["engine"], console=Console(file=shown))

    (jar,) = fetched["engine"]
    assert jar == settings.jars / "engine" / "thing_2.13-1.0.jar"
    assert jar.read_bytes() == CONTENT
    assert "Fetching the engine jars" in shown.getvalue()
    (repository / "thing_2.13-1.0.jar").unlink()
    assert ensure_jars(settings, ["engine"]) == {"engine": [jar]}
    assert engine_jars(settings) == [jar]
    assert sorted(entry.name for entry in settings.jars.iterdir()) == [".lock", "engine"]


def test_a_changed_lock_asks_for_the_set_again(
    settings: Settings, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lock(monkeypatch, GOOD)
    ensure_jars(settings, ["engine"])
    _lock(monkeypatch, GOOD, ABSENT)

    with pytest.raises(JarsMissing):
        engine_jars(settings)


def test_a_jar_with_another_content_is_not_put_into_place(
    settings: Settings, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lock(monkeypatch, GOOD)
    (repository / "thing_2.13-1.0.jar").write_bytes(b"something else")

    with pytest.raises(JarCorrupt, match=GOOD.sha256) as corrupt:
        ensure_jars(settings, ["engine"])

    assert corrupt.value.jar == GOOD
    assert not (settings.jars / "engine").exists()
    (repository / "thing_2.13-1.0.jar").write_bytes(CONTENT)
    assert len(ensure_jars(settings, ["engine"])["engine"]) == 1


def test_an_unobtainable_jar_is_named(settings: Settings, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _lock(monkeypatch, GOOD, ABSENT)

    with pytest.raises(IvyFailed, match="absent") as failed:
        ensure_jars(settings, ["engine"])

    assert failed.value.what == "engine"
    assert not (settings.jars / "engine").exists()


def test_without_jars_the_error_says_what_to_run(settings: Settings) -> None:
    with pytest.raises(JarsMissing, match="run `de jars` once") as missing:
        engine_jars(settings)

    assert missing.value.jar_set == "engine"


def test_the_lock_holds_every_root_and_no_artifact_twice() -> None:
    locked = read_lock()
    names = [(jar.jar_set, jar.coordinate.artifact) for jar in locked]

    assert len(names) == len(set(names))
    for jar_set, roots in ROOTS.items():
        assert {Coordinate.parse(root) for root in roots} <= {
            jar.coordinate for jar in locked if jar.jar_set == jar_set
        }
    assert {Coordinate.parse(forced) for forced in FORCED} <= {jar.coordinate for jar in locked}
    assert all(len(jar.sha256) == 64 for jar in locked)


def test_jars_of_another_lock_file_lie_where_the_settings_say(
    settings: Settings, repository: Path, tmp_path: Path
) -> None:
    lock = tmp_path / "own.lock"
    lock.write_text(f"# for tests only\n{GOOD.coordinate} {GOOD.sha256} extra\n")
    own = replace(settings, jars=tmp_path / "elsewhere")
    (jar,) = ensure_jars(own, ["extra"], lock=lock)["extra"]
    assert jar == tmp_path / "elsewhere" / "extra" / "thing_2.13-1.0.jar"
    assert not (settings.jars / "extra").exists()
    lock.write_text(f"{GOOD.coordinate} {'0' * 64} extra\n")
    with pytest.raises(JarCorrupt):
        ensure_jars(own, ["extra"], lock=lock)
