"""The receivers that the settings configure."""

from __future__ import annotations

import pytest

from trmon.config.settings import Settings
from trmon.domain.model.errors import NotReady
from trmon.notifications.configured_receivers import receivers_of


def test_a_malformed_webhook_secret_is_refused_with_its_setting() -> None:
    settings = Settings(webhook_url="https://hooks.example/x", webhook_secret="whsec_not base64")  # type: ignore[arg-type]
    with pytest.raises(NotReady, match=r"TRMON_WEBHOOK_SECRET: .* must continue with base64"):
        receivers_of(settings)


def test_each_configured_receiver_is_built_under_its_name() -> None:
    settings = Settings(
        webhook_url="https://hooks.example/x",  # type: ignore[arg-type]
        slack_url="https://hooks.slack.example/x",  # type: ignore[arg-type]
        pagerduty_key="k" * 32,  # type: ignore[arg-type]
        alertmanager_url="https://alertmanager.example",  # type: ignore[arg-type]
    )
    receivers = receivers_of(settings)
    assert list(receivers) == ["webhook", "slack", "pagerduty", "alertmanager"]
    for receiver in receivers.values():
        receiver.close()
