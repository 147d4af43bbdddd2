"""Which channels there are, those of others among them, and what is said to a mail server over an encrypted connection."""

from __future__ import annotations

import base64
import re
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

import pytest
from documentation import snippets

from de_assets.automation.alerting.channels import MailServerAddress, alert_sinks, why_broken
from de_assets.automation.alerting.sinks import AlertSink, EmailAlertSink
from de_assets.cli.doctor.channels import check_channels
from de_assets.cli.doctor.finding import FindingVerdict
from de_assets.cli.doctor.variables import check_variables
from de_resources.errors import PermanentError

ALERT = {"id": "1", "text": "ERROR: Run failed"}
MAIL = {
    "DE_ALERT_EMAIL": "a@example.org, b@example.org",
    "DE_ALERT_SMTP": "mail.example.org:587",
    "DE_ALERT_FROM": "de@example.org",
    "DE_ALERT_LOGIN": "de:secret://mail_password",
}


# Which there are


def test_the_environment_names_the_channels() -> None:
    assert list(alert_sinks({})) == ["log"]
    sinks = alert_sinks({"DE_ALERT_WEBHOOK": "secret://hook", **MAIL})
    email = sinks["email"]
    assert list(sinks) == ["log", "webhook", "email"]
    assert isinstance(email, EmailAlertSink)
    assert (email.port, email.receivers, email.starttls) == (587, ["a@example.org", "b@example.org"], True)
    assert (email.user, email.password) == ("de", "secret://mail_password")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"DE_ALERT_SMTP": ""}, "needs `DE_ALERT_SMTP`"),
        ({"DE_ALERT_FROM": ""}, "needs `DE_ALERT_SMTP`"),
        ({"DE_ALERT_SMTP": "mail:smtp"}, "is not `host:port`"),
        ({"DE_ALERT_SMTP": "mail:70000"}, "is not `host:port`"),
        ({"DE_ALERT_SMTP": "::1"}, "is not `host:port`"),
        ({"DE_ALERT_LOGIN": "canary"}, "is not `user:secret://name`"),
    ],
)
def test_a_variable_that_is_wrong_breaks_its_channel_and_no_other(changed: dict[str, str], said: str) -> None:
    sinks = alert_sinks({"DE_ALERT_WEBHOOK": "secret://hook", **MAIL, **changed})
    assert list(sinks) == ["log", "webhook", "email"]
    assert said in str(why_broken(sinks["email"]))
    with pytest.raises(PermanentError, match=re.escape(said)) as caught:
        sinks["email"].deliver(ALERT)
    assert "canary" not in str(caught.value)
    assert why_broken(sinks["log"]) is None


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("mail.example.org", "mail.example.org", 25),
        ("mail.example.org:587", "mail.example.org", 587),
        ("[::1]:2525", "::1", 2525),
        ("[2001:db8::7]", "2001:db8::7", 25),
    ],
)
def test_addresses_of_mail_servers(text: str, host: str, port: int) -> None:
    assert MailServerAddress.parse(text) == MailServerAddress(host, port)
    assert check_variables({"DE_ALERT_SMTP": text})[0].verdict is FindingVerdict.OK


