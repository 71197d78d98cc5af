"""Each kind of notification, as every receiver is sent it; `python -m tests.notify.kinds` records the golden files."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from tests.fixtures.receiver import WebhookServer
from tests.notify.kinds import GOLDENS, KINDS, PICTURE, rendered
from tests.notify.posting import notification, posted
from trmon.domain.identity import RunKey
from trmon.notify.pagerduty import MAX_KEY_LENGTH, PagerDuty
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.slack import Slack

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
        "mail": lambda one: one["headers"]["Subject"].split("] ")[0],
        "apprise": lambda one: one["notify_type"],
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


def test_a_message_whose_picture_slack_cannot_load_is_sent_without_it() -> None:
    with WebhookServer(statuses=[400, 200]) as server:
        receiver = Slack(HttpPost(server.url, allow_hosts=frozenset({"127.0.0.1"})))
        told = structs.replace(notification(), picture=PICTURE)
        assert receiver.deliver([told], now=0.0) == DeliveryResult(DeliveryOutcome.DELIVERED)
        receiver.close()
    kinds = [[block["type"] for block in json.loads(one.body)["blocks"]] for one in server.posted]
    assert kinds == [["section", "image"], ["section"]]


def test_a_message_is_no_longer_than_slack_takes() -> None:
    many = [notification(identity=f"1/r{i}", rule=f"r{i}", summary="x" * 4000) for i in range(30)]
    _, body = posted(Slack, *many)
    assert len(body["blocks"]) <= 50
    assert max(len(block["text"]["text"]) for block in body["blocks"]) == 3000
    assert body["blocks"][-1]["text"]["text"] == "... and 10 more"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"rule": "stalled"}, id="another rule"),
        pytest.param({"labels": {}}, id="other labels"),
        pytest.param({"run": RunKey("math", "dapo")}, id="another run"),
        pytest.param({"run": RunKey("m" * 120, "r" * 128)}, id="names too long for a key"),
    ],
)
def test_other_alerts_have_other_keys_of_pagerduty(changed: dict[str, Any]) -> None:
    make = partial(PagerDuty, routing_key="R0UT1NG")
    (result, first), (_, other) = (posted(make, one) for one in (notification(), notification(**changed)))
    assert (result, first["routing_key"]) == (DeliveryResult(DeliveryOutcome.DELIVERED), "R0UT1NG")
    assert other["dedup_key"] != first["dedup_key"]
    assert len(other["dedup_key"]) <= MAX_KEY_LENGTH
