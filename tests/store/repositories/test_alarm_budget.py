"""Tests reading what an alarm budget is computed from."""

from __future__ import annotations

from tests.store.builders import CODE, NOW, alert, alert_event, append, begin, commit, silence, start_intake
from trmon.domain.access import EVERYTHING, Access
from trmon.domain.alerts.alert import AlertState
from trmon.domain.findings.verdict import COLLAPSE
from trmon.domain.incidents.alarm_budget import BudgetRecord
from trmon.domain.severity import Severity
from trmon.store import Store

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
