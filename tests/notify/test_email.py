"""E-mail, against a real mail server: what arrives, and what each failure means."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest

from tests.client.server import CERTIFICATE
from tests.fixtures.mail_server import MailServer as Server
from tests.fixtures.mail_server import Received
from tests.notify.posting import notification
from trmon.config.settings import Settings
from trmon.domain.alerts.notification import Notification
from trmon.domain.identity import RunKey
from trmon.notify.email import Email
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult

NOW = 1_800_000_000.0
LOCAL = ("localhost",)
SENDER = "trmon@example.org"


def email(
    port: int,
    *,
    recipients: Sequence[str] = ("ana@example.org",),
    allow_hosts: Sequence[str] = LOCAL,
    timeout_seconds: float = 10.0,
    addresses: Sequence[str] = ("127.0.0.1",),
    **server: Any,
) -> Email:
    smtp = {"host": "localhost", "port": port, "security": "starttls", "ca_file": CERTIFICATE} | server
    settings = Settings(
        **{f"smtp_{name}": value for name, value in smtp.items()},
        email_from=SENDER,
        email_to=recipients,
        webhook_allow_hosts=allow_hosts,
        delivery_timeout_seconds=timeout_seconds,
    )
    return Email(settings, resolve=lambda *_: list(addresses))


def mailed(*notifications: Notification) -> Received:
    """Return the e-mail of notifications as the server got it."""
    with Server() as server:
        assert email(server.port).deliver(notifications, now=NOW) == DeliveryResult(DeliveryOutcome.DELIVERED)
        [received] = server.received
    return received


def test_a_mail_server_whose_first_address_refuses_is_reached_at_its_next_one() -> None:
    with Server() as server:
        receiver = email(server.port, addresses=("::1", "127.0.0.2", "127.0.0.1"))
        assert receiver.deliver([notification()], now=NOW) == DeliveryResult(DeliveryOutcome.DELIVERED)
        assert len(server.received) == 1


def test_a_name_cannot_add_a_header_or_a_recipient() -> None:
    hostile = RunKey("math", "x\r\nBcc: eve@example.org\r\n\r\nhello")
    got = mailed(notification(run=hostile, rule="mask\x1b[31m_rate"))
    assert (got.sender, got.recipients, got.is_encrypted) == (SENDER, ["ana@example.org"], True)
    assert [part.get_content_type() for part in got.message.iter_parts()] == ["text/plain", "text/html"]
    assert got.message["Bcc"] is None
    assert got.message["Subject"] == "[firing] math/x Bcc: eve@example.org hello: mask [31m_rate"


def test_a_long_subject_is_cut() -> None:
    assert len(mailed(notification(run=RunKey("p" * 200, "r" * 200))).message["Subject"]) == 200


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning")  # of the server, with tls
@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_the_password_is_sent_over_an_encrypted_connection(security: str) -> None:
    with Server(security=security, password="swordfish") as server:
        receiver = email(server.port, security=security, user="trmon", password="swordfish")
        assert receiver.deliver([notification()], now=NOW).outcome is DeliveryOutcome.DELIVERED
    [got] = server.received
    assert (got.is_encrypted, got.user) == (True, "trmon")


def test_an_allowed_host_may_be_without_encryption() -> None:
    with Server(security="none") as server:
        result = email(server.port, security="none").deliver([notification()], now=NOW)
    assert (result.outcome, len(server.received)) == (DeliveryOutcome.DELIVERED, 1)


ANA, BO, NO_USER = "ana@example.org", "bo@example.org", "550 no such user"
DELIVERED, RETRY, REFUSED = DeliveryOutcome.DELIVERED, DeliveryOutcome.RETRY, DeliveryOutcome.REFUSED
PRIVATE = (
    "the mail server resolves to 127.0.0.1, which is not public; "
    "TRMON_WEBHOOK_ALLOW_HOSTS allows a host with any address"
)
OF_ANOTHER_HOST = "certificate not accepted: Hostname mismatch, certificate is not valid for 'mail.example'."
WRONG = {"user": "trmon", "password": "wrong"}
OTHER_HOST = {"host": "mail.example", "allow_hosts": ("mail.example",)}
FAILURES: list[tuple[dict[str, Any], dict[str, Any], DeliveryOutcome, str]] = [
    ({"refusals": {ANA: NO_USER}}, {}, REFUSED, f"1 of 1 addresses refused: {ANA}: {NO_USER}"),
    ({"refusals": {ANA: "450 try later"}}, {}, RETRY, f"1 of 1 addresses refused: {ANA}: 450 try later"),
    ({"refusals": {BO: NO_USER}}, {"recipients": (ANA, BO)}, DELIVERED, f"1 of 2 addresses refused: {BO}: {NO_USER}"),
    ({"answer": "554 spam"}, {}, REFUSED, "answered 554 spam"),
    ({"answer": "452 disk full"}, {}, RETRY, "answered 452 disk full"),
    ({"password": "swordfish"}, WRONG, REFUSED, "answered 535 5.7.8 Authentication credentials invalid"),
    ({"security": "none"}, {}, REFUSED, "STARTTLS extension not supported by server."),
    ({}, {"ca_file": None}, RETRY, "certificate not accepted: self-signed certificate"),
    ({}, {"host": "mail.example"}, REFUSED, PRIVATE),
    ({}, OTHER_HOST, RETRY, OF_ANOTHER_HOST),
    ({"hangs_up_at_quit": True}, {}, DELIVERED, ""),
]


@pytest.mark.parametrize(("server", "receiver", "outcome", "reason"), FAILURES)
def test_each_failure_has_an_outcome_and_a_reason(
    server: dict[str, Any], receiver: dict[str, Any], outcome: DeliveryOutcome, reason: str
) -> None:
    with Server(**server) as running:
        result = email(running.port, **receiver).deliver([notification()], now=NOW)
    assert result == DeliveryResult(outcome, reason)


def test_a_server_that_is_away_or_hangs_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        hung = email(port, timeout_seconds=0.1).deliver([notification()], now=NOW)
    away = email(port).deliver([notification()], now=NOW)
    assert [hung, away] == [
        DeliveryResult(DeliveryOutcome.RETRY, "Connection unexpectedly closed: timed out"),
        DeliveryResult(DeliveryOutcome.RETRY, "ConnectionRefusedError: Connection refused"),
    ]
