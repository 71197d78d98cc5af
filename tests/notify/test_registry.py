"""The receivers that the settings configure."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from trmon.config.settings import Settings
from trmon.domain.errors import NotReady
from trmon.notify.registry import NO_RECEIVER, DeliveryCheck, receivers_of


def test_a_malformed_webhook_secret_is_refused_with_its_setting() -> None:
    settings = Settings(webhook_url="https://hooks.example/x", webhook_secret="whsec_not base64")  # type: ignore[arg-type]
    with pytest.raises(NotReady, match=r"TRMON_WEBHOOK_SECRET: .* must continue with base64"):
        receivers_of(settings)


def test_without_a_receiver_the_log_says_once_that_alerts_reach_nobody() -> None:
    delivery = DeliveryCheck(Settings())
    with capture_logs() as logged:
        delivery.check()
        delivery.check()
    assert [(line["event"], line["reason"]) for line in logged] == [("alerts_reach_nobody", NO_RECEIVER)]
    assert delivery.problem == NO_RECEIVER


def test_one_receiver_without_a_problem_is_enough() -> None:
    settings = Settings(slack_url="https://hooks.slack.example/x", alertmanager_url="https://127.0.0.1:9")  # type: ignore[arg-type]
    with closing(DeliveryCheck(settings)) as delivery, capture_logs() as logged:
        delivery.check()
    assert (delivery.problem, logged) == ("", [])


def test_each_configured_receiver_is_built_under_its_name() -> None:
    settings = Settings(
        webhook_url="https://hooks.example/x",  # type: ignore[arg-type]
        slack_url="https://hooks.slack.example/x",  # type: ignore[arg-type]
        pagerduty_key="k" * 32,  # type: ignore[arg-type]
        alertmanager_url="https://alertmanager.example",  # type: ignore[arg-type]
        alertmanager_repeat_seconds=7.0,
        smtp_host="mail.example",
        email_from="trmon@example.org",
        email_to=("ana@example.org",),
        apprise_urls={"teams": "json://teams.example", "ops": "json://ops.example"},  # type: ignore[dict-item]
        apprise_unchecked_addresses=True,
    )
    receivers = receivers_of(settings)
    assert list(receivers) == ["webhook", "slack", "pagerduty", "alertmanager", "email", "teams", "ops"]
    assert tuple(receivers) == settings.receivers
    assert {name for name, receiver in receivers.items() if not receiver.merges_runs} == {"pagerduty", "alertmanager"}
    assert receivers["alertmanager"].repeat_seconds == 7.0
    for receiver in receivers.values():
        receiver.close()


def test_an_apprise_url_that_is_not_understood_is_refused_with_its_name() -> None:
    settings = Settings(apprise_urls={"ops": "nosuch://s3cr3t"}, apprise_unchecked_addresses=True)  # type: ignore[dict-item]
    with pytest.raises(NotReady, match="TRMON_APPRISE_URLS: ops: is not a URL that Apprise understands") as refused:
        receivers_of(settings)
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file or directory"), ("x", "no certificate")])
def test_a_ca_file_that_cannot_be_used_is_refused(tmp_path: Path, content: str | None, reason: str) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    settings = Settings(
        smtp_host="mail.example", smtp_ca_file=path, email_from="a@example.org", email_to=("b@example.org",)
    )
    with pytest.raises(NotReady, match=f"TRMON_SMTP_CA_FILE: .*ca.pem: .*{reason}"):
        receivers_of(settings)
