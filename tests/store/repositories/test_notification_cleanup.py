"""Tests notification cleanup: old finished deliveries are deleted, those of firing alerts are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import NOW, alert, append, commit, delivery, start_intake
from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryState
from trmon.domain.alerts.silences import Matcher, MatchOperator, Silence
from trmon.store import Store
from trmon.store.repositories.retention import DEAD_FACTOR, DEAD_ROWS, Pruned

AGE_SECONDS = 100.0
OLD = NOW - AGE_SECONDS - 1


def prune(store: Store, *, now: float = NOW) -> Pruned:
    return store.retention.prune(now=now, max_age_seconds=AGE_SECONDS, max_bytes_per_run=0, max_bytes=0)


def put(store: Store, *made: Delivery, of: Alert | None = None) -> None:
    """Add deliveries, and optionally an alert, to a run."""
    [receipt] = append(store, start_intake())
    alerts = () if of is None else (replace(of, run_id=receipt.run_id),)
    commit(store, receipt.run_id, alerts=alerts, deliveries=[replace(one, run_id=receipt.run_id) for one in made])


def kept(store: Store) -> set[str]:
    return {listed.dedup_key for listed in store.deliveries.list(access=EVERYTHING).items}


def made(key: str, state: DeliveryState, *, at: float = OLD, of: Alert | None = None) -> Delivery:
    return replace(delivery(key), state=state, made_at=at, episode=None if of is None else of.episode)


def test_old_finished_deliveries_are_deleted(store: Store) -> None:
    waiting = (DeliveryState.DUE, DeliveryState.HELD, DeliveryState.STANDING)
    put(
        store,
        made("delivered", DeliveryState.DELIVERED),
        made("muted", DeliveryState.MUTED),
        made("newer", DeliveryState.DELIVERED, at=NOW),
        made("given up", DeliveryState.DEAD),
        made("given up long ago", DeliveryState.DEAD, at=NOW - DEAD_FACTOR * AGE_SECONDS - 1),
        *(made(state.value, state) for state in waiting),
    )
    assert prune(store).deliveries == 3
    assert kept(store) == {"newer", "given up", *(state.value for state in waiting)}


@pytest.mark.parametrize(("state", "stays"), [(AlertState.FIRING, True), (AlertState.RESOLVED, False)])
def test_deliveries_of_an_alert_are_kept_only_while_it_fires(store: Store, state: AlertState, *, stays: bool) -> None:
    of = alert(run_id=1, since_at=OLD, state=state)
    put(store, made("delivered", DeliveryState.DELIVERED, of=of), made("dead", DeliveryState.DEAD, of=of), of=of)
    prune(store, now=NOW + 9 * AGE_SECONDS)
    assert kept(store) == ({"delivered", "dead"} if stays else set())


def test_the_newest_dead_deliveries_are_kept(store: Store) -> None:
    put(store, *(made(f"dead-{i}", DeliveryState.DEAD, at=NOW) for i in range(DEAD_ROWS + 2)))
    assert prune(store).deliveries == 2
    assert store.outbox.counts()["dead"] == DEAD_ROWS
    assert kept(store) >= {f"dead-{DEAD_ROWS + 1}"}


def test_a_silence_is_deleted_long_after_its_end(store: Store) -> None:
    matcher = Matcher(label="rule", operator=MatchOperator.EQUAL, value="stalled")
    for ends_at in (OLD, NOW - 1, NOW + 1):
        silence = Silence(
            id=0, project=None, matchers=(matcher,), author="ana", note="", starts_at=OLD - 9, ends_at=ends_at
        )
        store.silences.create(silence, access=EVERYTHING, now=0.0).result()
    assert prune(store).silences == 1
    assert [silence.ends_at for silence in store.silences.list(access=EVERYTHING).items] == [NOW + 1, NOW - 1]
