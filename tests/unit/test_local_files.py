"""An engine's files on the local disk: what Hadoop does by `chmod` and `readlink`, done without a program, and the same."""

from __future__ import annotations

import os
import shutil
import stat
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from programs import program
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from de_assets.catalogue import PROJECT
from de_resources.local.class_archive import class_archive
from de_resources.local.engine_conf import engine_conf
from de_resources.local.local_files import keep_local_files, local_files, local_files_conf
from de_resources.settings import Settings

OURS, HADOOPS = "de_resources.local_files.RawFiles", "org.apache.hadoop.fs.RawLocalFileSystem"


class Files:
    """Hadoop's interface of one implementation, in the engine of the tests."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.jvm: Any = spark._jvm
        self.conf = spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[attr-defined]
        self.files = reduce(getattr, name.split("."), self.jvm)()
        self.files.initialize(self.jvm.java.net.URI.create("file:///"), self.conf)

    def path(self, path: Path | str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(str(path))

    def allow(self, path: Path, mode: int) -> int:
        """The mode of the file afterwards."""
        permission = self.jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:o}")
        self.files.setPermission(self.path(path), permission)
        return stat.S_IMODE(path.stat().st_mode)

    def link(self, path: Path) -> tuple[bool, bool, int]:
        """Whether it is a link, or a folder, and its bytes, without following it."""
        found = self.files.getFileLinkStatus(self.path(path))
        return found.isSymlink(), found.isDirectory(), found.getLen()


@pytest.fixture(params=[OURS, HADOOPS])
def files(spark: SparkSession, request: pytest.FixtureRequest) -> Files:
    """Ours, and Hadoop's own beside it: who passes for one and not for the other has found a difference."""
    return Files(spark, request.param)


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o755, 0o1777])
def test_permissions_are_those_that_were_asked_for(files: Files, tmp_path: Path, mode: int) -> None:
    (tmp_path / "it's a file").touch()
    (tmp_path / "folder").mkdir(0o700)
    assert files.allow(tmp_path / "it's a file", mode & 0o777) == mode & 0o777
    assert files.allow(tmp_path / "folder", mode) == mode


def test_a_folder_of_a_group_stays_one_and_a_file_becomes_nobodys_program(files: Files, tmp_path: Path) -> None:
    folder, file = tmp_path / "shared", tmp_path / "file"
    folder.mkdir()
    file.touch()
    folder.chmod(0o2775)
    file.chmod(0o6755)
    assert files.allow(folder, 0o755) == 0o2755
    assert files.allow(file, 0o644) == 0o644


def test_a_link_is_told_from_what_it_leads_to(files: Files, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("four")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    assert files.link(tmp_path / "file") == (False, False, 4)
    assert files.link(tmp_path)[:2] == (False, True)
    assert files.link(tmp_path / "link")[0]
    assert files.link(tmp_path / "nowhere")[0]


def test_what_is_not_there_is_an_error_of_files(files: Files, tmp_path: Path) -> None:
    for ask in (lambda: files.allow(tmp_path / "gone", 0o644), lambda: files.link(tmp_path / "gone")):
        with pytest.raises(Py4JJavaError) as refused:
            ask()
        io_error = files.jvm.java.lang.Class.forName("java.io.IOException")
        assert io_error.isInstance(refused.value.java_exception)


def test_an_engine_has_them_by_both_of_hadoops_interfaces(spark: SparkSession, tmp_path: Path) -> None:
    """And nobody else's are in its cache: whoever asks first decides for all."""
    ours = Files(spark, OURS)
    found = ours.path(tmp_path).getFileSystem(ours.conf)
    assert found.getClass().getName() == "de_resources.local_files.LocalFiles"
    assert found.getRaw().getClass().getName() == OURS
    context = ours.jvm.org.apache.hadoop.fs.FileContext.getFileContext(found.getUri(), ours.conf)
    assert context.getDefaultFileSystem().getClass().getName() == "de_resources.local_files.LocalFs"


def test_files_have_the_same_checksums_beside_them(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "rows"))
    (file, *_) = (tmp_path / "rows").glob("part-*.parquet")
    assert file.with_name(f".{file.name}.crc").exists()
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~_umask()
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content)
    with pytest.raises(Exception, match=r"(?i)checksum"):
        spark.read.parquet(str(tmp_path / "rows")).collect()


def _umask() -> int:
    found = os.umask(0o022)
    os.umask(found)
    return found


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A cache of jars with those of the engine; nothing was made in it."""
    settings = Settings.from_environment({"DE_HOME": str(tmp_path), "DE_JARS": str(tmp_path / "jars")})
    settings.jars.mkdir()
    (settings.jars / "engine").symlink_to(Path(os.environ["DE_JARS"]) / "engine")
    return settings


def made_before(settings: Settings) -> Path:
    """The jar that the engine of the tests has, as if it had been made for these settings: its compiler takes two seconds."""
    (jar,) = local_files(Settings.from_environment({"DE_JARS": os.environ["DE_JARS"]}))
    return Path(shutil.copy(jar, settings.jars))


def test_it_is_made_once_and_again_for_another_source(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = class_archive(settings)
    assert local_files_conf(settings, "local[2]") == {}
    jar = made_before(settings)
    assert keep_local_files(settings) == jar
    assert class_archive(settings) != before, "classes are kept for one class path"

    other = tmp_path / "other.scala"
    shutil.copy(PROJECT / "de_resources/local/local_files.scala", other)
    other.write_text(other.read_text() + "\n// another\n")
    monkeypatch.setattr("de_resources.local.local_files._SOURCE", other)
    assert local_files(settings) == []
    again = keep_local_files(settings)
    assert again is not None
    assert again != jar
    made = again.stat().st_mtime_ns
    assert keep_local_files(settings) == again
    assert again.stat().st_mtime_ns == made
    assert [path for path in settings.jars.iterdir() if path.suffix == ".jar"] == [again]


def test_engines_of_one_process_are_told_of_it_and_those_of_a_cluster_are_not(settings: Settings) -> None:
    jar = made_before(settings)
    own, of_cluster = (engine_conf(settings, master) for master in ("local[2]", "spark://127.0.0.1:7077"))
    assert str(jar) in own["spark.driver.extraClassPath"].split(os.pathsep)
    assert own["spark.hadoop.fs.file.impl"].endswith("LocalFiles")
    assert [name for name in of_cluster if name.startswith("spark.hadoop.fs")] == []
    assert engine_conf(settings, "local-cluster[1,1,1024]") == of_cluster


@pytest.mark.parametrize("java", ["", "exit 1"])
def test_engines_start_without_it_where_it_cannot_be_made(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: str
) -> None:
    """No Java, and one that cannot run the compiler."""
    if java:
        program(tmp_path / "jdk" / "bin", "java", java)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert keep_local_files(settings) is None
    assert local_files(settings) == []
    assert {path.name for path in settings.jars.iterdir()} == {"engine", ".lock"}


def test_jars_that_nobody_may_write_beside_are_used_without_it(tmp_path: Path) -> None:
    """As a cache that is shared read-only; a file in the place of the folder refuses everybody, root as well."""
    (tmp_path / "jars").write_text("")
    ours = Settings.from_environment({"DE_HOME": str(tmp_path), "DE_JARS": str(tmp_path / "jars")})
    assert keep_local_files(ours) is None
