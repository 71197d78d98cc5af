"""What a worker writes of a run: its policies, events, judgement and summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.domain.findings.judgements import KL_OUTSIDE, found, judged
from tests.fixtures.views import view_of
from tests.store.builders import CODE, NOW, append, begin, commit, report_intake, scalars_intake
from trmon.domain.access import EVERYTHING
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting
from trmon.domain.collapse_risk.risk_reading import RiskDriver, RiskReading
from trmon.domain.findings.judge import Place
from trmon.domain.health.judgement import Backlog
from trmon.domain.identity import RunKey
from trmon.domain.pipeline.publish import Event, Frontier, Outlook, RunSummary, Sparkline
from trmon.domain.policies import PolicyVersion, default_version, version_from_trainer
from trmon.store import Store
from trmon_client.core.policies.policy import preset

GEO = preset("geo_mask")


def asked(store: Store, run_id: int, *, at: float) -> PolicyVersion:
    """Return the version that a start makes current, from the version that is current now."""
    version = version_from_trainer(store.policies.current(run_id), GEO, now=at)
    assert version is not None
    return version


def test_ingest_and_runner_that_adopt_a_start_at_once_add_one_version(store: Store, run_id: int) -> None:
    by_ingest, by_runner = (asked(store, run_id, at=NOW + i) for i in range(2))
    store.policies.put(run_id, by_ingest).result()
    commit(store, run_id, policy=by_runner)
    assert store.policies.history(run_id) == [by_ingest]


def test_a_start_that_is_adopted_late_does_not_replace_what_a_person_set(store: Store, run_id: int) -> None:
    late = asked(store, run_id, at=NOW)
    by_person = replace(default_version(now=NOW), policy=preset("token_veto"), author="ann", reason="safer")
    store.policies.put(run_id, by_person).result()
    store.policies.put(run_id, late).result()
    assert store.policies.history(run_id) == [by_person]


SETTING = AdaptationSetting(mode=AdaptationMode.APPLY, target_mask_rate=0.1, every_steps=4)
MINE = PolicyVersion(policy=preset("geo_mask"), shadows=(), author="ann", reason="", created_at=NOW)


def adapted(over: PolicyVersion) -> PolicyVersion:
    evidence = {"replaces": over.policy.hash, "n_sequences": 512}
    return replace(MINE, policy=preset("seq_mis"), author="trmon:target_mask_rate", evidence=evidence)


def test_adaptation_is_off_by_default_and_for_another_project(store: Store, run_id: int) -> None:
    assert store.adaptations.get(run_id) == AdaptationSetting()
    store.adaptations.put(run_id, SETTING, access=EVERYTHING, now=NOW).result()
    store.adaptations.put(run_id, replace(SETTING, mode=AdaptationMode.RECOMMEND), access=EVERYTHING, now=NOW).result()
    assert store.adaptations.get(run_id) == replace(SETTING, mode=AdaptationMode.RECOMMEND)
    assert store.adaptations.get(run_id, access=CODE) == AdaptationSetting()


def test_a_controllers_version_keeps_its_evidence(store: Store, run_id: int) -> None:
    version = adapted(default_version(now=NOW))
    commit(store, run_id, policy=version)
    assert store.policies.current(run_id) == version


@pytest.mark.parametrize(
    "since",
    [
        pytest.param(replace(MINE, policy=preset("token_veto")), id="another policy was activated"),
        pytest.param(replace(MINE, pinned=True), id="the base policy was pinned"),
    ],
)
def test_a_manual_change_takes_precedence_over_the_controller(store: Store, run_id: int, since: PolicyVersion) -> None:
    store.policies.put(run_id, MINE).result()
    store.policies.put(run_id, since).result()
    commit(store, run_id, policy=adapted(MINE))
    assert store.policies.current(run_id) == since


@pytest.fixture
def run_ids(store: Store) -> list[int]:
    """math/grpo with the events 1 and 3, code/sort with 2."""
    ids = begin(store, "math/grpo", "code/sort")
    for i, run_id in enumerate((*ids, ids[0])):
        commit(store, run_id, events=(Event(kind="batch", data={"step": i + 1}, at=NOW + i),))
    return ids


def steps(store: Store, after: int, **options: object) -> list[int]:
    found = store.events.after(after, **{"access": EVERYTHING} | options)
    return [stored.event.data["step"] for stored in found]


def test_reading_events_continues_after_the_last_one_read(store: Store, run_ids: list[int]) -> None:
    [first, *_] = store.events.after(0, access=EVERYTHING)
    assert (first.run_id, first.key, first.event.at) == (run_ids[0], RunKey("math", "grpo"), NOW)
    assert steps(store, 0) == [1, 2, 3]
    assert steps(store, first.id) == [2, 3]
    assert steps(store, 0, limit=1) == [1]
    assert steps(store, store.events.last_id()) == []
    assert steps(store, 0, run=RunKey("math", "grpo")) == [1, 3]
    assert steps(store, 0, access=CODE) == [2]
    assert steps(store, 0, access=CODE, run=RunKey("math", "grpo")) == []


def test_events_of_other_runs_are_skipped_once_and_a_full_page_continues(store: Store, run_ids: list[int]) -> None:
    found, place = store.events.read_after(0, access=EVERYTHING, run=RunKey("code", "sort"), limit=10)
    assert ([stored.event.data["step"] for stored in found], place) == ([2], store.events.last_id())
    assert store.events.read_after(place, access=EVERYTHING, run=RunKey("code", "sort"), limit=10) == ([], place)
    assert store.events.read_after(place + 5, access=EVERYTHING, run=None, limit=10) == ([], place + 5)
    [first], place = store.events.read_after(0, access=EVERYTHING, run=RunKey("math", "grpo"), limit=1)
    assert place == first.id


ILL = judged(
    found("engine_mismatch", beyond=Place(1, 25)),
    found("reward_decline", since=30),
    over=(found("entropy_explosion", since=3, ended=Place(1, 15)),),
    outside=(KL_OUTSIDE,),
    notes=("half of the groups solve nothing",),
)


RISK = RiskReading(probability=0.4, drivers=(RiskDriver(input="grad_norm", log_odds=1.5),), missing=("entropy",))
LINE = Sparkline(first_step=0, last_step=1, values=(None, 0.5))
OUTLOOK = Outlook(
    judgement=ILL,
    summary=RunSummary(reward=LINE, kl=LINE, mask_rate=0.25, collapse_risk=RISK),
    expected_step_seconds=20.0,
)


def test_an_outlook_is_read_as_it_was_written(store: Store) -> None:
    ill, new, other = begin(store, "math/ill", "math/new", "math/other")
    fields = {one.name: getattr(OUTLOOK, one.name) for one in dataclasses.fields(OUTLOOK)}
    commit(store, ill, outlook=replace(view_of(ill), **fields).document())
    commit(store, new, outlook=view_of(new, expected_step_seconds=None).document())
    commit(store, other, outlook={"judgement": None})  # as an older version wrote it
    found = store.run_snapshots.outlooks([ill, new, other, 77])
    assert [found[run_id] for run_id in (ill, new, other, 77)] == [OUTLOOK, *[Outlook()] * 3]
    [view] = store.run_snapshots.of([ill], now=1.0)
    assert (view.judgement, view.summary) == (ILL, OUTLOOK.summary)


BACKLOGS: dict[str, tuple[Sequence[tuple[int, int]], int, float | None]] = {
    "no report": ([], 0, None),
    "an open batch waits for its trainer": ([(5, 0), (5, 1)], 0, None),
    "the step after the open one waits": ([(5, 0), (5, 1), (6, 0), (6, 1), (7, 0)], 0, 2.0),
    "what was processed does not wait": ([(5, 0), (6, 0), (7, 0)], 2, None),
    "a late report of an open batch does not wait": ([(6, 0), (5, 1)], 0, None),
}


@pytest.mark.parametrize("case", BACKLOGS)
def test_reports_after_those_of_the_open_batch_wait(store: Store, run_id: int, case: str) -> None:
    places, n_read, waits = BACKLOGS[case]
    ids = [0]
    for second, (step, rank) in enumerate(places):
        [written] = append(store, report_intake(step=step, rank=rank, world_size=2), now=NOW + second)
        ids.append(store.reports.unread_of(run_id, Frontier(), limit=100).reports[-1].id)
        assert written.run_id == run_id
    notice_id = store.reports.unread_of(run_id, Frontier(), limit=100).notices[-1].id
    commit(store, run_id, frontier=Frontier(report_id=ids[n_read], notice_id=notice_id))
    waiting = {} if waits is None else {run_id: Backlog(newest_step=places[-1][0], waiting_since=NOW + waits)}
    assert store.run_snapshots.backlogs([run_id]) == waiting


def test_scalars_that_no_pass_has_read_wait(store: Store, run_id: int) -> None:
    notice_id = store.reports.unread_of(run_id, Frontier(), limit=100).notices[-1].id
    commit(store, run_id, frontier=Frontier(notice_id=notice_id))
    append(store, scalars_intake(3), now=NOW + 7)
    assert store.run_snapshots.backlogs([run_id]) == {run_id: Backlog(newest_step=None, waiting_since=NOW + 7)}
