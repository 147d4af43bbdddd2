"""What the webserver shows of the data: columns and where they come from, and nothing that identifies a person."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
import secret_runs
import warm_process
from deltalake import DeltaTable
from secret_runs import NOBODY_ANSWERS
from web_ui import LOCATION, METADATA, WebUI, entry

from de_assets.contracts.traffic import VisitsCubeDaily
from de_assets.contracts.visits import Visits, VisitsEnriched
from de_resources.contract import REDACTED, Contract

pytestmark = pytest.mark.ui

Source = tuple[str, str]
"""An asset and one of its columns."""

CONTRACTS = {
    "silver/visits": Contract.of(Visits),
    "silver/visits_enriched": Contract.of(VisitsEnriched),
    "gold/visits_cube_daily": Contract.of(VisitsCubeDaily),
}


def latest(web: WebUI, name: str) -> dict[str, Any]:
    """The newest materialisation of an asset."""
    events = web.asset(name, "assetMaterializations(limit: 1) { " + METADATA + " }")["assetMaterializations"]
    newest: dict[str, Any] = events[0]
    return newest


def sources(web: WebUI, name: str) -> dict[str, set[Source]]:
    """The columns from which each column of an asset is computed."""
    lineage = entry(latest(web, name), "dagster/column_lineage")["lineage"]
    return {
        line["columnName"]: {("/".join(dep["assetKey"]["path"]), dep["columnName"]) for dep in line["columnDeps"]}
        for line in lineage
    }


def origins(web: WebUI, asset: str, column: str, upto: str) -> set[str]:
    """The columns of the asset `upto` that are found by following the lineage of a column upstream."""
    reached: set[Source] = set()
    ahead = {(asset, column)}
    while ahead:
        reached |= ahead
        further = {source for name, col in ahead if name != upto for source in _of(web, name).get(col, set())}
        ahead = further - reached
    return {column for name, column in reached if name == upto}


def _of(web: WebUI, name: str) -> dict[str, set[Source]]:
    layer = name.split("/")[0]
    return sources(web, name) if layer in ("silver", "gold") and name != "silver/users" else {}


@pytest.mark.parametrize("name", CONTRACTS)
def test_columns_are_documented_as_in_the_contract(web: WebUI, name: str) -> None:
    shown = {
        column["name"]: column for column in entry(latest(web, name), "dagster/column_schema")["schema"]["columns"]
    }
    declared = {column.name: column for column in CONTRACTS[name].columns}
    assert list(shown) == list(declared)
    for column_name, column in declared.items():
        assert shown[column_name]["type"] == column.type.simpleString()
        assert shown[column_name]["description"] == column.description != ""
        assert shown[column_name]["constraints"]["nullable"] == column.nullable
        assert ([tag["key"] for tag in shown[column_name]["tags"]] == ["personal"]) == column.personal


def test_gold_columns_come_from_the_columns_that_the_code_reads(web: WebUI) -> None:
    cube = sources(web, "gold/visits_cube_daily")
    enriched = "silver/visits_enriched"
    for dimension in ("country", "device_type", "referral"):
        assert cube[dimension] == {(enriched, dimension)}
    assert cube["users"] == {(enriched, "user_id")}
    assert cube["bot_visits"] == {(enriched, "is_bot")}
    assert (enriched, "event_time") in cube["event_date"]


def test_enriched_columns_come_from_visits_users_and_devices(web: WebUI) -> None:
    enriched = sources(web, "silver/visits_enriched")
    for column in ("visit_id", "event_time", "user_id", "page"):
        assert enriched[column] == {(name, column) for name in ("silver/visits", "silver/visits_late")}
    assert ("silver/users", "country") in enriched["country"]
    assert ("silver/devices", "full_name") in enriched["device_name"]


@pytest.mark.parametrize(
    ("column", "landed"), [("users", "user_id"), ("referral", "referral"), ("bot_visits", "is_bot")]
)
def test_a_gold_column_can_be_followed_to_what_landed(web: WebUI, column: str, landed: str) -> None:
    assert origins(web, "gold/visits_cube_daily", column, upto="bronze/visits") == {landed}


@pytest.fixture(scope="module")
def canaries(lakehouse: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Secrets by where they are, after runs that were given them and failed with them."""
    planted = {place: f"canary-{place}-{uuid4().hex}" for place in ("variable", "file", "address")}
    secrets = Path(lakehouse["DE_HOME"]) / "secrets"
    secrets.mkdir(mode=0o700, exist_ok=True)
    (secrets / "canary_of_a_file").write_text(planted["file"])
    given = {
        "DE_SECRET_CANARY_OF_THE_ENVIRONMENT": planted["variable"],
        "DE_SPARK": f"sc://{NOBODY_ANSWERS}/;token={planted['address']}",
    }
    said = tmp_path_factory.mktemp("canaries") / "said"
    process = warm_process.start("secret_runs:main", environment={**lakehouse, **given}, output=said)
    process.join(300)
    assert process.exitcode == 0, said.read_text()
    assert held(planted, said.read_text()) == [], "what a terminal, or the file that it goes to, is told"
    return planted


