"""The body of a webhook, byte for byte."""

from __future__ import annotations

import msgspec
from msgspec import structs

from tests.notify.posting import firing_alert, notification
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.notification import Flapping
from trmon.domain.identity import RunKey
from trmon.notify.webhook import webhook_message

ONE = (
    b'{"version":2,"status":"firing","run":{"project":"math","run":"grpo","owner":"ana","tags":[],"mode":"observe"},'
    b'"alerts":[{"key":"hook:1/mask_rate:3:7:firing","status":"firing",'
    b'"reason":"the condition has held for long enough","value":0.75,"threshold":0.5,'
    b'"summary":"math/grpo: <!channel> & more","step":7,"update":null,"runbook":"Find the drift first.",'
    b'"url":"https://trmon.example/runs/math/grpo?step=7","flapping":{"transitions":6,"within_steps":100},'
    b'"told_before":2,"identity":"1/mask_rate","rule":"mask_rate","severity":"page","labels":{"team":"rl"},'
    b'"since_at":1800000000.0,"at":1800000060.0,"since_step":7,"attempt_id":3,"cause":null,"ended_ill":false}],'
    b'"firing":[{"rule":"stalled","severity":"warn","since_step":1,"summary":"","acknowledged":false,"muted":null}]}'
)


def test_a_message_has_these_bytes() -> None:
    told = structs.replace(
        notification(),
        firing=(firing_alert("stalled"),),
        flapping=Flapping(transitions=6, within_steps=100),
        told_before=2,
    )
    assert msgspec.json.encode(webhook_message([told])) == ONE


def test_a_message_has_every_alert_and_the_run_once() -> None:
    first = structs.replace(notification(), firing=(firing_alert("mask_rate"),))
    second = notification(identity="1/low", rule="low", state=AlertState.RESOLVED)
    message = webhook_message([first, second])
    assert (message.version, message.status, message.firing) == (2, AlertState.FIRING, first.firing)
    alerts = [(alert.key, alert.rule, alert.status, alert.attempt_id) for alert in message.alerts]
    assert alerts == [
        ("hook:1/mask_rate:3:7:firing", "mask_rate", AlertState.FIRING, 3),
        ("hook:1/low:3:7:resolved", "low", AlertState.RESOLVED, 3),
    ]
    assert webhook_message([second]).status is AlertState.RESOLVED


def test_a_merged_message_has_a_summary_and_the_run_of_each_alert() -> None:
    keys = [RunKey("math", f"r{i}") for i in range(3)]
    message = webhook_message([notification(run=key, rule="stalled") for key in keys])
    assert message.summary == "3 runs stalled within 1 s"
    assert message.run.run == "r0"
    assert [alert.run and alert.run.run for alert in message.alerts] == ["r0", "r1", "r2"]
