"""The archive of the engine's classes: its options are given where it is, it belongs to one Java, and nothing depends on it."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from programs import program

from de_resources.loaded_classes import keep_loaded_classes
from de_resources.local.class_archive import archive_options, class_archive
from de_resources.local.engine_conf import engine_conf
from de_resources.local.java import java_executable
from de_resources.local.spark_connect import SPARK_HOME, SparkConnectService
from de_resources.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"DE_HOME": str(tmp_path), "DE_JARS": str(tmp_path / "the jars")})


def made(settings: Settings, content: bytes = b"") -> Path:
    archive = class_archive(settings)
    assert archive is not None
    archive.parent.mkdir(parents=True)
    archive.write_bytes(content)
    return archive


def test_an_engine_is_told_of_it_where_it_is(settings: Settings) -> None:
    assert archive_options(settings) == ""
    archive = made(settings)
    assert f"-XX:SharedArchiveFile={archive}" in shlex.split(archive_options(settings))


def test_both_kinds_of_engines_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Settings.from_environment({"DE_HOME": str(tmp_path), "DE_JARS": os.environ["DE_JARS"]})
    monkeypatch.setattr("de_resources.local.class_archive.archive_options", lambda _: "-Dkept=classes")
    assert "-Dkept=classes" in shlex.split(engine_conf(ours, "local[2]")["spark.driver.extraJavaOptions"])
    server = SparkConnectService(ours)
    server.prepare({"client": 15002})
    (told,) = (line for line in (server.folder / "server.properties").read_text().splitlines() if "extraJava" in line)
    assert "-Dkept=classes" in shlex.split(told)


def test_another_java_has_another_one(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(settings)
    program(tmp_path / "jdk" / "bin", "java", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert archive_options(settings) == ""


def test_other_jars_of_the_engine_have_another_one(settings: Settings) -> None:
    jar = settings.jars / "engine" / "delta.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"one")
    made(settings)
    assert archive_options(settings)
    jar.write_bytes(b"another")
    assert archive_options(settings) == ""


def test_one_that_does_not_fit_costs_nothing_but_time(settings: Settings) -> None:
    made(settings, b"no archive " * 1000)
    command = [str(java_executable()), *shlex.split(archive_options(settings)), "-XX:-UsePerfData", "-version"]
    plain = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, "warning" in done.stderr) == ("", False)


def test_an_engine_has_the_classes_that_were_kept(settings: Settings) -> None:
    settings.jars.mkdir()
    for jar_set in ("engine", "broker"):
        (settings.jars / jar_set).symlink_to(Settings.from_environment().jars / jar_set)
    archive = keep_loaded_classes(settings)
    assert archive is not None
    assert [path.name for path in archive.parent.iterdir() if path.name != ".lock"] == [archive.name]
    made_at = archive.stat().st_mtime_ns
    assert keep_loaded_classes(settings) == archive
    assert archive.stat().st_mtime_ns == made_at, "it is made once"

    # A class without a program: it is loaded, and that is all.
    ours, of_delta = "org.apache.spark.deploy.SparkSubmit", "io.delta.sql.DeltaSparkSessionExtension"
    conf = engine_conf(settings, "local[2]")
    told = f"{conf['spark.driver.extraJavaOptions']} -Xlog:class+load=info:stdout"
    found = ["--driver-class-path", conf["spark.driver.extraClassPath"], "--driver-java-options", told]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), *found, "--class", of_delta, "spark-internal"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for each in (ours, of_delta):
        assert f"{each} source: shared objects file (top)" in done.stdout, each
