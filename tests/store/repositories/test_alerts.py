"""Alerts, silences, deliveries and alarm budgets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import (
    CODE,
    NOW,
    alert,
    alert_event,
    append,
    begin,
    commit,
    delivery,
    delivery_states,
    paged,
    silence,
    start_intake,
)
from trmon.domain.access import EVERYTHING, Access
from trmon.domain.alerts.alert import INCIDENT_RULE, SINCE_LABEL, Acknowledgement, Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryState, RetryPolicy
from trmon.domain.alerts.muting import (
    DeliveryUpdate,
    MuteReason,
    update_after_failure,
    update_after_mute,
    update_after_success,
)
from trmon.domain.alerts.silences import Silence
from trmon.domain.errors import Conflict, NotFound
from trmon.domain.findings.verdict import COLLAPSE
from trmon.domain.identity import RunKey
from trmon.domain.incidents.alarm_budget import BudgetRecord
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


def test_alerts_are_filtered_and_those_of_other_projects_hidden(store: Store, alerts: list[Alert]) -> None:
    resolved = store.alerts.list(access=EVERYTHING, state=AlertState.RESOLVED)
    assert [listed.alert for listed in resolved.items] == alerts[:1]
    assert len(store.alerts.list(access=EVERYTHING, project="math", run="grpo").items) == 2
    assert store.alerts.list(access=EVERYTHING, project="math", run="sort").items == ()
    assert [listed.alert for listed in store.alerts.list(access=CODE).items] == alerts[2:]
    assert store.alerts.events(alerts[0].identity, access=CODE).items == ()


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


@pytest.fixture
def silences(store: Store) -> list[Silence]:
    """A silence of all projects, one of `code`, and one of `math` that has not started."""
    return [silence(store), silence(store, project="code"), silence(store, project="math", starts_at=NOW + 30)]


def test_silences_are_listed_newest_first_in_pages(store: Store, silences: list[Silence]) -> None:
    assert paged(store.silences.list, limit=2) == silences[::-1]
    assert store.silences.list(access=EVERYTHING, ending_after=NOW + 60).items == ()


def test_silences_of_a_run_are_of_its_project_or_global(store: Store, silences: list[Silence], run_id: int) -> None:
    everywhere, _, of_math = silences
    found = [store.outbox.delivery_context(run_id, now=NOW + later).silences for later in (-1, 0, 30, 60)]
    assert found == [(), (everywhere,), (everywhere, of_math), ()]


def test_silences_of_another_project_are_not_found(store: Store, silences: list[Silence]) -> None:
    assert store.silences.list(access=CODE).items == (silences[1],)
    for other in (silences[0], silences[2]):
        with pytest.raises(NotFound):
            store.silences.expire(other.id, access=CODE, now=NOW).result()
    assert list(store.silences.list(access=EVERYTHING).items) == silences[::-1]


def test_an_ended_silence_stays_listed_with_its_end(store: Store, silences: list[Silence]) -> None:
    of_code = silences[1]
    for now in (NOW + 10, NOW + 20):
        store.silences.expire(of_code.id, access=CODE, now=now).result()
    assert store.silences.list(access=CODE).items == (replace(of_code, ends_at=NOW + 10),)


@pytest.fixture
def outbox(store: Store) -> Store:
    """A store whose outbox holds "late", due now, and "soon", due in a minute."""
    [run_id] = begin(store, "math/grpo")
    commit(store, run_id, deliveries=(delivery("soon", due_at=NOW + 60), delivery("late")))
    return store


def fails(delivery: Delivery, *, may_succeed: bool = True) -> DeliveryUpdate:
    """Return the update after a failed attempt; the next one is due in ten seconds if it may succeed."""
    retry = RetryPolicy(max_attempts=3, backoff_seconds=10.0)
    return update_after_failure(delivery, now=NOW, error="answered 503", retry=retry, may_succeed=may_succeed)


def due(store: Store, *, now: float) -> list[str]:
    return [waiting.dedup_key for waiting in store.outbox.due(now=now, limit=10)]


def test_due_deliveries_are_attempted_longest_overdue_first(outbox: Store) -> None:
    assert due(outbox, now=NOW - 1) == []
    assert due(outbox, now=NOW) == ["late"]
    assert due(outbox, now=NOW + 60) == ["late", "soon"]
    assert len(outbox.outbox.due(now=NOW + 60, limit=1)) == 1


@pytest.mark.parametrize("state", ["delivered", "dead", "muted"])
def test_an_ended_delivery_is_not_attempted_again(outbox: Store, state: str) -> None:
    [late] = outbox.outbox.due(now=NOW)
    ended = {
        "delivered": update_after_success(late, now=NOW, repeat_seconds=None),
        "dead": fails(late, may_succeed=False),
        "muted": update_after_mute(late, now=NOW, reason=MuteReason.ENDED),
    }
    outbox.outbox.record([ended[state]])
    assert due(outbox, now=NOW) == []
    assert delivery_states(outbox) == {"due": 1, state: 1}


def test_a_failed_delivery_waits_and_counts_its_attempts(outbox: Store) -> None:
    [late] = outbox.outbox.due(now=NOW)
    outbox.outbox.record([fails(late)])
    assert due(outbox, now=NOW + 9) == []
    [again] = outbox.outbox.due(now=NOW + 10)
    assert (again.id, again.attempts, again.notification) == (late.id, 1, late.notification)


def test_a_repeated_notification_is_due_again_as_a_new_round(outbox: Store) -> None:
    [late] = outbox.outbox.due(now=NOW)
    outbox.outbox.record([fails(late)])
    outbox.outbox.record([update_after_success(late, now=NOW, repeat_seconds=30.0)])
    [again] = outbox.outbox.due(now=NOW + 30)
    assert (again.dedup_key, again.key, again.rounds, again.attempts) == ("late", "late:1", 1, 0)
    outbox.outbox.record([update_after_mute(again, now=NOW, reason=MuteReason.ENDED)])
    assert delivery_states(outbox) == {"due": 1, "delivered": 1}


def test_the_delivery_context_holds_firing_alerts_and_attempted_deliveries(store: Store, run_id: int) -> None:
    firing = alert(run_id=run_id)
    over = alert(run_id=run_id, step=1, state=AlertState.RESOLVED)
    long_over = alert(run_id=run_id, step=0, state=AlertState.RESOLVED, updated_at=NOW - 61)
    made = [
        delivery(key, receiver=receiver, made_at=NOW, run_id=run_id, episode=of.episode, told_state=of.state)
        for key, receiver, of in (("1", "hook", firing), ("2", "hook", over), ("3", "pager", firing))
    ]
    commit(store, run_id, alerts=(firing, over, long_over), deliveries=made)
    for waiting in store.outbox.due(now=NOW):
        if waiting.receiver == "hook":
            store.outbox.record([fails(waiting)])
    delivery_context = store.outbox.delivery_context(run_id, now=NOW)
    assert delivery_context.run.key == RunKey("math", "grpo")
    assert (delivery_context.alerts, delivery_context.firing) == ((firing, over), (firing,))
    assert delivery_context.tried.keys() == {("hook", firing.episode)}
    assert delivery_context.waiting == {("hook", firing.episode), ("pager", firing.episode)}
    assert not store.outbox.delivery_context(run_id, now=NOW + 61).waiting
    with pytest.raises(NotFound):
        store.outbox.delivery_context(run_id + 1, now=NOW)


def test_deliveries_are_listed_newest_first_in_pages_by_state_and_project(store: Store) -> None:
    for run in ("math/grpo", "code/sort"):
        [run_id] = begin(store, run)
        commit(store, run_id, deliveries=[delivery(f"{run[5:]}-{i}", run_id=run_id) for i in range(2)])
    for waiting in store.outbox.due(now=NOW)[::2]:
        store.outbox.record([fails(waiting, may_succeed=False)])
    listed = paged(store.deliveries.list, limit=3)
    assert [(one.project, one.run) for one in listed] == [("code", "sort")] * 2 + [("math", "grpo")] * 2
    assert [one.id for one in listed] == sorted((one.id for one in listed), reverse=True)
    [dead] = store.deliveries.list(access=CODE, state=DeliveryState.DEAD).items
    assert (dead.id, dead.last_error) == (listed[1].id, "answered 503")


DAY = 86_400.0


def read(store: Store, access: Access = EVERYTHING, *, since: float = NOW - DAY) -> BudgetRecord:
    return store.budget_records.read(access=access, health_rules={COLLAPSE, "stale_rollouts"}, since=since)


def test_a_record_has_what_is_sent_and_the_collapses_of_visible_runs_only(store: Store) -> None:
    grpo, sort = begin(store, "math/grpo", "code/sort")
    sent = alert(run_id=grpo, identity="a")
    made = [
        sent,
        alert(run_id=grpo, identity="b", rule=COLLAPSE),
        alert(run_id=grpo, identity="c", rule="stale_rollouts"),
        alert(run_id=grpo, identity="d", severity=Severity.INFO),
        alert(run_id=grpo, identity="e", state=AlertState.PENDING),
        alert(run_id=grpo, identity="f", state=AlertState.RESOLVED, since_at=NOW - 3 * DAY, updated_at=NOW - 2 * DAY),
        alert(run_id=sort, identity="g"),
    ]
    for one in made:
        commit(store, one.run_id, alerts=(one,), alert_events=(alert_event(one),))
    found = read(store)
    assert [listed.alert.identity for listed in found.alerts] == ["a", "g"]
    assert [one.identity for one in found.collapses] == ["b"]
    assert found.fired_at["a"] == [NOW]
    assert "f" not in found.fired_at
    assert [listed.alert.identity for listed in read(store, CODE).alerts] == ["g"]
    assert read(store, CODE).collapses == ()


def test_training_is_from_the_start_of_an_attempt_to_its_last_message(store: Store, run_id: int) -> None:
    append(store, start_intake("code", "sort"), now=NOW - 9 * DAY)
    append(store, start_intake(launch="launch-2", rank=1, world_size=2), now=NOW + 600.0)
    assert read(store).trained == ((NOW, NOW + 600.0),)
    assert read(store, CODE).trained == ()
    assert store.budget_records.recent_run_ids(access=EVERYTHING, since=NOW - DAY) == [run_id]
    assert store.budget_records.recent_run_ids(access=EVERYTHING, since=NOW - 9 * DAY, before=run_id) == []
    assert store.budget_records.recent_run_ids(access=CODE, since=NOW - 9 * DAY) == [run_id + 1]


def test_silences_that_have_ended_since_are_read(store: Store) -> None:
    ends = (NOW - 2 * DAY, NOW - 60.0, NOW + 60.0)
    made = [silence(store, starts_at=NOW - 3 * DAY, ends_at=ends_at) for ends_at in ends]
    assert [*read(store).silences] == made[1:]
