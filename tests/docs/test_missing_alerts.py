"""The page on alerts that do not arrive: its requests are answered, and it names every reason and state."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from tests.fixtures.alerting import crash
from trmon.domain.alerts.delivery import DeliveryState
from trmon.domain.alerts.muting import MuteReason

PAGE = (Path(__file__).parents[2] / "docs" / "missing-alerts.md").read_text()
REQUESTS = re.findall(r'curl -s (?:-X (\w+) )?"\$TRMON(/[^"]+)"', PAGE)


def test_every_request_on_the_page_is_answered(client: httpx.Client) -> None:
    crash(client)
    silence = {"seconds": 60, "matchers": [{"label": "run", "value": "other"}]}
    client.post("/api/v1/silences", json=silence).raise_for_status()
    answers = {path: client.request(method or "GET", path).status_code for method, path in REQUESTS}
    assert set(answers.values()) == {200, 204}, answers
    assert len(answers) == 8


def test_every_state_and_reason_of_a_delivery_is_named() -> None:
    assert [state.value for state in DeliveryState if f"`{state.value}`" not in PAGE] == []
    assert [reason.value for reason in MuteReason if f"| {reason.value} |" not in PAGE] == []
