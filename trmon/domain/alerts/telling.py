"""What is said when a delivery is told: its own transition, and what else is true of the run by then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trmon.domain.alerts.alert import AlertState, Delivery
from trmon.domain.alerts.flapping import MAX_TRANSITIONS, WITHIN_STEPS, Flap
from trmon.domain.alerts.muting import Situation, muted_alert
from trmon.domain.model.severity import Severity


def presented(delivery: Delivery, situation: Situation, *, now: float) -> Delivery:
    """Return a delivery as it is told now: with everything that fires on the run, its owner, and whether it flaps."""
    flaps = situation.flap(delivery) is Flap.BEGINS
    added: dict[str, Any] = {
        "firing": _firing(situation, now=now),
        "flapping": {"transitions": MAX_TRANSITIONS, "within_steps": WITHIN_STEPS} if flaps else None,
        "told_before": delivery.rounds,
    }
    if "run" in delivery.body:
        added["run"] = delivery.body["run"] | {"owner": situation.run.owner}
    return replace(delivery, body=delivery.body | added)


def again_after(
    delivery: Delivery, situation: Situation, *, remind_seconds: float, repeat_seconds: float | None
) -> float | None:
    """Return the wait until a firing alert is told again: a page to people, any to a receiver that forgets.

    Args: remind_seconds: for pages; repeat_seconds: for every alert, of receivers that forget.
    """
    alert = situation.alert(delivery.episode)
    if delivery.told_state is not AlertState.FIRING or alert is None or alert.state is not AlertState.FIRING:
        return None
    return repeat_seconds or (remind_seconds if alert.severity is Severity.PAGE else None)


def _firing(situation: Situation, *, now: float) -> list[dict[str, object]]:
    return [
        {
            "rule": alert.rule,
            "severity": alert.severity.value,
            "since_step": alert.step,
            "summary": alert.summary,
            "acknowledged": alert.episode in situation.acked,
            "muted": reason.value if (reason := muted_alert(alert, situation, now=now)) else None,
        }
        for alert in situation.firing
    ]
