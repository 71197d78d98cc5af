"""Which deliveries go into one message."""

from __future__ import annotations

from tests.domain.alerts.alert_builders import delivery_of
from trmon.domain.alerts.delivery import Delivery, Subject, group_deliveries


def due(key: str, *, receiver: str = "hook", run_id: int | None = 1) -> Delivery:
    """Return a due delivery; the first letter of its key names the episode."""
    return delivery_of(receiver=receiver, dedup_key=key, run_id=run_id, episode=key[0])


def keys(*deliveries: Delivery, in_flight: tuple[Subject, ...] = ()) -> list[str]:
    """Return the keys of each group."""
    groups = group_deliveries(deliveries, in_flight=in_flight, grouping_receivers=("hook", "slack"))
    return [" ".join(delivery.dedup_key for delivery in group) for group in groups]


def test_due_alerts_of_a_run_are_one_group_per_receiver() -> None:
    groups = keys(due("a"), due("b"), due("c", run_id=2), due("a", receiver="slack"), due("d"))
    assert groups == ["a b d", "c", "a"]


def test_a_receiver_without_grouping_gets_each_alert_alone() -> None:
    assert keys(due("a", receiver="pager"), due("b", receiver="pager"), due("c")) == ["a", "b", "c"]


def test_one_delivery_of_an_alert_is_sent_at_a_time() -> None:
    assert keys(due("a1"), due("b1"), due("a2")) == ["a1 b1"]
    assert keys(due("a1"), due("b1"), due("a2"), in_flight=(("hook", "a"),)) == ["b1"]


def test_deliveries_without_a_run_are_not_grouped() -> None:
    assert keys(due("a", run_id=None), due("b", run_id=None)) == ["a", "b"]
