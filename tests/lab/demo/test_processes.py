"""The trainings of the demo."""

from __future__ import annotations

from msgspec import structs

from tests.notify.posting import notification
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.lab.demo.processes import Pager, demo_trainings
from trmon.lab.grpo.injections import Injection
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.webhook import Webhook


def injections(injection: Injection) -> dict[str, Injection | None]:
    """Return the injection of each training by its run."""
    return {training.name: training.injection for training in demo_trainings(injection, seed=3, n_steps=9)}


def test_a_run_whose_reward_collapses_stands_beside_the_healthy_and_the_ill_one() -> None:
    expected = {"healthy": None, "ill": Injection.STALE, "collapsing": Injection.REWARD}
    assert injections(Injection.STALE) == expected


def test_the_same_illness_is_not_trained_twice() -> None:
    assert injections(Injection.REWARD) == {"healthy": None, "ill": Injection.REWARD}


def test_all_trainings_share_seed_and_steps() -> None:
    assert {(one.seed, one.n_steps) for one in demo_trainings(Injection.PAD, seed=3, n_steps=9)} == {(3, 9)}


def test_the_receiver_stores_every_alert_with_its_run() -> None:
    first = notification(run=RunKey("demo", "ill"))
    second = structs.replace(first, status=AlertState.RESOLVED)
    with Pager() as pager:
        webhook = Webhook(HttpPost(pager.url, allow_hosts=frozenset({"127.0.0.1"})))
        assert webhook.deliver([first, second], now=0.0) == DeliveryResult(DeliveryOutcome.DELIVERED)
        webhook.close()
    assert [(alert["run"], alert["rule"], alert["status"]) for alert in pager.alerts] == [
        ("ill", "mask_rate", "firing"),
        ("ill", "mask_rate", "resolved"),
    ]
