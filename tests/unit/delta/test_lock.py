"""The commit lock between threads of one process; `faults` shows it between processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from de_resources.delta.write.lock import TableBusy, commit_lock
from de_resources.errors import TransientError


@pytest.mark.parametrize(("first", "second", "waits"), [(False, False, True), (True, False, True), (True, True, False)])
def test_only_shared_holders_overlap(tmp_path: Path, first: bool, second: bool, waits: bool) -> None:
    uri = str(tmp_path / "silver" / "visits")
    with commit_lock(uri, table="silver.visits", shared=first):
        if waits:
            with (
                pytest.raises(TableBusy, match=r"`silver\.visits`") as caught,
                commit_lock(uri, table="silver.visits", shared=second, timeout=0),
            ):
                pass
            assert isinstance(caught.value, TransientError)
        else:
            with commit_lock(uri, table="silver.visits", shared=second, timeout=0):
                pass
    with commit_lock(uri, table="silver.visits", shared=False, timeout=0):
        pass


def test_spellings_of_one_location_are_one_lock(tmp_path: Path) -> None:
    with (
        commit_lock(str(tmp_path / "t"), table="t", shared=False),
        pytest.raises(TableBusy),
        commit_lock(f"file://{tmp_path}/t", table="t", shared=False, timeout=0),
    ):
        pass
    with (
        commit_lock(f"file:{tmp_path}/t", table="t", shared=False),
        pytest.raises(TableBusy),
        commit_lock(str(tmp_path / "t"), table="t", shared=False, timeout=0),
    ):
        pass


def test_object_stores_need_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        commit_lock("s3a://bucket/t", table="t", shared=False),
        commit_lock("s3a://bucket/t", table="t", shared=False, timeout=0),
    ):
        assert not list(tmp_path.iterdir())
