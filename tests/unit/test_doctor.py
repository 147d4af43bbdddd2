"""`de doctor`: each check with something good and something bad in front of it, and the command as a whole."""

import ast
import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_modules import trees
from programs import program
from typer.testing import CliRunner

from de_assets.catalogue import PROJECT
from de_assets.cli.application import application
from de_assets.cli.doctor import diagnosis, machine, packages, services, variables
from de_assets.cli.doctor.finding import Finding, FindingVerdict
from de_resources.capture import CaptureSource, CaptureStatus
from de_resources.local.endpoints import ServiceState, ServiceStatus
from de_resources.local.jars import engine_jars
from de_resources.settings import Settings

# Java


def test_java_on_the_path_is_well() -> None:
    finding = machine.check_java()

    assert finding.verdict is FindingVerdict.OK
    assert re.search(r"Java (1[7-9]|[2-9]\d) at /", finding.detail)


def test_no_java_on_the_path_fails_with_the_command_to_install_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    finding = machine.check_java()

    assert finding.verdict is FindingVerdict.FAIL
    assert finding.detail.startswith("none on the PATH")
    assert finding.remedy is not None
    assert finding.remedy.startswith("Run `apt-get install -y openjdk-")


def test_a_java_home_without_java_is_named_even_if_the_path_has_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    finding = machine.check_java()

    assert finding.verdict is FindingVerdict.FAIL
    assert f"none in JAVA_HOME ({tmp_path})" in finding.detail
    assert finding.remedy is not None
    assert "unset" in finding.remedy


@pytest.mark.parametrize(("banner", "found"), [("1.8.0_402", "Java 8"), ("11.0.22", "Java 11")])
def test_an_old_java_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, banner: str, found: str) -> None:
    java = program(tmp_path, "java", f"echo 'openjdk version \"{banner}\"' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java.parent))

    finding = machine.check_java()

    assert finding.verdict is FindingVerdict.FAIL
    assert finding.detail.startswith(f"{found} on the PATH; Java 17 or newer")


# Python, PostgreSQL, disk, browser


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("3.11.7", FindingVerdict.OK), ("3.12.0rc1", FindingVerdict.OK), ("3.10.14", FindingVerdict.FAIL)],
)
def test_python_has_to_fit(version: str, verdict: FindingVerdict) -> None:
    assert machine.check_python(">=3.11,<3.13", version).verdict is verdict


def test_this_python_fits_the_project() -> None:
    assert (
        machine.check_python(packages.Pins.of_project(PROJECT / "pyproject.toml").python).verdict is FindingVerdict.OK
    )


def test_postgresql_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DE_POSTGRES_BIN", str(tmp_path))

    finding = machine.check_postgres(Settings.from_environment({"DE_HOME": str(tmp_path / "home")}))

    assert finding.verdict is FindingVerdict.WARN
    assert finding.remedy == "Run `apt-get install -y postgresql`, then `de up postgres`."


def test_postgresql_of_another_version_than_the_data_does_not_serve(tmp_path: Path) -> None:
    settings = Settings.from_environment({"DE_HOME": str(tmp_path)})
    (tmp_path / "postgres" / "data").mkdir(parents=True)
    (tmp_path / "postgres" / "data" / "PG_VERSION").write_text("9\n")

    assert machine.check_postgres(settings).verdict is FindingVerdict.WARN


@pytest.mark.parametrize(
    ("free", "verdict"),
    [(2**30, FindingVerdict.FAIL), (5 * 2**30, FindingVerdict.WARN), (50 * 2**30, FindingVerdict.OK)],
)
def test_disk_space_of_a_home_that_does_not_exist_yet(tmp_path: Path, free: int, verdict: FindingVerdict) -> None:
    finding = machine.check_disk(tmp_path / "not" / "yet", free)

    assert finding.verdict is verdict
    assert f"GiB free under {tmp_path}" in finding.detail


def test_disk_space_is_measured(tmp_path: Path) -> None:
    measured = float(machine.check_disk(tmp_path).detail.split()[0])

    assert measured == pytest.approx(shutil.disk_usage(tmp_path).free / 2**30, abs=1.0)


def test_a_browser_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = machine.check_browser()
    chrome = program(tmp_path, "google-chrome", "")

    assert missing.verdict is FindingVerdict.WARN
    assert "apt-get install -y chromium" in (missing.remedy or "")
    assert machine.check_browser() == Finding("chromium", FindingVerdict.OK, str(chrome))


# Packages and jars


def test_pinned_packages_are_installed() -> None:
    pins = packages.Pins.of_project(PROJECT / "pyproject.toml")

    assert len(pins.packages) > 10
    assert packages.check_packages(pins.packages).verdict is FindingVerdict.OK


