"""Tests listing, filtering and acknowledging alerts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import CODE, NOW, alert, alert_event, begin, commit, paged
from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import INCIDENT_RULE, SINCE_LABEL, Acknowledgement, Alert, AlertState
from trmon.domain.errors import Conflict, NotFound
from trmon.domain.identity import RunKey
from trmon.domain.incidents.incident import CAUSE_LABEL, TITLE_LABEL
from trmon.domain.severity import Severity
from trmon.store import Store


@pytest.fixture
def alerts(store: Store) -> list[Alert]:
    """A firing and a resolved alert of math/grpo, and a firing one of code/sort."""
    grpo, sort = begin(store, "math/grpo", "code/sort")
    made = [
        alert(run_id=grpo, step=1, state=AlertState.RESOLVED),
        alert(run_id=grpo, step=2),
        alert(run_id=sort, identity="other"),
    ]
    for one in made:
        commit(store, one.run_id, alerts=(one,), alert_events=(alert_event(one),))
    return made


def test_alerts_are_listed_newest_first_in_pages(store: Store, alerts: list[Alert]) -> None:
    listed = paged(store.alerts.list, limit=2)
    assert [one.alert for one in listed] == alerts[::-1]
    assert listed[0].run == RunKey("code", "sort")


def test_alerts_are_filtered(store: Store, alerts: list[Alert]) -> None:
    resolved = store.alerts.list(access=EVERYTHING, state=AlertState.RESOLVED)
    assert [listed.alert for listed in resolved.items] == alerts[:1]
    assert len(store.alerts.list(access=EVERYTHING, project="math", run="grpo").items) == 2
    assert store.alerts.list(access=EVERYTHING, project="math", run="sort").items == ()


def test_alerts_are_searched_by_words_of_their_names(store: Store, alerts: list[Alert]) -> None:
    [moe] = begin(store, "math/moe")
    store.runs.update(RunKey("math", "moe"), access=EVERYTHING, now=NOW, owner="Ana").result(10)
    labels = {CAUSE_LABEL: "stale_rollouts", TITLE_LABEL: "rollouts never synced", SINCE_LABEL: "61"}
    incident = alert(run_id=moe, identity="moe/incident", rule=INCIDENT_RULE, labels=labels, severity=Severity.WARN)
    commit(store, moe, alerts=(incident,))
    expected = {
        "GRPO": [1, 2],
        "corrupt logprobs": [1, 2, 3],
        "corrupt_logprobs sort": [3],
        "never synced": [4],
        "stale rollouts": [4],
        "mo ana": [4],
        "%": [],
        "team": [],
        "  ": [1, 2, 3, 4],
    }
    for search, found in expected.items():
        listed = store.alerts.list(access=EVERYTHING, search=search).items
        assert [one.alert for one in listed] == [[*alerts, incident][i - 1] for i in reversed(found)], search


def test_a_search_is_paged_and_joins_the_other_filters(store: Store, alerts: list[Alert]) -> None:
    assert [listed.alert for listed in paged(store.alerts.list, search="logprobs", limit=2)] == alerts[::-1]
    assert store.alerts.list(access=CODE, search="grpo").items == ()
    assert store.alerts.list(access=EVERYTHING, severity=Severity.WARN).items == ()
    resolved = store.alerts.list(access=EVERYTHING, search="grpo", severity=Severity.PAGE, state=AlertState.RESOLVED)
    assert [listed.alert for listed in resolved.items] == alerts[:1]


def test_firing_alerts_of_many_runs_are_read_together(store: Store, alerts: list[Alert]) -> None:
    grpo, sort = alerts[0].run_id, alerts[2].run_id
    firing = store.alerts.firing([grpo, sort, 77], access=EVERYTHING)
    assert {run_id: [listed.alert for listed in found] for run_id, found in firing.items()} == {
        grpo: [alerts[1]],
        sort: [alerts[2]],
        77: [],
    }
    assert store.alerts.firing([grpo], access=CODE) == {grpo: ()}


def test_alerts_of_another_project_are_not_found(store: Store, alerts: list[Alert]) -> None:
    assert [listed.alert for listed in store.alerts.list(access=CODE).items] == alerts[2:]
    assert store.alerts.events(alerts[0].identity, access=CODE).items == ()


def test_transitions_are_listed_newest_first_in_pages(store: Store, alerts: list[Alert]) -> None:
    later = replace(alerts[1], state=AlertState.RESOLVED)
    commit(store, later.run_id, alert_events=(alert_event(later),))
    events = paged(store.alerts.events, later.identity, limit=1)
    assert [event.state for event in events] == [AlertState.RESOLVED, AlertState.FIRING, AlertState.RESOLVED]
    assert events[0] == alert_event(later)


ACK = Acknowledgement(author="ana", note="looking", at=NOW)


def test_an_acknowledgement_survives_updates_of_its_alert(store: Store, alerts: list[Alert]) -> None:
    firing = alerts[2]
    acknowledged = store.alerts.acknowledge(firing.identity, ACK, access=EVERYTHING).result()
    commit(store, firing.run_id, alerts=(replace(firing, value=99.0),))
    [listed, *_] = store.alerts.list(access=EVERYTHING).items
    assert (acknowledged.ack, listed.ack, listed.alert.value) == (ACK, ACK, 99.0)
    assert store.events.after(0, access=EVERYTHING, limit=10)[-1].event.kind == "ack"


def test_only_a_firing_alert_that_the_caller_may_see_can_be_acknowledged(store: Store, alerts: list[Alert]) -> None:
    grpo = alerts[1]
    with pytest.raises(NotFound):
        store.alerts.acknowledge(grpo.identity, ACK, access=CODE).result()
    commit(store, grpo.run_id, alerts=(replace(grpo, state=AlertState.RESOLVED),))
    with pytest.raises(Conflict, match="resolved"):
        store.alerts.acknowledge(grpo.identity, ACK, access=EVERYTHING).result()


def test_an_alert_that_fires_again_at_the_same_step_is_not_acknowledged(store: Store, run_id: int) -> None:
    crashed = alert(run_id=run_id, identity="1/crashed", rule="crashed")
    ack = Acknowledgement(author="ana", note="", at=NOW + 1)
    fired = alert_event(crashed, silence_started_at=NOW - 9)
    commit(store, run_id, alerts=(crashed,), alert_events=(fired,))
    store.alerts.acknowledge("1/crashed", ack, access=EVERYTHING).result(timeout=30)
    commit(store, run_id, alerts=(crashed,), alert_events=(fired,))
    assert store.outbox.delivery_context(run_id, now=NOW + 2).acked == {crashed.episode: ack}, (
        "the same one, written again"
    )
    commit(store, run_id, alerts=(replace(crashed, state=AlertState.RESOLVED, updated_at=NOW + 2),))
    again = replace(crashed, since_at=NOW + 3, updated_at=NOW + 3)
    commit(store, run_id, alerts=(again,), alert_events=(alert_event(again, silence_started_at=NOW + 2),))
    assert store.outbox.delivery_context(run_id, now=NOW + 4).acked == {}
    [listed] = store.alerts.list(access=EVERYTHING).items
    assert (listed.alert, listed.ack) == (again, None)
