"""Runs and the notes on them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import insert

from tests.store.builders import (
    CODE,
    NOW,
    Gate,
    alert,
    append,
    batch,
    batch_key,
    begin,
    commit,
    count,
    delivery,
    execute,
    paged,
    report_intake,
)
from trmon.domain.access import EVERYTHING, Access, AuditAction, Scope
from trmon.domain.adaptation.proposal import AdaptationSetting
from trmon.domain.alerts.alert import AlertState, TransitionReason, transition_event
from trmon.domain.alerts.delivery import Delivery, DeliveryState, RetryPolicy
from trmon.domain.alerts.muting import (
    DeliveryUpdate,
    MuteReason,
    update_after_failure,
    update_after_mute,
    update_after_success,
)
from trmon.domain.alerts.notification import build_notification
from trmon.domain.errors import Conflict, InvalidInput, NotFound
from trmon.domain.identity import RunKey
from trmon.domain.pipeline.publish import Event, Frontier, RunUpdate
from trmon.domain.runs.run import MAX_NOTES, RunEnding, RunState, RunWarning
from trmon.store import Store
from trmon.store.repositories.runs import IN_FLIGHT_SECONDS
from trmon.store.schema import tables
from trmon_client.api.runs import NoteInfo

MATH = Access(name="math", scopes=frozenset({Scope.READ}), project="math")
GRPO = RunKey("math", "grpo")


def listed(store: Store, **filters: object) -> list[str]:
    return [str(run.key) for run in store.runs.list(**{"access": EVERYTHING} | filters).items]


def test_a_run_of_another_project_is_not_found(store: Store) -> None:
    [run_id] = begin(store, "code/grpo")
    for read in (
        lambda: store.runs.get(RunKey("code", "grpo"), access=MATH),
        lambda: store.runs.update(RunKey("code", "grpo"), access=MATH, now=NOW, owner="me").result(10),
        lambda: store.runs.update(RunKey("code", "grpo"), access=MATH, now=NOW, name="mine").result(10),
        lambda: store.runs.delete(RunKey("code", "grpo"), access=MATH, now=NOW),
        lambda: store.policies.current(run_id, access=MATH),
        lambda: store.policies.list(run_id, access=MATH),
    ):
        with pytest.raises(NotFound):
            read()
    assert store.runs.list_attempts(run_id, access=MATH).items == ()
    assert store.policies.history(run_id, access=MATH) == []
    assert listed(store, access=MATH) == []


def test_runs_are_listed_newest_first_in_pages_whose_cursor_must_be_valid(store: Store) -> None:
    begin(store, "math/a", "code/b", "math/c")
    first = store.runs.list(access=EVERYTHING, limit=2)
    begin(store, "math/d")
    second = store.runs.list(access=EVERYTHING, limit=2, after=first.next)
    assert [run.key.run for run in first.items] == ["c", "b"]
    assert [run.key.run for run in second.items] == ["a"]
    assert second.next is None
    for cursor in ("", "no", "!!", "kwECAw", "kc-AAAAAAAAAAA"):
        with pytest.raises(InvalidInput, match="must be the `next`"):
            store.runs.list(access=EVERYTHING, after=cursor)


def test_runs_are_filtered(store: Store) -> None:
    [one, *_] = begin(store, "math/a", "math/b", "code/c")
    commit(store, one, state=RunState.STALLED)
    store.runs.update(RunKey("math", "a"), access=EVERYTHING, now=NOW, tags=["x", "y"], owner="me").result(10)
    store.runs.update(RunKey("math", "b"), access=EVERYTHING, now=NOW, archived=True).result(10)
    assert listed(store) == ["code/c", "math/a"]
    assert listed(store, project="math") == listed(store, tag="y") == listed(store, owner="me") == ["math/a"]
    assert listed(store, state=RunState.RUNNING) == ["code/c"]
    assert listed(store, archived=True) == ["math/b"]


def test_an_update_changes_only_the_given_fields(store: Store) -> None:
    [run_id] = begin(store, "math/grpo")
    store.runs.update(GRPO, access=MATH, now=NOW, tags=["b", "a", "a"], owner="me").result(10)
    run = store.runs.update(GRPO, access=MATH, now=NOW, archived=True).result(10)
    assert (run.tags, run.owner, run.archived) == (("a", "b"), "me", True)
    assert store.runs.get(GRPO, access=MATH) == store.runs.by_id(run_id) == run
    assert store.runs.update(GRPO, access=MATH, now=NOW, tags=[]).result(10).tags == ()


def test_a_name_changes_together_with_other_fields_and_frees_the_old_name(store: Store) -> None:
    [old] = begin(store, "math/grpo")
    run = store.runs.update(GRPO, access=MATH, now=NOW, name="first", tags=["x"], owner="you").result(10)
    assert (run.id, str(run.key), run.tags, run.owner) == (old, "math/first", ("x",), "you")
    [new] = begin(store, "math/grpo")
    assert new != old


def test_a_duplicate_or_invalid_name_is_refused_and_changes_nothing(store: Store) -> None:
    begin(store, "math/grpo", "math/taken")
    before = store.runs.get(GRPO, access=MATH)
    with pytest.raises(Conflict, match="math/taken"):
        store.runs.update(GRPO, access=MATH, now=NOW, name="taken", tags=["x"], owner="you", archived=True).result(10)
    with pytest.raises(InvalidInput):
        store.runs.update(GRPO, access=MATH, now=NOW, name="../etc")
    assert store.runs.get(GRPO, access=MATH) == before


def test_deleting_a_run_deletes_its_rows_and_frees_its_name(store: Store) -> None:
    run_id, other_id = begin(store, "math/grpo", "math/other")
    for run, id_ in (("grpo", run_id), ("other", other_id)):
        append(store, *(report_intake(run=run, step=step) for step in range(3)))
        [attempt] = store.runs.attempts(id_)
        row = batch(batch_key(attempt.id, 0), run_id=id_, ordinal=1)
        commit(store, id_, batches=(row,), alerts=(alert(run_id=id_),), events=(Event(kind="x", data={}, at=NOW),))
    store.notes.add(GRPO, access=MATH, now=NOW, author="ana", text="gone soon", step=None).result(10)
    store.adaptations.put(run_id, AdaptationSetting(), access=MATH, now=NOW).result(10)
    before = counts(store)
    store.runs.delete(GRPO, access=MATH, now=NOW)
    once = ("run", "attempt", "claim", "notice", "batch", "alert", "run_state", "note", "adaptation")
    assert before - counts(store) == {**dict.fromkeys(once, 1), "event": 2, "report": 3}
    [again] = append(store, report_intake(step=0))
    assert again.run_id not in (run_id, other_id)
    assert store.run_log.progress(again.run_id).frontier == Frontier()


def counts(store: Store) -> Counter[str]:
    """Return the number of rows of each table that has some."""
    return Counter({name: count(store, table) for name, table in tables.metadata.tables.items()})


def test_updates_of_a_run_deleted_in_the_same_group_do_not_fail_other_runs(store: Store) -> None:
    gone, stays = begin(store, "math/grpo", "math/other")
    stored_event = Event(kind="x", data={}, at=NOW)
    with Gate(store.writer):
        updates = [RunUpdate(run_id=run_id, frontier=Frontier(), events=(stored_event,)) for run_id in (gone, stays)]
        outcomes = store.run_log.commit(updates)
        deleted = store.writer.submit(partial(store.runs._delete_run, run_id=gone, now=NOW), run=GRPO)
        reports = store.reports.append([report_intake("math", "other")], now=NOW)
    for future in (*outcomes, deleted, *reports):
        assert future.exception(30) is None
    assert listed(store) == ["math/other"]
    assert [event.run_id for event in store.events.after(0, access=EVERYTHING)] == [stays]


def test_a_run_keeps_how_it_ended_and_what_its_trainer_gets_wrong(store: Store) -> None:
    [run_id] = begin(store, "math/grpo")
    assert (store.run_log.runs.by_id(run_id).ending, store.run_log.runs.by_id(run_id).warnings) == (None, ())
    ending = RunEnding(at=NOW, rank=3, reason="exit_code", error="exit code 3", traceback="in step", exit_code=3)
    warnings = (RunWarning(kind="probabilities", text="logprobs=", at=NOW),)
    changes = {"state": RunState.CRASHED, "ending": ending, "warnings": warnings}
    commit(store, run_id, **changes)
    commit(store, run_id)
    run = store.run_log.runs.by_id(run_id)
    assert (run.ending, run.warnings, run.end_phrase) == (ending, warnings, "exit code 3 on rank 3")


LATER = NOW + 100.0


@pytest.fixture
def run_id(store: Store) -> int:
    """A run with a firing alert whose notifications to "pager" and "hook" are in the outbox."""
    [run_id] = begin(store, "math/grpo")
    put(store, run_id, AlertState.FIRING, "pager", "hook")
    commit(store, run_id, alerts=(alert(run_id=run_id),))
    return run_id


def put(store: Store, run_id: int, state: AlertState, *receivers: str) -> None:
    """Add notifications of the alert's state to the outbox."""
    changed = replace(alert(run_id=run_id), state=state)
    notification = build_notification(
        changed,
        transition_event(changed),
        reason=TransitionReason.FIRED,
        run=store.runs.by_id(run_id),
        public_url="https://x",
    )
    told = {"notification": notification, "made_at": NOW, "episode": changed.episode, "told_state": state}
    deliveries = [delivery(f"{one}:{state.value}", receiver=one, run_id=run_id, **told) for one in receivers]
    commit(store, run_id, deliveries=deliveries)


