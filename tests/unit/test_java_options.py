"""How engines and the broker are started: with a collector that works while they stand, unless the environment names one."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import program

from de_resources.local.engine_conf import engine_conf
from de_resources.local.java import java_executable, process_option
from de_resources.local.kafka_server import KafkaService
from de_resources.settings import Settings

VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return Settings.from_environment({"DE_HOME": str(tmp_path), "DE_JARS": os.environ["DE_JARS"]})


def of_the_engine(settings: Settings) -> list[str]:
    return shlex.split(engine_conf(settings, "local[2]")["spark.driver.extraJavaOptions"])


def of_the_broker(settings: Settings) -> list[str]:
    broker = KafkaService(settings)
    formatted = broker.folder / "data" / "meta.properties"
    formatted.parent.mkdir(parents=True)
    formatted.touch()
    command = broker.prepare({"client": 9092, "controller": 9093}).command
    return [option for option in command if option.startswith("-XX")]


def flags(options: list[str]) -> dict[str, str]:
    """What a JVM that is started with the options says of its flags."""
    command = [str(java_executable()), *options, "-XX:+PrintFlagsFinal", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = (line.split() for line in done.stdout.splitlines() if "=" in line)
    return {words[1]: words[3] for words in told if len(words) > 3}


def test_an_engine_optimises_later_and_has_no_collector_beside_it(settings: Settings) -> None:
    usual, own = flags([]), flags(of_the_engine(settings))
    assert (own["UseParallelGC"], own["UseG1GC"]) == ("true", "false")
    later = {
        name: int(own[name]) / int(usual[name]) for name in usual if name.startswith("Tier4") and "Load" not in name
    }
    assert {name for name, times in later.items() if times == 10} >= {
        "Tier4InvocationThreshold",
        "Tier4MinInvocationThreshold",
        "Tier4CompileThreshold",
        "Tier4BackEdgeThreshold",
    }
    assert own["TieredStopAtLevel"] == "4", "a table of millions of rows needs the optimising compiler"


def test_the_compilers_of_an_engine_copy_less_of_what_is_called(settings: Settings) -> None:
    usual, own = flags([]), flags(of_the_engine(settings))
    copied = ("FreqInlineSize", "InlineSmallCode", "MaxInlineLevel", "C1MaxInlineSize", "C1MaxInlineLevel")
    assert all(0 < int(own[name]) < int(usual[name]) for name in copied)


@pytest.mark.parametrize("variable", VARIABLES)
def test_who_names_the_compilers_has_them_as_java_has_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """With less of what it calls in it, code of the first compiler alone is a tenth slower."""
    monkeypatch.setenv(variable, "-XX:TieredStopAtLevel=1")
    usual, own = flags([]), flags(of_the_engine(settings))
    assert {name for name in usual if "Inline" in name and own[name] != usual[name]} == set()


def test_the_broker_does_without_the_optimising_compiler(settings: Settings) -> None:
    own = flags(of_the_broker(settings))
    assert (own["TieredStopAtLevel"], own["UseSerialGC"]) == ("1", "true")


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("of", [of_the_engine, of_the_broker])
def test_who_names_a_collector_keeps_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, variable: str, of: Callable[[Settings], list[str]]
) -> None:
    """A JVM that is told of two does not start."""
    monkeypatch.setenv(variable, "-Dx=1 -XX:+UseG1GC")
    assert flags(of(settings))["UseG1GC"] == "true"


@pytest.mark.parametrize(
    ("platform", "version", "expected"),
    [
        ("linux", "17.0.15", "-Djdk.lang.Process.launchMechanism=VFORK"),
        ("linux", "24", "-Djdk.lang.Process.launchMechanism=VFORK"),
        ("linux", "25", ""),
        ("darwin", "17.0.15", ""),
    ],
)
def test_programs_are_started_by_vfork_where_java_has_it_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, version: str, expected: str
) -> None:
    program(tmp_path / "bin", "java", f"echo 'openjdk version \"{version}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", platform)
    assert process_option() == expected


def test_an_engine_is_told_of_it(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("de_resources.local.engine_conf.process_option", lambda: "-Dstarts=programs")
    assert "-Dstarts=programs" in of_the_engine(settings)
