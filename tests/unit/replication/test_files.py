"""Folders: the replica equals its source to the byte, and no reader of the marker ever sees half of it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from killing import killed_at

from de_resources import atomic_files
from de_resources.replication import files
from de_resources.replication.environments import EnvironmentsOverlap
from de_resources.replication.files import (
    MARKER,
    FolderEmpty,
    FolderIncomplete,
    FolderMissing,
    SourceChanged,
    synchronise,
)

ODD = {
    "numbers.json": b'{"version": 1.10, "big": 12345678901234567890, "exp": 1E5}\n',
    "dates.csv": b"31/02/2024;0000-00-00;2024-1-5 7:3\n",
    "crlf.csv": b"a;b\r\n1.10;2\r\n\r\nlast line without an end",
    "bom.json": b'\xef\xbb\xbf{"a": 1}\n',
    "latin1.txt": b"caf\xe9 \xff\xfe\x00\n",
    "empty.json": b"",
    "deep/er/part-0.json": b"{}\n",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return drop(tmp_path / "production" / "devices", ODD)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "staging" / "devices_raw"


def drop(folder: Path, contents: dict[str, bytes], marker: bool = True) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    if marker:
        (folder / MARKER).write_bytes(b"made by the producer\n")
    return folder


def held(folder: Path) -> dict[str, bytes]:
    """Everything in the folder, hidden files included."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.pattern("passthrough_replicator")
def test_every_byte_arrives_whatever_it_is(source: Path, target: Path) -> None:
    done = synchronise(source, target)

    assert held(target) == held(source)
    assert sorted(done.copied) == sorted(ODD)
    assert done.bytes_copied == sum(map(len, ODD.values()))
    assert dict(done.digests) == {name: atomic_files.sha256(source / name) for name in ODD}


@pytest.mark.pattern("passthrough_replicator", "full_loader")
def test_a_rerun_touches_nothing(source: Path, target: Path) -> None:
    synchronise(source, target)
    before = {p: p.stat().st_mtime_ns for p in target.rglob("*")}

    done = synchronise(source, target)

    assert (done.copied, done.removed, done.bytes_copied) == ((), (), 0)
    assert {p: p.stat().st_mtime_ns for p in target.rglob("*")} == before


@pytest.mark.pattern("full_loader")
def test_what_vanished_changed_and_came_at_the_source_did_so_at_the_replica(source: Path, target: Path) -> None:
    synchronise(source, target)
    (source / "bom.json").unlink()
    (source / "empty.json").write_bytes(b"no longer\n")
    # The same size and another content: sizes alone decide nothing.
    (source / "numbers.json").write_bytes(ODD["numbers.json"].replace(b"1.10", b"1.20"))
    (source / "new.json").write_bytes(b"{}")

    done = synchronise(source, target)

    assert held(target) == held(source)
    assert set(done.copied) == {"empty.json", "numbers.json", "new.json"}
    assert done.removed == ("bom.json",)


def test_what_somebody_else_put_into_the_replica_does_not_stay(source: Path, target: Path) -> None:
    synchronise(source, target)
    (target / "foreign.json").write_bytes(b"{}")
    (target / "crlf.csv").write_bytes(ODD["crlf.csv"].replace(b"\r\n", b"\n"))

    synchronise(source, target)

    assert held(target) == held(source)


def _no_folder(source: Path) -> None:
    source.rename(source.with_name("gone"))


def _no_marker(source: Path) -> None:
    (source / MARKER).unlink()


def _no_files(source: Path) -> None:
    for name in ODD:
        (source / name).unlink()


@pytest.mark.pattern("passthrough_replicator", "full_loader")
@pytest.mark.parametrize(
    ("damage", "error", "said"),
    [
        (_no_folder, FolderMissing, "devices` does not exist"),
        (_no_marker, FolderIncomplete, "devices` is not complete: it has no `_SUCCESS`"),
        (_no_files, FolderEmpty, "would empty the replica"),
    ],
)
def test_a_source_that_is_no_complete_folder_is_refused_and_the_replica_stays(
    source: Path, target: Path, damage: Callable[[Path], None], error: type[Exception], said: str
) -> None:
    synchronise(source, target)
    before = held(target)
    damage(source)

    with pytest.raises(error, match=said):
        synchronise(source, target)

    assert held(target) == before


@pytest.mark.parametrize("change", ["rewritten", "removed", "unmarked"])
def test_a_source_that_changes_while_it_is_copied_leaves_the_replica_as_it_was(
    source: Path, target: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronise(source, target)
    before = held(target)
    (source / "dates.csv").write_bytes(b"2024-01-01\n")
    (source / "numbers.json").write_bytes(b"{}\n")
    real = atomic_files.stage

    def stage(copied: Path, to: Path) -> str:
        digest = real(copied, to)
        if copied.name == "dates.csv":
            match change:
                case "rewritten":
                    copied.write_bytes(b"2024-01-02 and more\n")
                case "removed":
                    (source / "numbers.json").unlink(missing_ok=True)
                case "unmarked":
                    (source / MARKER).unlink(missing_ok=True)
        return digest

    monkeypatch.setattr(files.atomic_files, "stage", stage)

    with pytest.raises(SourceChanged, match="devices` changed"):
        synchronise(source, target)

    assert held(target) == before


@pytest.mark.pattern("passthrough_replicator")
@pytest.mark.faults
@pytest.mark.parametrize(
    ("method", "calls"), [("replace", 1), ("replace", 3), ("unlink", 2), ("replace", 7), ("open", 14)]
)
def test_a_killed_run_leaves_no_half_file_under_its_name_and_the_next_one_completes(
    source: Path, target: Path, method: str, calls: int
) -> None:
    synchronise(source, target)
    old = held(target)
    for name in ODD:
        (source / name).write_bytes(ODD[name] + b"next\n")
    (source / "deep/er/part-0.json").unlink()

    statement = (
        f"from de_resources.replication import files; files.synchronise(Path({str(source)!r}), Path({str(target)!r}))"
    )
    assert killed_at(method, calls, statement) == -signal.SIGKILL

    new = held(source)
    seen = {name: content for name, content in held(target).items() if ".incoming" not in name}
    assert all(content in (old.get(name), new.get(name)) for name, content in seen.items())
    assert MARKER not in seen or seen in (old, new)
    synchronise(source, target)
    assert held(target) == new


@pytest.mark.parametrize("inside", ["production/devices", "production/devices/copy", "production"])
def test_a_replica_inside_its_source_or_around_it_is_refused(source: Path, tmp_path: Path, inside: str) -> None:
    before = held(tmp_path)

    with pytest.raises(EnvironmentsOverlap, match="DE_STAGING_ROOT"):
        synchronise(source, tmp_path / inside)

    assert held(tmp_path) == before