@pytest.fixture(scope="module")
def told(web: WebUI, canaries: dict[str, str]) -> str:
    """All that the webserver tells about assets, checks, runs and resources."""
    return json.dumps(everything(web), ensure_ascii=False)


def held(values: Mapping[str, str] | set[str], text: str) -> list[str]:
    """The values that a text holds, also in the forms in which addresses and headers write them."""
    known = values.values() if isinstance(values, Mapping) else values
    return [v for v in known if v in text or quote(v, safe="") in text or b64encode(v.encode()).decode() in text]


def test_no_answer_holds_personal_data(told: str, lakehouse: dict[str, str]) -> None:
    landed = "".join(
        file.read_text(errors="replace") for file in _files(Path(lakehouse["DE_HOME"]) / "landing" / "visits")
    )
    addresses = set(re.findall(r'"ip":\s*"([^"]+)"', landed))
    logins = set(re.findall(r'"login":\s*"([^"]+)"', landed))

    assert len(addresses) > 50
    assert len(logins) > 20
    stored = str(DeltaTable(f"{lakehouse['DE_HOME']}/lake/bronze/visits").to_pyarrow_table().to_pylist())
    assert len(held(addresses, stored)) > 50, "the search finds them where they are allowed"
    assert len(held(logins, stored)) > 20
    assert REDACTED in told, "the walk met previews of tables with personal columns"
    assert held(addresses, told) == []
    assert held(logins, told) == []
    assert not re.search(r"[\w.+-]+@[\w-]+\.[\w.]+", told)


def test_no_answer_holds_a_secret(told: str, canaries: dict[str, str], lakehouse: dict[str, str]) -> None:
    private = {file.name: file.read_text().strip() for file in _files(Path(lakehouse["DE_HOME"]) / "secrets")}
    private["engine"] = lakehouse["DE_SPARK"].partition("token=")[2]
    assert held(canaries, "".join(private.values())) == [canaries["file"]], "the search finds it where it is allowed"
    assert all(private.values()), "the engine of these tests has a token, too"

    for reference in (secret_runs.BROKER["password"], secret_runs.DATABASE["password"]):
        assert str(reference) in told, "the configuration of the runs is shown"
    for said in (
        f"kafka at {NOBODY_ANSWERS}",
        f"postgres at {NOBODY_ANSWERS}",
        f"sc://{NOBODY_ANSWERS} does not answer",
    ):
        assert said in told, "the runs failed after they had the secret"
    assert held(canaries, told) == []
    assert held(private, told) == []


def everything(web: WebUI) -> list[Mapping[str, Any]]:
    """All events of all assets with their metadata, all verdicts of their checks, and of all runs the messages, errors and
    what they printed; the resources and the instance as they are configured."""
    query = (
        "{ assetNodes { assetKey { path } "
        + METADATA
        + " assetMaterializations(limit: 1000) { message label description tags { key value } "
        + METADATA
        + " } assetObservations(limit: 1000) { message "
        + METADATA
        + " } assetChecksOrError { ... on AssetChecks { checks { name description } } } } "
        "runsOrError { ... on Runs { results { runId tags { key value } runConfigYaml } } } instance { info } }"
    )
    answer = web.ask(query)
    resources = web.ask(_RESOURCES, location=LOCATION)
    checks = [
        (node["assetKey"], check["name"])
        for node in answer["assetNodes"]
        for check in node["assetChecksOrError"].get("checks", [])
    ]
    verdicts = [web.ask(_VERDICTS, key={"path": key["path"]}, check=check) for key, check in checks]
    messages = [web.ask(_MESSAGES, run=run["runId"]) for run in answer["runsOrError"]["results"]]
    captured = [
        web.ask(_CAPTURED, key=[run["runId"], "compute_logs", event["fileKey"]])
        for run, told in zip(answer["runsOrError"]["results"], messages, strict=True)
        for event in told["logsForRun"]["events"]
        if event.get("fileKey")
    ]
    assert len(verdicts) > 5
    assert len(messages) >= 5
    assert len(captured) >= 5
    return [answer, resources, *verdicts, *messages, *captured]


_VERDICTS = (
    """query Verdicts($key: AssetKeyInput!, $check: String!) {
    assetCheckExecutions(assetKey: $key, checkName: $check, limit: 1000) {
        status partition evaluation { description """
    + METADATA
    + " } } }"
)
_MESSAGES = """query Messages($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events {
    __typename ... on MessageEvent { message level stepKey } ... on LogsCapturedEvent { fileKey }
    ... on ErrorEvent { error { message stack errorChain { error { message stack } } } } } } } }"""
_CAPTURED = "query Captured($key: [String!]!) { capturedLogs(logKey: $key) { stdout stderr } }"
_RESOURCES = """query Resources($location: RepositorySelector!) {
    allTopLevelResourceDetailsOrError(repositorySelector: $location) { ... on ResourceDetailsList { results {
        name description configuredValues { key value type } } } } }"""


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
