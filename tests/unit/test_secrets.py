"""Secrets by reference: found in the chain, made once, never shown."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from de_resources.secrets import EnvironmentSecrets, FileSecrets, NotASecretReference, Secrets, UnknownSecret


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "secrets"


def _chain(folder: Path, **environment: str) -> Secrets:
    files = FileSecrets(folder)
    return Secrets(backends=(EnvironmentSecrets(environment), files), generated=files)


def test_the_environment_wins_over_the_file(folder: Path) -> None:
    value = _chain(folder).generate("api_key")

    assert _chain(folder).resolve("secret://api_key") == value
    assert _chain(folder, DE_SECRET_API_KEY="from outside").resolve("secret://api_key") == "from outside"
    assert _chain(folder, DE_SECRET_API_KEY="").resolve("secret://api_key") == value


def test_a_secret_is_made_once_and_private(folder: Path) -> None:
    first = _chain(folder).generate("token", nbytes=48)

    assert _chain(folder).generate("token") == first
    assert len(first) == 64
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert [file.name for file in folder.iterdir()] == ["token"]


def test_all_of_many_writers_get_the_same_value(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        values = set(pool.map(lambda _: _chain(folder).generate("shared"), range(32)))

    assert len(values) == 1


def test_a_configured_secret_is_not_generated_again(folder: Path) -> None:
    assert _chain(folder, DE_SECRET_TOKEN="given").generate("token") == "given"
    assert not folder.exists()


def test_an_unknown_reference_is_named_with_what_to_do(folder: Path) -> None:
    with pytest.raises(
        UnknownSecret, match=r"`secret://api_key` is in no secret backend.*DE_SECRET_API_KEY"
    ) as unknown:
        _chain(folder).resolve("secret://api_key")

    assert unknown.value.reference == "secret://api_key"


@pytest.mark.parametrize("text", ["hunter2", "secret://../etc/passwd", "secret://", "SECRET://a", "secret://a/b"])
def test_what_is_no_reference_is_refused_without_being_shown(folder: Path, text: str) -> None:
    with pytest.raises(NotASecretReference) as refused:
        _chain(folder).resolve(text)

    assert text.removeprefix("secret://") not in str(refused.value) or text == "secret://"


def test_values_do_not_show(folder: Path) -> None:
    chain = _chain(folder, DE_SECRET_TOKEN="hunter2")

    assert "hunter2" not in repr(chain)
    assert "hunter2" not in repr(chain.resolve_hidden("secret://token"))
    assert chain.resolve_hidden("secret://token").get_secret_value() == "hunter2"


def test_a_line_end_that_an_editor_added_does_not_count(folder: Path) -> None:
    folder.mkdir()
    (folder / "token").write_text("abc\n")

    assert _chain(folder).resolve("secret://token") == "abc"