def record_result(store: Store, result: str, receiver: str) -> None:
    """Record this result for the pending deliveries of a receiver."""
    store.outbox.record([_update(one, result) for one in store.outbox.due(now=LATER) if one.receiver == receiver])


def _update(one: Delivery, result: str) -> DeliveryUpdate:
    if result == "failed":
        return update_after_failure(
            one, now=NOW, error="503", retry=RetryPolicy(max_attempts=9, backoff_seconds=1.0), may_succeed=True
        )
    if result == "silenced":
        return update_after_mute(one, now=NOW, reason=MuteReason.SILENCED)
    return update_after_success(one, now=NOW, repeat_seconds=3600.0 if result == "standing" else None)


def due_after_deletion(store: Store, *, now: float = LATER) -> list[tuple[str, str]]:
    """Delete the run and return the due deliveries: receiver and alert state."""
    store.runs.delete(GRPO, access=EVERYTHING, now=LATER)
    due = store.outbox.due(now=now)
    assert all(one.run_id is None for one in due)
    return sorted((one.receiver, one.told_state.value) for one in due)


def test_notified_receivers_get_a_resolved_notification_when_the_run_is_deleted(store: Store, run_id: int) -> None:
    record_result(store, "delivered", "pager")
    record_result(store, "standing", "hook")
    assert due_after_deletion(store) == [("hook", "resolved"), ("pager", "resolved")]
    [one, _] = store.outbox.due(now=LATER)
    assert (one.state, one.made_at, one.notification.alert.at) == (DeliveryState.DUE, LATER, LATER)
    assert (one.notification.status.value, one.notification.reason) == ("resolved", "the run was deleted")
    assert (one.notification.run.project, one.notification.run.run, one.notification.url) == ("math", "grpo", None)
    assert one.notification.alert.identity == "corrupt_logprobs"
    assert run_id


