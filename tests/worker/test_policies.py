"""Policies of a run: requested, refused, replayed, calibrated and adapted; the advisor reads the first rows once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.adaptation import stream
from tests.domain.memory_log import MemoryLog
from tests.domain.trainer import finished, report
from tests.fixtures.messages import columns
from tests.store.builders import batch, batch_key
from tests.worker.watched_run import ORIGIN, WatchedRun, finish, next_report
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting
from trmon.domain.batches.batch import BatchRow, PolicyRole
from trmon.domain.budget.trainer_advice import TARGET_STEPS
from trmon.domain.pipeline.state import PipelineState
from trmon.domain.policies import PolicyVersion, default_version
from trmon.worker.adaptation import Advisor
from trmon_client.core import wire
from trmon_client.core.column_schema import PAIRS, Pair
from trmon_client.core.columns import Columns
from trmon_client.core.policies.policy import Policy, preset


def test_the_trainers_policy_is_adopted_unless_a_person_set_one() -> None:
    watched = WatchedRun()
    start = wire.Start(**ORIGIN, owner="me", tags=["dapo"], policy=preset("geo_mask").spec(), mode="enforce")
    watched.receive(start, at=0.0)
    assert watched.log.versions[-1].author == "trainer"
    assert (watched.log.stored_run.owner, watched.log.stored_run.mode) == ("me", "enforce")
    watched.log.versions.append(
        PolicyVersion(policy=preset("trm"), shadows=(), author="ada", reason="too loose", created_at=5.0)
    )
    watched.receive(replace_launch(start), at=10.0)
    assert watched.log.versions[-1].author == "ada"


def replace_launch(start: wire.Start) -> wire.Start:
    return wire.Start(**{**{name: getattr(start, name) for name in start.__struct_fields__}, "launch": "launch-2"})


def test_an_invalid_policy_is_refused_in_an_event() -> None:
    watched = WatchedRun()
    watched.receive(wire.Start(**ORIGIN, policy={"name": "mine", "criteria": []}), at=0.0)
    assert not watched.log.versions
    assert "criteria" in watched.log.events[0].data["refused"]


def test_a_report_of_an_unknown_policy_is_counted_as_unreplayed() -> None:
    watched = WatchedRun()
    watched.receive(report(0, policy=preset("trm", delta=0.007)), finish(0), at=0.0)
    (row,) = watched.log.rows.values()
    assert row.mismatches == 0
    assert watched.observer.passes[-1].unreplayed_reports == 1


def test_the_decisions_of_shadows_are_recorded() -> None:
    watched = WatchedRun()
    watched.receive(report(0, policy=preset("trm_auto")), finish(0), at=0.0)
    roles = {decision.policy_name: decision.role for decision in watched.log.decisions.values()}
    assert roles == {
        "trm_auto": PolicyRole.ACTIVE,
        "trm_max": PolicyRole.SHADOW,
        "geo_mask": PolicyRole.SHADOW,
        "token_veto": PolicyRole.SHADOW,
    }
    assert set(watched.view.mask_rates) == set(roles)


AUTO = preset("trm_auto")
N, TOKENS = 128, 16


def content(step: int, *, k3: float = 0.001, pairs: tuple[Pair, ...] = PAIRS) -> Columns:
    """Return sequences whose mean_k3 is exponential of a mean, and that are healthy otherwise."""
    random = np.random.default_rng(step)
    sums = {"mismatch_sum_k3": TOKENS * random.exponential(k3, N)} if "mismatch" in pairs else {}
    half = {f"{pair}_sum_{stem}": np.full(N, 0.5 * TOKENS) for pair in pairs for stem in ("p", "q")}
    return columns(N, pairs=pairs, seed=step, **sums, **half)


def train(watched: WatchedRun, steps: range, **drawn: Any) -> None:
    """Report one batch a step, drawn as `content` says; each step's report closes the one before."""
    for step in steps:
        watched.receive(next_report(step, content=content(step, **drawn), policy=AUTO), at=10.0 * step)


def made(watched: WatchedRun) -> list[tuple[str, str]]:
    return [(version.author, version.evidence.get("phase", "")) for version in watched.log.versions]


