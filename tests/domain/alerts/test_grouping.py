"""What is told together."""

from __future__ import annotations

from trmon.domain.alerts.alert import Delivery
from trmon.domain.alerts.grouping import group_deliveries


def due(key: str, *, receiver: str = "hook", run_id: int | None = 1) -> Delivery:
    """Return a delivery that is due, of an episode by its key's first letter."""
    return Delivery(id=1, receiver=receiver, dedup_key=key, body={}, run_id=run_id, episode=key[0])


def keys(*deliveries: Delivery, busy: tuple[tuple[str, str | int], ...] = ()) -> list[str]:
    """Return the keys of each group."""
    groups = group_deliveries(deliveries, busy=busy, together=("hook", "slack"))
    return [" ".join(one.dedup_key for one in group) for group in groups]


def test_alerts_of_a_run_that_are_due_together_are_one_group_a_receiver() -> None:
    found = keys(due("a"), due("b"), due("c", run_id=2), due("a", receiver="slack"), due("d"))
    assert found == ["a b d", "c", "a"]


def test_a_receiver_of_single_alerts_has_each_by_itself() -> None:
    assert keys(due("a", receiver="pager"), due("b", receiver="pager"), due("c")) == ["a", "b", "c"]


def test_of_an_alert_one_delivery_at_a_time_is_told() -> None:
    assert keys(due("a1"), due("b1"), due("a2")) == ["a1 b1"]
    assert keys(due("a1"), due("b1"), due("a2"), busy=(("hook", "a"),)) == ["b1"]


def test_what_is_of_no_run_is_in_no_group() -> None:
    assert keys(due("a", run_id=None), due("b", run_id=None)) == ["a", "b"]