@pytest.mark.usefixtures("run_id")
def test_a_failed_attempt_counts_as_possibly_delivered(store: Store) -> None:
    record_result(store, "failed", "pager")
    record_result(store, "silenced", "hook")
    assert due_after_deletion(store) == [("pager", "resolved")]


@pytest.mark.usefixtures("run_id")
def test_a_notification_in_flight_delays_its_closing_notification(store: Store) -> None:
    record_result(store, "silenced", "hook")
    assert due_after_deletion(store) == []
    assert [one.receiver for one in store.outbox.due(now=LATER + IN_FLIGHT_SECONDS)] == ["pager"]


def test_a_pending_resolved_notification_is_sent_and_a_delivered_one_is_not_repeated(store: Store, run_id: int) -> None:
    record_result(store, "delivered", "pager")
    record_result(store, "delivered", "hook")
    put(store, run_id, AlertState.RESOLVED, "pager", "hook", "mail")
    record_result(store, "delivered", "hook")
    assert due_after_deletion(store) == [("pager", "resolved")]
    [waiting] = store.outbox.due(now=LATER)
    assert waiting.dedup_key == "pager:resolved"


def test_runs_are_searched_by_words_of_their_names(store: Store) -> None:
    begin(store, "math/Qwen3-8b_grpo", "math/llama", "code/qwen3")
    expected = {"QWEN": ["qwen3", "Qwen3-8b_grpo"], "math qwen": ["Qwen3-8b_grpo"], "_": ["Qwen3-8b_grpo"], "%": []}
    for search, names in expected.items():
        assert [run.key.run for run in store.runs.list(access=EVERYTHING, search=search).items] == names
    assert [run.key.run for run in store.runs.list(access=CODE, search="qwen3").items] == ["qwen3"]


