"""What a look at a delivery, or a try of it, makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trmon.domain.alerts.alert import Delivery, DeliveryState
from trmon.domain.alerts.muting import MuteReason
from trmon.domain.alerts.settlement import (
    RetryPolicy,
    Settlement,
    SettlementKind,
    settle_failed,
    settle_muted,
    settle_sent,
)

NOW = 1000.0
TRIES = RetryPolicy(max_attempts=3, backoff_seconds=2.0)
NEW = Delivery(id=7, receiver="hook", dedup_key="x", body={})
TOLD_BEFORE = replace(NEW, rounds=1, state=DeliveryState.STANDING)


def fails(delivery: Delivery, *, may_succeed: bool = True) -> Settlement:
    return settle_failed(delivery, now=NOW, error="answered 503", tries=TRIES, may_succeed=may_succeed)


@pytest.mark.parametrize(
    ("settlement", "outcome", "state", "due_in_seconds", "attempts", "rounds"),
    [
        pytest.param(
            settle_sent(NEW, now=NOW, again_after_seconds=None),
            *(SettlementKind.DELIVERED, DeliveryState.DELIVERED, 0.0, 1, 1),
            id="what is told once is done with",
        ),
        pytest.param(
            settle_sent(replace(NEW, attempts=2), now=NOW, again_after_seconds=60.0),
            *(SettlementKind.DELIVERED, DeliveryState.STANDING, 60.0, 0, 1),
            id="what stands is told again",
        ),
        pytest.param(fails(NEW), SettlementKind.RETRIED, DeliveryState.DUE, 2.0, 1, 0, id="what failed is tried again"),
        pytest.param(
            fails(replace(NEW, attempts=2)), SettlementKind.DEAD, DeliveryState.DEAD, 0.0, 3, 0, id="but not for ever"
        ),
        pytest.param(
            fails(NEW, may_succeed=False),
            SettlementKind.DEAD,
            DeliveryState.DEAD,
            0.0,
            1,
            0,
            id="what is refused is not",
        ),
        pytest.param(
            fails(replace(TOLD_BEFORE, attempts=9)),
            *(SettlementKind.RETRIED, DeliveryState.STANDING, 600.0, 10, 1),
            id="what was told before is never given up",
        ),
        pytest.param(
            settle_muted(NEW, now=NOW, reason=MuteReason.SILENCED),
            *(SettlementKind.HELD, DeliveryState.HELD, 15.0, 0, 0),
            id="what is silenced is looked at again",
        ),
        pytest.param(
            settle_muted(NEW, now=NOW, reason=MuteReason.EARLY),
            *(SettlementKind.HELD, DeliveryState.HELD, 1.0, 0, 0),
            id="what comes before its turn, soon",
        ),
        pytest.param(
            settle_muted(NEW, now=NOW, reason=MuteReason.ENDED),
            *(SettlementKind.MUTED, DeliveryState.MUTED, 0.0, 0, 0),
            id="what is over is told to nobody",
        ),
        pytest.param(
            settle_muted(TOLD_BEFORE, now=NOW, reason=MuteReason.ENDED),
            *(SettlementKind.MUTED, DeliveryState.DELIVERED, 0.0, 0, 1),
            id="and was delivered, if it was told before",
        ),
    ],
)
def test_a_settlement(
    settlement: Settlement,
    outcome: SettlementKind,
    state: DeliveryState,
    due_in_seconds: float,
    attempts: int,
    rounds: int,
) -> None:
    assert (settlement.delivery_id, settlement.outcome, settlement.state) == (7, outcome, state)
    assert (settlement.due_at - NOW, settlement.attempts, settlement.rounds) == (due_in_seconds, attempts, rounds)


def test_a_settlement_says_why() -> None:
    assert (fails(NEW).error, fails(NEW).tried_at) == ("answered 503", NOW)
    assert settle_muted(NEW, now=NOW, reason=MuteReason.SILENCED).mute is MuteReason.SILENCED
    assert settle_sent(NEW, now=NOW, again_after_seconds=None).error is None


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 2.0), (2, 4.0), (5, 32.0), (12, 600.0), (10_000, 600.0)])
def test_waits_double_up_to_ten_minutes(attempts: int, seconds: float) -> None:
    assert TRIES.wait_seconds(attempts) == seconds
