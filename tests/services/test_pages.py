"""The pages that assets link to: served on loopback, from the rooms of the home and from nowhere else."""

import json
import os
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import dagster as dg
import pytest
from waiting import PATIENCE

from de_resources.local import LocalServices
from de_resources.local.pages_service import ROOMS, page_address
from de_resources.page_link import page_link
from de_resources.settings import Settings

pytestmark = [pytest.mark.services, pytest.mark.pattern("offline_observer")]

PAGE = "<!doctype html><title>orders</title>"
SECRET = "nobody's business"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("home")
    _write(folder / "profiles" / "silver" / "orders.html", PAGE)
    _write(folder / "profiles" / "silver" / "a b.html", PAGE)
    for hidden in (
        "profiles/silver/orders.json",
        "profiles/.draft-1/orders.html",
        "profiles/silver/.orders.html",
        "secrets/postgres",
        "secrets/page.html",
        "lake/page.html",
        "profiles-old/page.html",
        "page.html",
    ):
        _write(folder / hidden, SECRET)
    (folder / "profiles" / "out.html").symlink_to(folder / "secrets" / "page.html")
    (folder / "profiles" / "away").symlink_to(folder / "secrets")
    settings = Settings.from_environment({"DE_HOME": str(folder), "DE_JARS": os.environ["DE_JARS"]})
    services = LocalServices(settings)
    services.up(["pages"])
    try:
        yield settings
    finally:
        services.down()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def ask(home: Settings, path: str, method: str = "GET", host: str | None = None) -> tuple[HTTPResponse, str]:
    """The answer to a request line that no client has tidied up."""
    endpoint = LocalServices(home).endpoint("pages")
    assert endpoint is not None
    connection = HTTPConnection(endpoint.host, endpoint.port, timeout=PATIENCE)
    connection.putrequest(method, path, skip_host=host is not None)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_a_page_is_served_and_forbidden_to_fetch_from_elsewhere(home: Settings) -> None:
    answer, text = ask(home, "/profiles/silver/orders.html")
    assert (answer.status, text) == (200, PAGE)
    assert str(answer.getheader("content-type")).startswith("text/html")
    assert "default-src 'none'" in str(answer.getheader("content-security-policy"))
    assert answer.getheader("x-content-type-options") == "nosniff"
    assert ask(home, "/profiles/silver/orders.html", "HEAD")[0].status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/profiles",
        "/profiles/",
        "/profiles/silver/",
        "/profiles/silver/orders.json",
        "/profiles/.draft-1/orders.html",
        "/profiles/silver/.orders.html",
        "/profiles/out.html",
        "/profiles/away/page.html",
        "/page.html",
        "/secrets/postgres",
        "/secrets/page.html",
        "/lake/page.html",
        "/profiles-old/page.html",
        "/profiles/../secrets/page.html",
        "/profiles/../../etc/passwd",
        "/profiles/%2e%2e/secrets/page.html",
        "/profiles/..%2fsecrets%2fpage.html",
        "/profiles/%252e%252e/secrets/page.html",
        "/profiles/..%5csecrets%5cpage.html",
        "/profiles//etc/passwd",
        "/profiles/%00orders.html",
        f"/profiles/{'x' * 5000}.html",
        "//secrets/page.html",
    ],
)
def test_nothing_else_is_served_or_listed(home: Settings, path: str) -> None:
    answer, text = ask(home, path)
    assert answer.status in (307, 404), text
    assert SECRET not in text
    assert "orders" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_pages_can_only_be_read(home: Settings, method: str) -> None:
    answer, _ = ask(home, "/profiles/silver/orders.html", method)
    assert answer.status == 405
    assert (home.home / "profiles" / "silver" / "orders.html").read_text() == PAGE


def test_another_name_for_this_machine_is_refused(home: Settings) -> None:
    """A page on the web can give its own name the address of the loopback, and would then read ours."""
    answer, text = ask(home, "/profiles/silver/orders.html", host="attacker.example")
    assert answer.status == 400
    assert PAGE not in text


def test_a_room_that_is_written_later_is_served_too(home: Settings) -> None:
    """As a site that is exchanged in one step: its folder is a link to the newest state beside it."""
    assert ask(home, "/observatory/index.html")[0].status == 404
    _write(home.home / ".observatory-1" / "index.html", "first")
    (home.home / "observatory").symlink_to(".observatory-1")
    assert ask(home, "/observatory/")[1] == "first"
    _write(home.home / ".observatory-2" / "index.html", "second")
    (home.home / "next").symlink_to(".observatory-2")
    (home.home / "next").replace(home.home / "observatory")
    assert ask(home, "/observatory/index.html")[1] == "second"


def test_the_address_of_a_page_is_the_one_that_opens_it(home: Settings) -> None:
    page = home.home / "profiles" / "silver" / "a b.html"
    address = page_address(home, page)
    endpoint = LocalServices(home).endpoint("pages")
    assert endpoint is not None
    assert address == f"http://{endpoint.address}/profiles/silver/a%20b.html"
    assert ask(home, address.removeprefix(f"http://{endpoint.address}"))[1] == PAGE
    assert isinstance(page_link(page, home), dg.UrlMetadataValue)


def test_what_is_not_served_has_no_address(home: Settings, tmp_path: Path) -> None:
    assert page_address(home, home.home / "secrets" / "page.html") is None
    assert page_address(home, tmp_path / "profiles" / "page.html") is None
    never_served = Settings.from_environment({"DE_HOME": str(tmp_path)})
    assert page_address(never_served, tmp_path / "profiles" / "page.html") is None
    assert page_link(tmp_path / "page.html", never_served) == dg.MetadataValue.path(tmp_path / "page.html")


def test_the_address_stays_after_a_restart(home: Settings) -> None:
    page = home.home / ROOMS[0] / "page.html"
    before = page_address(home, page)
    services = LocalServices(home)
    services.down()
    assert page_address(home, page) == before, "a link that was recorded goes on to be the one"
    services.up(["pages"])
    assert page_address(home, page) == before
    assert json.loads((home.home / "run" / "ports" / "pages.json").read_text())["client"] > 0
