"""When a notification of an alert that still fires is sent again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.alert_builders import ALERT, delivery_of
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, repeat_interval_seconds
from trmon.domain.finding import Severity

DELIVERY = delivery_of()
WARNING = replace(ALERT, severity=Severity.WARN)


@pytest.mark.parametrize(
    ("delivery", "alert", "receiver_repeat_seconds", "expected"),
    [
        pytest.param(DELIVERY, ALERT, None, 60.0, id="a page is repeated"),
        pytest.param(DELIVERY, WARNING, None, None, id="a warning is not"),
        pytest.param(DELIVERY, WARNING, 5.0, 5.0, id="a receiver that drops alerts gets a warning again"),
        pytest.param(
            replace(DELIVERY, told_state=AlertState.RESOLVED), ALERT, 5.0, None, id="a resolve notification is not"
        ),
        pytest.param(DELIVERY, replace(ALERT, state=AlertState.RESOLVED), 5.0, None, id="a resolved alert is not"),
        pytest.param(DELIVERY, None, 5.0, None, id="an alert that ended long ago is not"),
    ],
)
def test_only_firing_alerts_are_repeated(
    delivery: Delivery, alert: Alert | None, receiver_repeat_seconds: float | None, expected: float | None
) -> None:
    interval = repeat_interval_seconds(
        delivery, alert, remind_seconds=60.0, receiver_repeat_seconds=receiver_repeat_seconds
    )
    assert interval == expected
