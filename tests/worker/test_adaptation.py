"""Adaptation of bounds: when a version is adopted and what a restart reads again; the advisor reads first rows once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.domain.adaptation import stream
from tests.domain.memory_log import MemoryLog
from tests.store.builders import batch, batch_key
from tests.worker.watched_run import WatchedRun, next_report
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting
from trmon.domain.batches.batch import BatchRow
from trmon.domain.budget.trainer_advice import TARGET_STEPS
from trmon.domain.pipeline.state import PipelineState
from trmon.domain.policies import PolicyVersion
from trmon.worker.adaptation import Advisor
from trmon_client.core.policies.policy import Policy

APPLY = AdaptationSetting(mode=AdaptationMode.APPLY, every_steps=8, window_sequences=1024)
START = PolicyVersion(policy=stream.K3, shadows=(), author="ann", reason="", created_at=0.0)


def train(watched: WatchedRun, steps: range, *, policy: Policy = stream.K3, k3: float = 0.002) -> None:
    """Report 64 sequences a step; each step's report closes the one before."""
    for step in steps:
        content = stream.batch(np.random.default_rng(step), n=64, k3=k3)
        watched.receive(next_report(step, content=content, policy=policy), at=10.0 * step)


def watched(setting: AdaptationSetting, *, start: PolicyVersion = START) -> WatchedRun:
    made = WatchedRun()
    made.log.setting = setting
    made.log.versions.append(start)
    return made


def test_after_every_steps_the_bound_is_moved_and_an_event_written() -> None:
    run = watched(APPLY)
    train(run, range(12))
    start, made = run.log.versions
    assert start == START
    assert made.author == "trmon:target_mask_rate"
    assert made.evidence["replaces"] == stream.K3.hash
    assert made.evidence["n_sequences"] >= 256
    assert made.policy.criteria[0].upper == pytest.approx(stream.k3_quantile(0.05), rel=0.2)
    events = [event.data for event in run.log.events if event.kind == "policy"]
    assert [(data["author"], data["hash"]) for data in events] == [(made.author, made.policy.hash)]
    assert run.view.policy == made


def test_steps_that_close_in_one_pass_count_like_those_that_close_one_by_one() -> None:
    run = watched(APPLY)
    contents = [stream.batch(np.random.default_rng(step), n=64) for step in range(12)]
    sent = [next_report(step, content=content, policy=stream.K3) for step, content in enumerate(contents)]
    run.receive(*sent, at=1.0)
    assert [version.author for version in run.log.versions] == [START.author, "trmon:target_mask_rate"]


def test_decisions_of_an_adapted_policy_are_replayed() -> None:
    run = watched(APPLY)
    train(run, range(12))
    adapted = run.log.versions[-1].policy
    train(run, range(12, 20), policy=adapted)
    assert sum(tally.mismatches + tally.unreplayed_reports for tally in run.observer.passes) == 0
    assert run.observer.failures == []


@pytest.mark.parametrize(
    ("setting", "start"),
    [
        pytest.param(AdaptationSetting(), START, id="off"),
        pytest.param(replace(APPLY, mode=AdaptationMode.RECOMMEND), START, id="recommend"),
        pytest.param(APPLY, replace(START, pinned=True), id="pinned"),
        pytest.param(replace(APPLY, every_steps=50), START, id="not yet time"),
    ],
)
def test_the_bounds_stay(setting: AdaptationSetting, start: PolicyVersion) -> None:
    run = watched(setting, start=start)
    train(run, range(20))
    assert run.log.versions == [start]
    assert run.observer.failures == []


def test_a_policy_set_set_by_person_is_the_new_anchor() -> None:
    run = watched(APPLY)
    train(run, range(12))
    set_by_person = replace(START, policy=stream.GEO)
    run.log.versions.append(set_by_person)
    train(run, range(12, 40), policy=stream.GEO)
    geo = [version for version in run.log.versions if version.policy.name == "geo (adapted)"]
    assert geo
    assert geo[0].evidence["replaces"] == stream.GEO.hash


def test_a_restart_reads_its_window_from_the_store() -> None:
    run = watched(replace(APPLY, every_steps=1000))
    train(run, range(12))
    run.log.setting = replace(APPLY, every_steps=2)
    run.restart()
    train(run, range(12, 15))
    assert run.log.versions[-1].evidence["n_sequences"] >= 12 * 64


def test_adaptation_can_be_switched_on_and_off_during_the_run() -> None:
    run = watched(AdaptationSetting())
    train(run, range(12))
    run.log.setting = APPLY
    train(run, range(12, 24))
    assert len(run.log.versions) == 2
    run.log.setting = AdaptationSetting()
    train(run, range(24, 48), k3=0.02)
    assert len(run.log.versions) == 2
    assert run.observer.failures == []


class CountingLog(MemoryLog):
    """A log that counts how often rows are read."""

    n_read = 0

    def batches_after(self, run_id: int, ordinal: int, *, limit: int) -> list[BatchRow]:
        self.n_read += 1
        return super().batches_after(run_id, ordinal, limit=limit)

    def close(self, steps: range) -> BatchRow:
        """Write a row per step, none with an effective sample size, and return the last."""
        for step in steps:
            row = batch(batch_key(1, step), run_id=1, ordinal=step + 1)
            self.rows[row.key] = row
        return row


def test_first_rows_without_the_signal_are_read_once() -> None:
    log = CountingLog()
    advisor, row = Advisor(log), log.close(range(TARGET_STEPS + 5))
    for _ in range(3):
        advisor.advice(row, run=log.stored_run, state=PipelineState(steps=TARGET_STEPS + 5), paging=(), incident=None)
    assert log.n_read == 1


def test_first_rows_that_are_not_all_written_are_read_again() -> None:
    log = CountingLog()
    advisor, row = Advisor(log), log.close(range(3))
    advisor.advice(row, run=log.stored_run, state=PipelineState(steps=TARGET_STEPS + 1), paging=(), incident=None)
    log.close(range(3, TARGET_STEPS + 5))
    for _ in range(3):
        advisor.advice(row, run=log.stored_run, state=PipelineState(steps=TARGET_STEPS + 5), paging=(), incident=None)
    assert log.n_read == 2
