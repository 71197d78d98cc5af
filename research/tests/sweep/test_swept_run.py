"""A run of a sweep: its file holds what the client and the service compute, in a few digits, and is the same again."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.lab.grpo.experiments import small
from tests.lab.recording import RecordingMonitor
from trmon.domain.errors import Damaged
from trmon.lab.grpo.experiment_config import EngineMismatch, constant
from trmon.lab.grpo.grpo_trainer import train_experiment
from trmon_research.sweep.run_file import SIGNAL_COLUMNS, read_columns, read_record, rounded_column
from trmon_research.sweep.spooled_signals import spooled_steps
from trmon_research.sweep.swept_run import sweep_run

NOISY = small(n_updates=12, engine=EngineMismatch(router_noise=constant(1.0)))


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run with router noise."""
    path = tmp_path_factory.mktemp("run") / "noisy.parquet"
    path.write_bytes(sweep_run(NOISY).file)
    return path


def test_a_file_says_what_was_run_and_what_became_of_it(noisy: Path) -> None:
    record = read_record(noisy)
    assert record.config == NOISY
    assert record.format == 2
    assert (record.outcome.label.onset, record.outcome.label.n_updates) == (None, 12)
    assert read_columns(noisy)["update"].tolist() == list(range(12))


def test_the_signals_are_those_that_the_client_computes(noisy: Path) -> None:
    columns, monitor = read_columns(noisy), RecordingMonitor()
    outcomes = list(train_experiment(NOISY, monitor))
    names = ("reward_mean", "sampled_entropy", "mismatch_kl_k3", "mismatch_chi2_token_p95", "mismatch_prob_pearson")
    for name in names:
        values = np.array([call.decision.signals[name] for call in monitor.rollouts()])
        assert columns[name].tolist() == rounded_column(name, values).tolist()
    last = [call.decision.signals for call in monitor.calls if call.update is not None]
    for name in ("staleness_kl_k3", "clip_fraction"):
        values = np.array([signals[name] for signals in last])
        assert columns[name].tolist() == rounded_column(name, values).tolist()
    norms = np.array([outcome.grad_norm for outcome in outcomes])
    assert columns["grad_norm"] == pytest.approx(norms, rel=0.005)
    assert columns["evaluated_reward"].tolist() == pytest.approx(
        [outcome.evaluated.reward for outcome in outcomes], abs=1e-4
    )


def test_a_run_has_a_value_for_every_signal_that_it_can_have(noisy: Path) -> None:
    missing = set(SIGNAL_COLUMNS) - set(read_columns(noisy))
    assert missing <= {"reward_length_corr", "effective_signal"}
    assert np.isfinite(read_columns(noisy)["mask_rate:geo_mask"]).all()


def test_equal_configurations_have_equal_files_but_for_their_seconds(noisy: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.parquet"
    again.write_bytes(sweep_run(NOISY).file)
    for name, values in read_columns(noisy).items():
        np.testing.assert_array_equal(read_columns(again)[name], values)


def test_values_keep_eight_bits_and_those_near_one_sixteen() -> None:
    values = np.array([0.123456, -7.7e-5, 3.3e9, 0.0, math.nan, math.inf])
    coarse, fine = (rounded_column(name, values) for name in ("mismatch_kl_k3", "mismatch_ess_token"))
    np.testing.assert_allclose(coarse[:3], values[:3], rtol=2.0**-8)
    np.testing.assert_allclose(fine[:3], values[:3], rtol=2.0**-16)
    assert (coarse[:3] != values[:3].astype(np.float32)).all()
    for kept in (coarse, fine):
        assert kept[3] == 0.0
        assert np.isnan(kept[4])
        assert np.isinf(kept[5])


@pytest.mark.slow
def test_a_collapsed_run_ends_once_its_onset_is_certain_and_names_what_the_rules_raised() -> None:
    config = small(n_updates=400, task="brackets", warm_start_exact=0.3, learning_rate=constant(3e-2))
    record = sweep_run(config).record
    label = record.outcome.label
    assert label.onset is not None
    assert label.n_updates - label.onset in range(100, 112)
    raised = [alert.rule for alert in record.alerts]
    assert "reward_collapse" in raised
    assert "spool_growing" not in raised
    assert all(alert.since <= alert.step for alert in record.alerts)
    episodes = [(alert.rule, alert.since, alert.severity, alert.cause) for alert in record.alerts]
    assert len(set(episodes)) == len(episodes)


def test_a_spool_without_its_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="the client lost messages of the run"):
        list(spooled_steps(tmp_path, config={}))
