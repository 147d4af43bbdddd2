"""Where an exported contract says that the dataset is read: of services that run, and without what opens them."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from jsonschema import Draft201909Validator

from de_assets.contract_documents import Documents, text_of
from de_assets.graph_assets import assets
from de_resources.local import LocalServices

pytestmark = [pytest.mark.services, pytest.mark.pattern("schema_compatibility_enforcer")]


def test_the_systems_that_serve_a_dataset_are_named_and_no_password(at_home: LocalServices) -> None:
    documents = Documents(assets, at_home.settings)
    database, broker = (at_home.endpoint(name) for name in ("postgres", "kafka"))
    assert database is not None
    assert broker is not None
    traffic, visits, topic = (
        documents.of(name) for name in ("serving.daily_traffic", "serving.visits_reduced", "sources.visits_topic")
    )
    (served,) = traffic["servers"]
    assert (served["type"], served["host"], served["port"]) == ("postgresql", database.host, database.port)
    assert (served["database"], served["schema"]) == (database.database, "serving")
    for document, name in ((visits, "visits_reduced"), (topic, "visits")):
        (server,) = document["servers"]
        assert (server["type"], server["host"]) == ("kafka", broker.address)
        assert server["customProperties"] == [{"property": "topic", "value": name}]
    schema = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text())
    secrets = {path.read_text().strip() for path in at_home.settings.secrets.iterdir()}
    for document in (traffic, visits, topic):
        assert not list(Draft201909Validator(schema).iter_errors(document))
        assert not any(secret in text_of(document) for secret in secrets)