def test_a_new_run_is_calibrated_after_twenty_steps_of_its_own() -> None:
    run = WatchedRun()
    train(run, range(41))
    assert run.log.versions == []
    train(run, range(41, 43))
    (version,) = run.log.versions
    assert (version.author, version.policy.name) == ("trmon:calibration", "trm_auto (calibrated)")
    evidence = version.evidence
    assert (evidence["first_step"], evidence["last_step"], evidence["n_sequences"]) == (20, 39, 20 * N)
    values = np.concatenate([content(step)["mismatch_sum_k3"] / TOKENS for step in range(20, 40)])
    assert version.policy.criteria[-1].upper == pytest.approx(2 * np.quantile(values, 0.99), rel=0.1)
    assert run.view.policy == version
    assert [event.data["author"] for event in run.log.events if event.kind == "policy"] == [version.author]
    assert run.observer.failures == []


def test_scalars_that_come_later_count() -> None:
    run = WatchedRun()
    for step in range(30):
        train(run, range(step, step + 1))
        scalars = wire.Scalars(**ORIGIN, step=step, sequence=step, values={"lr": 1e-6})
        run.receive(scalars, at=10.0 * step + 5)
    assert run.log.versions[0].evidence["first_step"] == 5


def test_a_restart_continues_the_sample_and_calibrates_nothing_twice() -> None:
    run = WatchedRun()
    for steps in itertools.pairwise([0, 25, 36, 45, 90, 99, 104, 110, 130]):
        train(run, range(*steps), k3=0.001 if steps[1] <= 45 else 0.0025)
        run.restart()
    assert made(run) == [("trmon:calibration", "first"), ("trmon:calibration", "second")]
    first, second = run.log.versions
    assert first.evidence["first_step"] == 20
    assert (second.evidence["first_step"], second.evidence["last_step"]) == (80, 99)
    assert second.policy.criteria[-1].upper > first.policy.criteria[-1].upper
    assert run.observer.failures == []


def test_steps_that_close_in_one_pass_are_calibrated_like_those_that_close_one_by_one() -> None:
    run, reference = WatchedRun(), WatchedRun()
    run.receive(*(next_report(step, content=content(step), policy=AUTO) for step in range(60)), at=1.0)
    train(reference, range(60))
    assert [v.policy for v in run.log.versions] == [v.policy for v in reference.log.versions]


def test_bounds_do_not_rise_at_step_100_while_a_finding_stands() -> None:
    run = WatchedRun()
    train(run, range(45), k3=0.001)
    train(run, range(45, 110), k3=0.06)
    assert "engine_mismatch" in {alert.rule for alert in run.log.alerts.values()}
    assert made(run) == [("trmon:calibration", "first")]


def test_a_run_that_starts_ill_is_not_calibrated_and_says_so_once() -> None:
    run = WatchedRun()
    train(run, range(51), k3=0.1)
    run.restart()
    train(run, range(51, 60), k3=0.1)
    (version,) = run.log.versions
    assert version.policy == AUTO
    assert version.evidence["outcome"] == "starts_ill"
    assert "starts ill (engine_mismatch)" in version.reason


def test_total_alone_is_never_calibrated() -> None:
    run = WatchedRun()
    train(run, range(80), pairs=("total",))
    assert run.log.versions == []
    assert run.observer.failures == []


def test_the_last_update_of_a_step_is_measured() -> None:
    run = WatchedRun()
    for step in range(43):
        for update in range(3):
            message = report(
                step,
                update=update,
                content=content(step, k3=0.001 if update == 2 else 0.005),
                policy=AUTO,
                finished=finished((step, update - 1, 1)) if update else finished((step - 1, 2, 1)) if step else [],
            )
            run.receive(message, at=10.0 * step + update)
    (version,) = run.log.versions
    assert version.evidence["n_sequences"] == 20 * N
    assert version.policy.criteria[-1].upper < 0.012


def test_a_policy_that_a_person_sets_is_calibrated_on_the_steps_from_then_on() -> None:
    run = WatchedRun()
    fixed = replace(default_version(now=0.0), policy=preset("trm"), author="ann")
    run.log.versions.append(fixed)
    train(run, range(50))
    asked = Policy.parse({"name": "seq_mean_k3", "calibrate": {"rate": 0.05, "ceiling": 0.5}})
    run.log.versions.append(replace(fixed, policy=asked, created_at=495.0))
    train(run, range(50, 80))
    run.restart()
    train(run, range(80, 100))
    *_, version = run.log.versions
    assert (version.author, version.policy.name) == ("trmon:calibration", "seq_mean_k3 (calibrated)")
    assert version.evidence["first_step"] == 50 + 20 - 1
    assert version.evidence["set_by"] == "ann"