def test_without_a_project_file_the_pins_are_those_of_the_installation(tmp_path: Path) -> None:
    pins = packages.Pins.of_project(tmp_path / "pyproject.toml")

    assert any(requirement.startswith("pyspark[connect]==") for requirement in pins.packages)
    assert not any("pytest" in requirement for requirement in pins.packages)


def test_wrong_and_missing_packages_are_all_named() -> None:
    finding = packages.check_packages(["pyspark==1.0", "de-no-such-package>=2", "typer>=0.1", 'x; python_version<"3"'])

    assert finding.verdict is FindingVerdict.FAIL
    assert re.fullmatch(r"pyspark is [\d.]+ instead of ==1\.0; de-no-such-package is not installed", finding.detail)
    assert "pip install" in (finding.remedy or "")


@pytest.mark.parametrize(("jar_set", "verdict"), [("engine", FindingVerdict.FAIL), ("broker", FindingVerdict.WARN)])
def test_jars_that_were_not_fetched(tmp_path: Path, jar_set: str, verdict: FindingVerdict) -> None:
    finding = packages.check_jars(Settings.from_environment({"DE_HOME": str(tmp_path)}), jar_set)

    assert finding.verdict is verdict
    assert "`de up`" in (finding.remedy or "")


def test_an_altered_jar_is_named(tmp_path: Path) -> None:
    cache = Settings.from_environment().jars / "engine"
    copy = Settings.from_environment({"DE_HOME": str(tmp_path)})
    shutil.copytree(cache, copy.jars / "engine")
    intact = packages.check_jars(copy, "engine")
    jar = engine_jars(copy)[0]
    with jar.open("r+b") as file:
        file.write(b"XX")

    altered = packages.check_jars(copy, "engine")

    assert intact.verdict is FindingVerdict.OK
    assert altered.verdict is FindingVerdict.FAIL
    assert altered.detail == f"not as locked: {jar.name}"
    assert f"rm -r '{copy.jars / 'engine'}'" in (altered.remedy or "")


# Services and ports


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (ServiceState.RUNNING, FindingVerdict.OK),
        (ServiceState.STOPPED, FindingVerdict.OK),
        (ServiceState.STARTING, FindingVerdict.WARN),
        (ServiceState.LEFT_OUT, FindingVerdict.WARN),
        (ServiceState.FAILED, FindingVerdict.FAIL),
    ],
)
def test_a_service_in_each_state(state: ServiceState, verdict: FindingVerdict) -> None:
    finding = services.check_service(ServiceStatus("kafka", state, 9092, why="because."))

    assert finding.verdict is verdict
    assert (finding.remedy is None) == (verdict is FindingVerdict.OK)
    assert ("because." in finding.detail) == (verdict is not FindingVerdict.OK)


@pytest.mark.pattern("change_data_capture")
@pytest.mark.parametrize(
    ("slot", "verdict", "says"),
    [
        (None, FindingVerdict.OK, "keeps nothing"),
        (
            CaptureStatus(active=True, confirmed_lsn=1, retained_bytes=2**20, is_lost=False),
            FindingVerdict.OK,
            "1.0 MiB",
        ),
        (
            CaptureStatus(active=False, confirmed_lsn=1, retained_bytes=2**21, is_lost=False),
            FindingVerdict.WARN,
            "2.0 MiB",
        ),
        (
            CaptureStatus(active=True, confirmed_lsn=1, retained_bytes=2**31, is_lost=False),
            FindingVerdict.WARN,
            "2,048.0 MiB",
        ),
        (
            CaptureStatus(active=False, confirmed_lsn=1, retained_bytes=0, is_lost=True),
            FindingVerdict.FAIL,
            "changes are missing",
        ),
    ],
)
def test_a_slot_in_each_state(slot: CaptureStatus | None, verdict: FindingVerdict, says: str) -> None:
    finding = services.check_slot(CaptureSource("users", ("public.users",), "users"), slot)

    assert finding.verdict is verdict
    assert says in finding.detail
    assert (finding.remedy is None) == (verdict is FindingVerdict.OK)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _port_finding(value: str, statuses: list[ServiceStatus] | None = None) -> Finding:
    (finding,) = services.check_ports({"DE_KAFKA_PORT": value}, statuses or [])
    return finding


def test_a_port_of_another_process_fails(taken: int) -> None:
    finding = _port_finding(str(taken))

    assert finding.verdict is FindingVerdict.FAIL
    assert "`unset DE_KAFKA_PORT`" in (finding.remedy or "")