@pytest.mark.parametrize("text", ["", ":25", "::1", "mail:x", "mail:70000", "joe:pw@mail:25", "mail:25/x", "a b"])
def test_what_is_no_address_of_a_mail_server(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - in the words of the library
        MailServerAddress.parse(text)
    assert not text or check_variables({"DE_ALERT_SMTP": text})[0].verdict is FindingVerdict.FAIL


# Channels of others

PAGER = """
from de_assets.automation.alerting.sinks import AlertSink

told = []

class Pager(AlertSink):
    def deliver(self, alert):
        told.append(alert["text"])

class Unplugged(AlertSink):
    number: str
    def deliver(self, alert): ...

class Sick(Pager):
    def check(self):
        raise RuntimeError("token canary")
"""


@pytest.fixture
def paging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that is none of the platform's."""
    (tmp_path / "acme_paging.py").write_text(PAGER)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "acme_paging"
    sys.modules.pop("acme_paging", None)


def test_a_channel_of_others_is_told_like_ours(paging: str) -> None:
    sinks: dict[str, AlertSink] = alert_sinks({"DE_ALERT_SINKS": f"{paging}:Pager"})
    assert list(sinks) == ["log", f"{paging}:Pager"]
    sinks[f"{paging}:Pager"].deliver(ALERT)
    assert sys.modules[paging].told == ["ERROR: Run failed"]


def test_the_channel_on_the_page_of_the_second_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (snippet,) = snippets("second-day.md")
    (tmp_path / "printed_paging.py").write_text(snippet.code)
    monkeypatch.syspath_prepend(str(tmp_path))
    (_, pager) = alert_sinks({"DE_ALERT_SINKS": "printed_paging:Pager"}).values()
    assert why_broken(pager) is None
    pager.deliver({**ALERT, "event": "opened"})
    assert capsys.readouterr().out == "opened 1 ERROR: Run failed\n"


def test_one_that_cannot_be_made_takes_nobody_along(paging: str) -> None:
    names = [f"{paging}:{name}" for name in ("Pager", "Unplugged", "Absent", "told", "Sick")]
    sinks = alert_sinks({"DE_ALERT_SINKS": ", ".join([*names, "nowhere:Pager"])})
    why = [why_broken(sink) or "" for sink in sinks.values()]
    assert why[:2] == ["", ""]
    assert "(ValidationError)" in why[2]
    assert "(AttributeError)" in why[3]
    assert "(TypeError)" in why[4]
    assert why[5] == "Its check raised RuntimeError."
    assert "(ModuleNotFoundError)" in why[6]


def test_what_is_no_channel_is_refused() -> None:
    (_, made) = alert_sinks({"DE_ALERT_SINKS": "builtins:dict"}).values()
    assert "is no channel" in str(why_broken(made))


def test_the_doctor_lists_and_checks_the_channels(paging: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    environment = {
        "DE_ALERT_WEBHOOK": "secret://hook",
        "DE_ALERT_SINKS": f"{paging}:Pager",
        **MAIL,
        "DE_ALERT_SMTP": "x:y",
    }
    found = {each.name: each for each in check_channels(environment)}
    assert {name.removeprefix("alerts by "): str(each.verdict) for name, each in found.items()} == {
        "log": "ok",
        "webhook": "warn",
        "email": "warn",
        f"{paging}:Pager": "ok",
    }
    assert "DE_SECRET_HOOK" in found["alerts by webhook"].detail
    assert "DE_ALERT_SMTP" in found["alerts by email"].detail
    monkeypatch.setenv("DE_SECRET_HOOK", "http://127.0.0.1:9/canary")
    (_, webhook) = check_channels({"DE_ALERT_WEBHOOK": "secret://hook"})
    assert webhook.verdict is FindingVerdict.OK
    assert "canary" not in str(webhook)


# A mail server that speaks TLS


class SecureMailServer(socketserver.ThreadingTCPServer):
    """Takes mail on loopback from who has encrypted and logged in; without a certificate it offers neither."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, certificate: Path | None) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.context: ssl.SSLContext | None = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate)
        self.said: list[str] = []
        self.mails: list[bytes] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Conversation(socketserver.StreamRequestHandler):
    server: SecureMailServer

    def handle(self) -> None:
        stream, offers = self.connection.makefile("rwb", buffering=0), "STARTTLS" if self.server.context else "8BITMIME"
        stream.write(b"220 here\r\n")
        while line := stream.readline():
            word = line.split()[0].upper().decode()
            self.server.said.append(f"{word} {offers}")
            if word == "STARTTLS" and self.server.context:
                stream.write(b"220 begin\r\n")
                try:
                    secure = self.server.context.wrap_socket(self.connection, server_side=True)
                except (ssl.SSLError, OSError):  # the client does not trust the certificate, and goes
                    return
                stream, offers = secure.makefile("rwb", buffering=0), "AUTH PLAIN"
            elif word == "EHLO":
                stream.write(f"250-here\r\n250 {offers}\r\n".encode())
            elif word == "AUTH":
                known = base64.b64decode(line.split()[2]) == b"\0de\0open sesame"
                stream.write(b"235 welcome\r\n" if known else b"535 who is that\r\n")
            elif word == "DATA":
                stream.write(b"354 go on\r\n")
                self.server.mails.append(b"".join(iter(stream.readline, b".\r\n")))
                stream.write(b"250 taken\r\n")
            elif word == "QUIT":
                stream.write(b"221 bye\r\n")
                return
            else:
                stream.write(b"250 ok\r\n")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of `localhost`, in one file; nobody trusts it yet."""
    file = tmp_path_factory.mktemp("certificate") / "localhost.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", file, "-out", f"{file}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@pytest.fixture
def secure(certificate: Path) -> Iterator[SecureMailServer]:
    server = SecureMailServer(certificate)
    yield server
    server.shutdown()
    server.server_close()


def mail(server: SecureMailServer) -> EmailAlertSink:
    return EmailAlertSink(
        host="localhost",
        port=server.server_address[1],
        sender="de@example.org",
        receivers=["on.call@example.org"],
        user="de",
        password="secret://mail_password",
        starttls=True,
    )


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DE_SECRET_MAIL_PASSWORD", "open sesame")


def test_login_and_mail_are_said_behind_starttls(
    secure: SecureMailServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    mail(secure).deliver(ALERT)
    assert message_from_bytes(secure.mails[0])["Subject"] == "ERROR: Run failed"
    assert secure.said[:2] == ["EHLO STARTTLS", "STARTTLS STARTTLS"]
    assert all(each.endswith("AUTH PLAIN") for each in secure.said[2:])
    assert "AUTH AUTH PLAIN" in secure.said


def test_a_certificate_that_nobody_vouches_for_is_refused(
    secure: SecureMailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(PermanentError, match="certificate of the mail server localhost"):
        mail(secure).deliver(ALERT)
    assert [each.split()[0] for each in secure.said] == ["EHLO", "STARTTLS"]


def test_a_wrong_password_is_refused_and_not_told(
    secure: SecureMailServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("DE_SECRET_MAIL_PASSWORD", "open barley")
    with pytest.raises(PermanentError, match="535") as caught:
        mail(secure).deliver(ALERT)
    assert "barley" not in str(caught.value)


def test_a_server_without_starttls_is_told_as_one() -> None:
    server = SecureMailServer(None)
    try:
        with pytest.raises(PermanentError, match="does not offer"):
            mail(server).deliver(ALERT)
        assert [each.split()[0] for each in server.said if "QUIT" not in each] == ["EHLO"]
    finally:
        server.shutdown()
        server.server_close()