APPLY = AdaptationSetting(mode=AdaptationMode.APPLY, every_steps=8, window_sequences=1024)
START = PolicyVersion(policy=stream.K3, shadows=(), author="ann", reason="", created_at=0.0)


def train_adapting(watched: WatchedRun, steps: range, *, policy: Policy = stream.K3, k3: float = 0.002) -> None:
    """Report 64 sequences a step; each step's report closes the one before."""
    for step in steps:
        content = stream.batch(np.random.default_rng(step), n=64, k3=k3)
        watched.receive(next_report(step, content=content, policy=policy), at=10.0 * step)


def watched(setting: AdaptationSetting, *, start: PolicyVersion = START) -> WatchedRun:
    made = WatchedRun()
    made.log.setting = setting
    made.log.versions.append(start)
    return made


def test_after_every_steps_the_bound_is_moved_with_an_event_and_decisions_by_it_are_replayed() -> None:
    run = watched(APPLY)
    train_adapting(run, range(12))
    start, made = run.log.versions
    assert start == START
    assert made.author == "trmon:target_mask_rate"
    assert made.evidence["replaces"] == stream.K3.hash
    assert made.evidence["n_sequences"] >= 256
    assert made.policy.criteria[0].upper == pytest.approx(stream.k3_quantile(0.05), rel=0.2)
    events = [event.data for event in run.log.events if event.kind == "policy"]
    assert [(data["author"], data["hash"]) for data in events] == [(made.author, made.policy.hash)]
    assert run.view.policy == made
    train_adapting(run, range(12, 20), policy=made.policy)
    assert sum(tally.mismatches + tally.unreplayed_reports for tally in run.observer.passes) == 0
    assert run.observer.failures == []


def test_steps_that_close_in_one_pass_count_like_those_that_close_one_by_one() -> None:
    run = watched(APPLY)
    contents = [stream.batch(np.random.default_rng(step), n=64) for step in range(12)]
    sent = [next_report(step, content=content, policy=stream.K3) for step, content in enumerate(contents)]
    run.receive(*sent, at=1.0)
    assert [version.author for version in run.log.versions] == [START.author, "trmon:target_mask_rate"]


@pytest.mark.parametrize(
    ("setting", "start"),
    [
        pytest.param(replace(APPLY, mode=AdaptationMode.RECOMMEND), START, id="recommend"),
        pytest.param(APPLY, replace(START, pinned=True), id="pinned"),
        pytest.param(replace(APPLY, every_steps=50), START, id="not yet time"),
    ],
)
def test_the_bounds_stay(setting: AdaptationSetting, start: PolicyVersion) -> None:
    run = watched(setting, start=start)
    train_adapting(run, range(20))
    assert run.log.versions == [start]
    assert run.observer.failures == []


def test_a_policy_set_set_by_person_is_the_new_anchor() -> None:
    run = watched(APPLY)
    train_adapting(run, range(12))
    set_by_person = replace(START, policy=stream.GEO)
    run.log.versions.append(set_by_person)
    train_adapting(run, range(12, 40), policy=stream.GEO)
    geo = [version for version in run.log.versions if version.policy.name == "geo (adapted)"]
    assert geo
    assert geo[0].evidence["replaces"] == stream.GEO.hash


def test_a_restart_reads_its_window_from_the_store() -> None:
    run = watched(replace(APPLY, every_steps=1000))
    train_adapting(run, range(12))
    run.log.setting = replace(APPLY, every_steps=2)
    run.restart()
    train_adapting(run, range(12, 15))
    assert run.log.versions[-1].evidence["n_sequences"] >= 12 * 64


def test_adaptation_can_be_switched_on_and_off_during_the_run() -> None:
    run = watched(AdaptationSetting())
    train_adapting(run, range(12))
    assert run.log.versions == [START]
    run.log.setting = APPLY
    train_adapting(run, range(12, 24))
    assert len(run.log.versions) == 2
    run.log.setting = AdaptationSetting()
    train_adapting(run, range(24, 48), k3=0.02)
    assert len(run.log.versions) == 2
    assert run.observer.failures == []


class CountingLog(MemoryLog):
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