def add(store: Store, text: str, *, step: int | None = None) -> NoteInfo:
    return store.notes.add(GRPO, access=EVERYTHING, now=NOW, author="ana", text=text, step=step).result()


@pytest.mark.usefixtures("run_id")
def test_notes_are_listed_newest_first_in_pages(store: Store) -> None:
    notes = [add(store, f"note {number}", step=number or None) for number in range(3)]
    assert paged(store.notes.list, GRPO, limit=2) == notes[::-1]
    assert [note.step for note in notes] == [None, 1, 2]


def test_a_note_is_deleted_once_and_the_audit_log_keeps_its_text(store: Store) -> None:
    begin(store, "math/grpo", "math/other")
    note = add(store, "lr raised", step=7)
    with pytest.raises(NotFound, match="no note"):
        store.notes.remove(RunKey("math", "other"), note.id, access=EVERYTHING, now=NOW).result()
    store.notes.remove(GRPO, note.id, access=EVERYTHING, now=NOW).result()
    with pytest.raises(NotFound, match="no note"):
        store.notes.remove(GRPO, note.id, access=EVERYTHING, now=NOW).result()
    deleted, created = store.audit.list(access=EVERYTHING).items
    document = {"note": note.id, "step": 7, "author": "ana", "text": "lr raised"}
    assert (created.action, created.before, created.after) == (AuditAction.NOTE_CREATE.value, None, document)
    assert (deleted.action, deleted.before, deleted.after) == (AuditAction.NOTE_DELETE.value, document, None)
    assert (created.target, created.project) == ("math/grpo", "math")


@pytest.mark.usefixtures("run_id")
def test_notes_of_another_project_are_not_found(store: Store) -> None:
    note = add(store, "mine")
    with pytest.raises(NotFound):
        store.notes.list(GRPO, access=CODE)
    with pytest.raises(NotFound):
        store.notes.add(GRPO, access=CODE, now=NOW, author="eve", text="yours", step=None).result()
    with pytest.raises(NotFound):
        store.notes.remove(GRPO, note.id, access=CODE, now=NOW).result()
    assert store.notes.list(GRPO, access=EVERYTHING).items == (note,)


def test_a_run_has_a_limited_number_of_notes(store: Store, run_id: int) -> None:
    row = {"run_id": run_id, "step": None, "author": "ana", "text": "x", "at": NOW}
    rows = [row] * (MAX_NOTES - 1)
    execute(store, insert(tables.note), rows)
    add(store, "the last one")
    with pytest.raises(Conflict, match="has 1000 notes already"):
        add(store, "one more")
