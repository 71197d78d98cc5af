"""Slack, against a local server: one message, in which names cannot become Slack markup."""

from __future__ import annotations

import json

from msgspec import structs

from tests.fixtures.receiver import WebhookServer
from tests.notify.posting import ended_ill, firing_alert, notification, posted
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.notification import Flapping, Picture
from trmon.domain.severity import Severity
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.slack import Slack


def test_a_message_has_the_summary_the_runbook_and_a_link() -> None:
    result, body = posted(Slack, notification())
    assert result == DeliveryResult(DeliveryOutcome.DELIVERED)
    assert body["text"].splitlines() == [
        ":rotating_light: *firing* math/grpo: &lt;!channel&gt; &amp; more",
        "Find the drift first.",
        "<https://trmon.example/runs/math/grpo?step=7|grpo at step 7>",
    ]


def test_a_resolved_alert_has_a_reason_and_no_runbook() -> None:
    _, body = posted(Slack, notification(state=AlertState.RESOLVED, summary="high", runbook="Do."))
    assert body["text"].splitlines()[:2] == [
        ":white_check_mark: *resolved* high",
        "Over: the condition has been clear for long enough.",
    ]
    assert "Do." not in body["text"]


def test_the_end_of_a_run_that_ended_ill_is_no_good_news_and_says_what_to_do() -> None:
    _, body = posted(Slack, ended_ill())
    assert body["text"].splitlines()[:4] == [
        ":warning: *ended ill* reward collapse since step 7",
        "The run ended ill at step 7.",
        "Last good step: 6.",
        "In the next run, start from the checkpoint of step 6.",
    ]


def test_a_reminder_lists_other_firing_alerts_and_flapping() -> None:
    muted = firing_alert("variance_blowup", muted="a cause fires")
    reminder = structs.replace(
        notification(summary="x"),
        firing=(firing_alert("mask_rate"), firing_alert("stalled"), muted),
        flapping=Flapping(transitions=6, within_steps=100),
        told_before=1,
    )
    _, body = posted(Slack, reminder)
    assert body["text"].splitlines()[:4] == [
        ":rotating_light: *still firing* x",
        "It flaps: 6 changes within 100 steps. No more of it until it settles.",
        "Find the drift first.",
        "Also firing: stalled, variance_blowup (muted)",
    ]


def test_grouped_alerts_are_lines_of_one_message() -> None:
    firing = tuple(map(firing_alert, ("mask_rate", "crashed", "stalled")))
    first, second = (
        notification(summary="x"),
        notification(rule="crashed", severity=Severity.WARN, summary="y", runbook="", step=9),
    )
    _, body = posted(Slack, *(structs.replace(one, firing=firing) for one in (first, second)))
    assert body["text"].splitlines() == [
        ":rotating_light: *firing* x",
        "Find the drift first.",
        ":warning: *firing* y",
        "Also firing: stalled",
        "<https://trmon.example/runs/math/grpo?step=9|grpo at step 9>",
    ]


def test_without_a_public_url_there_is_no_link() -> None:
    _, body = posted(Slack, notification(public_url=None))
    assert "://" not in body["text"]


PICTURE = Picture(png=b"", url="https://trmon.example/pictures/x.png", words="reward")


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
