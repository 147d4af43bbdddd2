"""What the webserver shows of the data: columns and where they come from, and nothing that identifies a person."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from web_ui import METADATA, WebUI, entry

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
        assert enriched[column] == {("silver/visits", column)}
    assert ("silver/users", "country") in enriched["country"]
    assert ("silver/devices", "full_name") in enriched["device_name"]


@pytest.mark.parametrize(
    ("column", "landed"), [("users", "user_id"), ("referral", "referral"), ("bot_visits", "is_bot")]
)
def test_a_gold_column_can_be_followed_to_what_landed(web: WebUI, column: str, landed: str) -> None:
    assert origins(web, "gold/visits_cube_daily", column, upto="bronze/visits") == {landed}


def test_no_answer_holds_personal_data_or_a_secret(web: WebUI, lakehouse: dict[str, str]) -> None:
    home = Path(lakehouse["DE_HOME"])
    told = json.dumps(everything(web), ensure_ascii=False)
    landed = "".join(file.read_text(errors="replace") for file in _files(home / "landing" / "visits"))
    addresses = set(re.findall(r'"ip":\s*"([^"]+)"', landed))
    logins = set(re.findall(r'"login":\s*"([^"]+)"', landed))
    secrets = {file.read_text().strip() for file in _files(home / "secrets")} if (home / "secrets").exists() else set()

    assert len(addresses) > 50
    assert len(logins) > 20
    assert REDACTED in told, "the walk met previews of tables with personal columns"
    assert [address for address in addresses if address in told] == []
    assert [login for login in logins if login in told] == []
    assert not re.search(r"[\w.+-]+@[\w-]+\.[\w.]+", told)
    assert [secret for secret in secrets if secret in told] == []


def everything(web: WebUI) -> list[Mapping[str, Any]]:
    """All events of all assets with their metadata, all verdicts of their checks, and all messages of all runs."""
    query = (
        "{ assetNodes { assetKey { path } "
        + METADATA
        + " assetMaterializations(limit: 1000) { message label description tags { key value } "
        + METADATA
        + " } assetObservations(limit: 1000) { message "
        + METADATA
        + " } assetChecksOrError { ... on AssetChecks { checks { name description } } } } "
        "runsOrError { ... on Runs { results { runId tags { key value } runConfigYaml } } } }"
    )
    answer = web.ask(query)
    checks = [
        (node["assetKey"], check["name"])
        for node in answer["assetNodes"]
        for check in node["assetChecksOrError"].get("checks", [])
    ]
    verdicts = [web.ask(_VERDICTS, key={"path": key["path"]}, check=check) for key, check in checks]
    messages = [web.ask(_MESSAGES, run=run["runId"]) for run in answer["runsOrError"]["results"]]
    assert len(verdicts) > 5
    assert len(messages) >= 5
    return [answer, *verdicts, *messages]


_VERDICTS = (
    """query Verdicts($key: AssetKeyInput!, $check: String!) {
    assetCheckExecutions(assetKey: $key, checkName: $check, limit: 1000) {
        status partition evaluation { description """
    + METADATA
    + " } } }"
)
_MESSAGES = """query Messages($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events {
    __typename ... on MessageEvent { message level stepKey } ... on ErrorEvent { error { message stack } } } } } }"""


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
