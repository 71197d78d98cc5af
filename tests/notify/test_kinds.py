"""Each kind of notification, as every receiver is sent it; `python -m tests.notify.kinds` records the golden files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.notify.kinds import GOLDENS, KINDS, rendered

Sent = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def sent() -> Sent:
    return {name: rendered(notifications) for name, notifications in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_receiver_is_sent_what_is_recorded(sent: Sent, kind: str) -> None:
    assert sent[kind] == json.loads((GOLDENS / f"{kind}.json").read_text())


def test_the_end_of_a_run_with_an_open_incident_is_another_state_than_resolved_for_every_receiver(sent: Sent) -> None:
    states = {
        "webhook": lambda one: one["state"],
        "slack": lambda one: one["blocks"][0]["text"]["text"].split("* ")[0],
        "pagerduty": lambda one: one[0].get("payload", {}).get("custom_details", {}).get("state", "resolved"),
        "alertmanager": lambda one: one[0]["annotations"]["state"],
        "mail": lambda one: one["subject"].split("] ")[0],
        "apprise": lambda one: one,
    }
    for receiver, state in states.items():
        kinds = [state(sent[kind][receiver]) for kind in ("firing", "acknowledged", "resolved", "ended_open")]
        assert len({*kinds}) == len(kinds), (receiver, kinds)


def test_no_message_names_the_members_of_its_incident_as_other_alerts(sent: Sent) -> None:
    for kind in ("firing", "reminder", "several"):
        [note] = [line for line in sent[kind]["mail"]["parts"]["text/plain"] if line.startswith("Also firing")]
        assert note == "Also firing: stalled"


def test_only_pictures_and_links_are_fetched_and_no_link_acts(sent: Sent) -> None:
    """Every button is a link to the page of the run, with the action in its query."""
    for message in (one["slack"] for one in sent.values()):
        for attachment in message.get("attachments", ()):
            for button in attachment["actions"]:
                assert set(button) <= {"type", "text", "url", "style"}
                assert button["url"].startswith(("https://trmon.example/runs/", "https://trmon.example/alerts?"))
        assert {block["type"] for block in message["blocks"]} <= {"section", "context", "image"}