def test_a_port_that_our_service_uses_is_well(taken: int) -> None:
    running = ServiceStatus("kafka", ServiceState.RUNNING, taken)
    elsewhere = ServiceStatus("postgres", ServiceState.RUNNING, taken)

    assert _port_finding(str(taken), [running]).verdict is FindingVerdict.OK
    assert _port_finding(str(taken), [elsewhere]).verdict is FindingVerdict.FAIL


@pytest.mark.parametrize("value", ["0", "65536", "-1", "kafka", "9092x"])
def test_what_is_no_port_fails(value: str) -> None:
    assert _port_finding(value).detail == f"`{value}` is not a port"


def test_ports_that_nobody_configured_are_no_matter() -> None:
    assert list(services.check_ports({"DE_KAFKA_PORT": ""}, [])) == []


# Variables


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("DE_SPARK", "sc://localhost:15002/;token=t", "localhost:15002"),
        ("DE_SPARK", "local[2]", "local[two]"),
        ("DE_SPARK_DRIVER_MEMORY", "3g", "lots"),
        ("LAKE_ROOT", "~/lake", "s3a://bucket/lake"),
        ("DE_STAGING_ROOT", "file:///lake", "abfss://lake@acc.dfs.core.windows.net/x"),
        ("DE_HOME", "~/somewhere", __file__),
        ("DE_POSTGRES_DATABASE", "blog", "blog; drop"),
        ("DE_IVY_SETTINGS", __file__, "/nowhere.xml"),
    ],
)
def test_values_are_judged(name: str, good: str, bad: str) -> None:
    (well,) = variables.check_variables({name: good, "HOME": "/root"})
    (ill,) = variables.check_variables({name: bad})

    assert well == Finding("variables", FindingVerdict.OK, name)
    assert (ill.name, ill.verdict) == (name, FindingVerdict.FAIL)
    assert f"`unset {name}`" in (ill.remedy or "")


def test_a_misspelt_variable_is_noticed() -> None:
    (finding,) = variables.check_variables({"DE_HOEM": "/x"})

    assert finding.verdict is FindingVerdict.WARN
    assert "DE_HOME" in (finding.remedy or "")


def test_an_armed_crash_point_is_noticed() -> None:
    (finding,) = variables.check_variables({"DE_KILL_AT": "after_commit"})

    assert finding.verdict is FindingVerdict.WARN


def test_no_value_of_a_secret_or_of_an_address_is_shown() -> None:
    canary = "canary-value"
    environment = {"DE_SECRET_X": canary, "DE_SPARK": f"localhost:1/;token={canary}", "DE_TOKEN": canary}

    assert not any(canary in str(finding) for finding in variables.check_variables(environment))


@pytest.mark.xdist_group("imports")
def test_every_variable_that_the_code_reads_is_known() -> None:
    read = {
        node.value
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch("DE(_[A-Z]+)+", node.value)
    }
    error_classes = {"DE_ROW_OUTSIDE_SLICE", "DE_ROW_STORED_OUTSIDE_SLICE"}

    assert read - error_classes <= set(variables.KNOWN)


# The command


def test_the_doctor_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"

    findings = diagnosis.diagnose(Settings.from_environment({"DE_HOME": str(home)}), {})

    assert not home.exists()
    assert [f.name for f in findings if f.name.startswith("service ")] == [
        "service spark_connect",
        "service postgres",
        "service kafka",
        "service capture",
        "service pages",
        "service partner",
        "service geo",
    ]


def test_people_see_a_line_per_finding_with_the_whole_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    result = CliRunner().invoke(application(), ["doctor"])

    assert result.exit_code == 1
    assert machine.INSTALL_JAVA in result.stdout
    assert re.search(r"^ok +python +Python 3", result.stdout, re.MULTILINE)


def test_a_machine_without_failures_ends_with_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DE_KILL_AT", "after_commit")

    result = CliRunner().invoke(application(), ["doctor", "--json"])

    findings = json.loads(result.stdout)
    assert "fail" not in {finding["verdict"] for finding in findings}
    assert [f["verdict"] for f in findings if f["name"] == "DE_KILL_AT"] == ["warn"]
    assert result.exit_code == 0


def test_an_object_store_is_a_finding_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_ROOT", "s3a://bucket/lake")

    result = CliRunner().invoke(application(), ["doctor", "--json"])

    assert result.exit_code == 1
    (found,) = [f for f in json.loads(result.stdout) if f["name"] == "LAKE_ROOT"]
    assert found["verdict"] == "fail"
    assert "keeps its tables in folders only" in found["detail"]
