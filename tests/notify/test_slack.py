"""Slack, against a local server: what it refuses, and how much it takes; what a message says is in the golden files."""

from __future__ import annotations

import json

from msgspec import structs

from tests.fixtures.receiver import WebhookServer
from tests.notify.kinds import PICTURE
from tests.notify.posting import notification, posted
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.slack import Slack


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
