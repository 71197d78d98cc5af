"""Calibration of a run's policy: when, on what, once, and after a restart."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.domain.trainer import finished, report
from tests.fixtures.messages import columns
from tests.worker.watched_run import ORIGIN, WatchedRun, next_report
from trmon.domain.policies import default_version
from trmon_client.core import wire
from trmon_client.core.column_schema import PAIRS, Pair
from trmon_client.core.columns import Columns
from trmon_client.core.policies.policy import Policy, preset

AUTO = preset("trm_auto")
N, TOKENS = 128, 16


def content(step: int, *, k3: float = 0.001, n: int = N, pairs: tuple[Pair, ...] = PAIRS) -> Columns:
    """Return sequences whose mean_k3 is exponential of a mean, and that are healthy otherwise."""
    random = np.random.default_rng(step)
    sums = {"mismatch_sum_k3": TOKENS * random.exponential(k3, n)} if "mismatch" in pairs else {}
    half = {f"{pair}_sum_{stem}": np.full(n, 0.5 * TOKENS) for pair in pairs for stem in ("p", "q")}
    return columns(n, pairs=pairs, seed=step, **sums, **half)


def train(
    watched: WatchedRun,
    steps: range,
    *,
    k3: float = 0.001,
    n: int = N,
    pairs: tuple[Pair, ...] = PAIRS,
) -> None:
    """Report one batch a step; each step's report closes the one before."""
    for step in steps:
        made = content(step, k3=k3, n=n, pairs=pairs)
        watched.receive(next_report(step, content=made, policy=AUTO), at=10.0 * step)


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
