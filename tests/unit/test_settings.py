"""Where the tables are: a folder, and nothing that only looks as if it could work."""

from pathlib import Path

import pytest

from de_resources.settings import ObjectStoreUnsupported, Settings


@pytest.mark.parametrize("name", ["LAKE_ROOT", "DE_STAGING_ROOT"])
@pytest.mark.parametrize("scheme", ["s3", "s3a", "abfss", "gs", "hdfs"])
def test_an_object_store_is_refused_without_showing_what_is_in_its_address(name: str, scheme: str) -> None:
    with pytest.raises(
        ObjectStoreUnsupported, match=f"`{name}` is a place at `{scheme}://`.*Set it to a folder"
    ) as refused:
        Settings.from_environment({name: f"{scheme}://user:canary@bucket/lake"})
    assert "canary" not in str(refused.value)


def test_a_folder_is_taken_by_its_path_or_as_a_url(tmp_path: Path) -> None:
    assert Settings.from_environment({"LAKE_ROOT": str(tmp_path)}).lake_root == str(tmp_path)
    assert Settings.from_environment({"LAKE_ROOT": "file:///lake/"}).lake_root == "file:///lake"


def test_what_is_called_staging_is_in_the_staging_environment(tmp_path: Path) -> None:
    settings = Settings.from_environment({"LAKE_ROOT": str(tmp_path / "l"), "DE_STAGING_ROOT": str(tmp_path / "s")})
    assert settings.uri_of("staging/visits") == f"{tmp_path}/s/staging/visits"
    assert settings.uri_of("gold/staging") == f"{tmp_path}/l/gold/staging"
