"""The update of a delivery after an attempt or a mute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.alert_builders import delivery_of
from trmon.domain.alerts.delivery import Delivery, DeliveryState, RetryPolicy
from trmon.domain.alerts.muting import (
    DeliveryUpdate,
    DispatchOutcome,
    MuteReason,
    update_after_failure,
    update_after_mute,
    update_after_success,
)

NOW = 1000.0
RETRY = RetryPolicy(max_attempts=3, backoff_seconds=2.0)
NEW = delivery_of(id=7)
DELIVERED_BEFORE = replace(NEW, rounds=1, state=DeliveryState.STANDING)


def failed(delivery: Delivery, *, may_succeed: bool = True) -> DeliveryUpdate:
    return update_after_failure(delivery, now=NOW, error="answered 503", retry=RETRY, may_succeed=may_succeed)


@pytest.mark.parametrize(
    ("update", "outcome", "state", "due_in_seconds", "attempts", "rounds"),
    [
        pytest.param(
            update_after_success(NEW, now=NOW, repeat_seconds=None),
            *(DispatchOutcome.DELIVERED, DeliveryState.DELIVERED, 0.0, 1, 1),
            id="delivered once, it is done",
        ),
        pytest.param(
            update_after_success(replace(NEW, attempts=2), now=NOW, repeat_seconds=60.0),
            *(DispatchOutcome.DELIVERED, DeliveryState.STANDING, 60.0, 0, 1),
            id="while its alert fires, it is due again",
        ),
        pytest.param(failed(NEW), DispatchOutcome.RETRIED, DeliveryState.DUE, 2.0, 1, 0, id="failed, it is retried"),
        pytest.param(
            failed(replace(NEW, attempts=2)),
            DispatchOutcome.DEAD,
            DeliveryState.DEAD,
            0.0,
            3,
            0,
            id="failed too often, it is dead",
        ),
        pytest.param(
            failed(NEW, may_succeed=False),
            DispatchOutcome.DEAD,
            DeliveryState.DEAD,
            0.0,
            1,
            0,
            id="refused, it is dead at once",
        ),
        pytest.param(
            failed(replace(DELIVERED_BEFORE, attempts=9)),
            *(DispatchOutcome.RETRIED, DeliveryState.STANDING, 600.0, 10, 1),
            id="a reminder is retried without a limit",
        ),
        pytest.param(
            update_after_mute(NEW, now=NOW, reason=MuteReason.SILENCED),
            *(DispatchOutcome.HELD, DeliveryState.HELD, 15.0, 0, 0),
            id="silenced, it is checked again",
        ),
        pytest.param(
            update_after_mute(NEW, now=NOW, reason=MuteReason.OUT_OF_ORDER),
            *(DispatchOutcome.HELD, DeliveryState.HELD, 1.0, 0, 0),
            id="before its turn, it is checked again soon",
        ),
        pytest.param(
            update_after_mute(NEW, now=NOW, reason=MuteReason.ENDED),
            *(DispatchOutcome.MUTED, DeliveryState.MUTED, 0.0, 0, 0),
            id="ended, it is muted for good",
        ),
        pytest.param(
            update_after_mute(DELIVERED_BEFORE, now=NOW, reason=MuteReason.ENDED),
            *(DispatchOutcome.MUTED, DeliveryState.DELIVERED, 0.0, 0, 1),
            id="ended after a delivery, it is delivered",
        ),
    ],
)
def test_an_update_sets_the_state_and_the_next_attempt(
    update: DeliveryUpdate,
    outcome: DispatchOutcome,
    state: DeliveryState,
    due_in_seconds: float,
    attempts: int,
    rounds: int,
) -> None:
    assert (update.delivery_id, update.outcome, update.state) == (7, outcome, state)
    assert (update.due_at - NOW, update.attempts, update.rounds) == (due_in_seconds, attempts, rounds)


def test_an_update_has_its_reason() -> None:
    assert (failed(NEW).error, failed(NEW).tried_at) == ("answered 503", NOW)
    assert update_after_mute(NEW, now=NOW, reason=MuteReason.SILENCED).mute is MuteReason.SILENCED
    assert update_after_success(NEW, now=NOW, repeat_seconds=None).error is None
