"""Each kind of notification, as every receiver is sent it; `python -m tests.notify.test_kinds` records it again."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.fixtures.receiver import WebhookServer
from tests.notify.posting import ended_ill, firing_alert, notification, posted
from trmon.domain.alerts.alert import INCIDENT_RULE, Acknowledgement, AlertState, TransitionReason
from trmon.domain.alerts.notification import Flapping, Notification, Picture
from trmon.domain.identity import RunKey
from trmon.domain.severity import Severity
from trmon.notify.alertmanager import alertmanager_alert
from trmon.notify.apprise import apprise_message
from trmon.notify.email import email_message
from trmon.notify.message_text import message_text
from trmon.notify.pagerduty import MAX_KEY_LENGTH, PagerDuty, pagerduty_event
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.slack import Slack, slack_message
from trmon.notify.webhook import webhook_message

GOLDENS = Path(__file__).parent / "goldens"
NOW = 1_800_000_300.0
BEGAN = 1_799_999_000.0
ACK = Acknowledgement(author="ana (token oncall)", note="looking at <the> weight sync", at=1_800_000_120.0)
LONG_CHECKPOINT = f"Checkpoint to go back to: /c/\n{'x' * 2000} (step 6)."
PICTURE = Picture(png=b"\x89PNG", url="https://trmon.example/pictures/story.png", words="reward and KL per token")


FIRING = (firing_alert("reward_collapse", in_incident=True), firing_alert("stalled"))


def _crashed() -> Notification:
    told = notification(identity="1/crashed", rule="crashed", severity=Severity.WARN, runbook="", summary="it crashed")
    return structs.replace(told, firing=FIRING)


def _incident(state: AlertState = AlertState.FIRING, **changed: Any) -> Notification:
    told = notification(
        identity="1/incident",
        rule=INCIDENT_RULE,
        state=state,
        summary="math/grpo: reward collapse since step 7 (last good step 6): the reward is 0.1 (limit 0.3)",
        runbook="",
        labels={},
    )
    picture = PICTURE if state is AlertState.FIRING else None
    return structs.replace(
        told, cause=ended_ill().cause, began_at=BEGAN, picture=picture, **{"firing": FIRING} | changed
    )


def _acknowledged(told: Notification) -> Notification:
    return structs.replace(told, reason=TransitionReason.ACKNOWLEDGED.value, ack=ACK, picture=None)


def _stalls(count: int = 3, **changed: Any) -> list[Notification]:
    """Return stalls of runs r0, r1, ..., one every two seconds."""
    told = {"rule": "stalled", "runbook": "Read its log."} | changed
    runs = [RunKey("math", f"r{i}") for i in range(count)]
    return [
        notification(run=run, summary=f"{run}: no report", updated_at=BEGAN + 2.0 * i, **told)
        for i, run in enumerate(runs)
    ]


def _cause(told: Notification, **changed: Any) -> Notification:
    return structs.replace(told, cause=structs.replace(told.cause, **changed))


def _rules() -> list[Notification]:
    first = notification(summary="x")
    second = notification(identity="1/crashed", rule="crashed", severity=Severity.WARN, summary="y", runbook="", step=9)
    return [
        structs.replace(one, firing=tuple(map(firing_alert, ("mask_rate", "crashed", "stalled"))))
        for one in (first, second)
    ]


def _rule_reminder() -> Notification:
    others = (
        firing_alert("mask_rate"),
        firing_alert("stalled"),
        firing_alert("variance_blowup", muted="a cause fires"),
    )
    flapping = Flapping(transitions=6, within_steps=100)
    return structs.replace(notification(summary="x"), firing=others, flapping=flapping, told_before=1)


KINDS: dict[str, list[Notification]] = {
    "firing": [_incident()],
    "reminder": [_incident(told_before=1, flapping=Flapping(transitions=6, within_steps=100))],
    "acknowledged": [_acknowledged(_incident())],
    "resolved": [_incident(AlertState.RESOLVED, firing=(), ack=ACK)],
    "ended_open": [structs.replace(ended_ill(), began_at=BEGAN, ack=ACK, picture=PICTURE)],
    "ended_open_untold": [_incident(ended=ended_ill().ended)],
    "several": [_incident(), _crashed()],
    "several_runs": _stalls(),
    "options": [_cause(_incident(), options={"kl_coef": "0.01"}, runbook_url="https://book/reward_collapse")],
    "long_checkpoint": [_cause(_incident(), checkpoint=LONG_CHECKPOINT, checkpoint_step=6)],
    "rule": [notification()],
    "rule_reminder": [_rule_reminder()],
    "rule_resolved": [structs.replace(notification(state=AlertState.RESOLVED, summary="high"), firing=FIRING)],
    "rule_with_little": [
        notification(severity=Severity.WARN, summary="x" * 2000, value=math.nan, labels={}, public_url=None)
    ],
    "rules": _rules(),
    "rules_one_resolved": [notification(), notification(identity="1/low", rule="low", state=AlertState.RESOLVED)],
    "many_runs": _stalls(12),
    "several_runs_resolved": _stalls(state=AlertState.RESOLVED),
    "several_runs_acknowledged": [_acknowledged(one) for one in _stalls()],
}


def rendered(notifications: Sequence[Notification]) -> dict[str, Any]:
    """Return what each receiver is sent."""
    mail = email_message(notifications, sender="trmon@example.org", recipients=["ana@example.org"], now=NOW)
    parts = {
        f"{part.get_content_type()} {part.get('Content-ID', '')}".strip(): part.get_content().splitlines()
        if part.get_content_maintype() == "text"
        else part.get("Content-Disposition")
        for part in mail.walk()
        if not part.is_multipart()
    }
    headers = {name: value for name, value in mail.items() if not name.startswith(("Content-", "MIME-"))}
    webhook = webhook_message([structs.replace(one, picture=None) for one in notifications])
    return {
        "webhook": json.loads(msgspec.json.encode(webhook)),
        "slack": slack_message(message_text(notifications)),
        "pagerduty": [pagerduty_event(one) for one in notifications],
        "alertmanager": [alertmanager_alert(one, now=NOW, expiry_seconds=240.0) for one in notifications],
        "mail": {"headers": headers, "parts": parts},
        "apprise": apprise_message(notifications),
    }


Sent = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def sent() -> Sent:
    return {name: rendered(notifications) for name, notifications in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_receiver_is_sent_what_is_recorded(sent: Sent, kind: str) -> None:
    assert sent[kind] == json.loads((GOLDENS / f"{kind}.json").read_text())


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


def main() -> None:
    """Record what is sent now."""
    GOLDENS.mkdir(exist_ok=True)
    for name, notifications in KINDS.items():
        path = GOLDENS / f"{name}.json"
        path.write_text(json.dumps(rendered(notifications), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
