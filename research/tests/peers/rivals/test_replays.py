"""Other monitors on synthetic runs: they say what their defaults promise, and never use a later step."""

from __future__ import annotations

import dataclasses
import math
from types import ModuleType

import numpy as np
import pytest

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_research.collapse.rivals import rldoctor_replay, rlprobe_replay, rlwatch_replay
from trmon_research.collapse.rivals.trainer_log import LoggedStep, logged_steps

CONFIG = ExperimentConfig(task="sort", architecture="gru", mechanism="healthy", seed=1)
REPLAYS = (rlwatch_replay, rldoctor_replay, rlprobe_replay)
ONSET = 150


def _steps(n: int = 250, **overrides: list[float]) -> list[LoggedStep]:
    """A run whose reward rises and whose other metrics are steady, except those given."""
    random = np.random.default_rng(0)
    columns = {
        "update": np.arange(n),
        "grad_norm": 1 + 0.05 * random.standard_normal(n),
        "reward_mean": np.linspace(0.2, 0.8, n) + 0.02 * random.standard_normal(n),
        "reward_std": 0.3 + 0.01 * random.standard_normal(n),
        "zero_variance_groups": np.full(n, 0.1),
        "sampled_entropy": 1.5 + 0.05 * random.standard_normal(n),
        "staleness_kl_k3": 0.01 + 0.001 * random.standard_normal(n),
        "lr": np.full(n, 1e-4),
        "clip_fraction": np.full(n, 0.05),
        "response_length_mean": 8 + 0.1 * random.standard_normal(n),
        "length_limit_share": np.full(n, 0.02),
    }
    columns |= {name: np.array(values) for name, values in overrides.items()}
    return list(logged_steps(columns))


def _broken(before: float, after: float, n: int = 250) -> list[float]:
    return [before] * ONSET + [after] * (n - ONSET)


@pytest.mark.parametrize("monitor", REPLAYS, ids=lambda monitor: monitor.PACKAGE)
def test_an_alert_does_not_depend_on_later_steps(monitor: ModuleType) -> None:
    steps = _steps(sampled_entropy=_broken(1.5, 0.01), clip_fraction=_broken(0.05, 0.7), grad_norm=_broken(1.0, 40.0))
    whole, cut = monitor.replay(steps, CONFIG), monitor.replay(steps[:200], CONFIG)
    assert whole
    assert cut == [alert for alert in whole if alert.step < 200]


@pytest.mark.parametrize(
    ("monitor", "column", "values", "name"),
    [
        (rlwatch_replay, "sampled_entropy", _broken(1.5, 0.5), "entropy_collapse"),
        (rlwatch_replay, "staleness_kl_k3", _broken(0.01, 2.0), "kl_explosion"),
        (rlwatch_replay, "grad_norm", _broken(1.0, 40.0), "gradient_norm_spike"),
        (rlwatch_replay, "reward_std", _broken(0.3, 1.2), "reward_hacking"),
        (rldoctor_replay, "zero_variance_groups", _broken(0.1, 0.95), "advantage_collapse"),
        (rldoctor_replay, "clip_fraction", _broken(0.05, 0.7), "clip_saturation"),
        (rlprobe_replay, "sampled_entropy", _broken(1.5, 0.01), "ENTROPY_COLLAPSE"),
        (rlprobe_replay, "clip_fraction", _broken(0.05, 0.7), "CLIP_SATURATION"),
        (rlprobe_replay, "grad_norm", _broken(1.0, math.nan), "GRAD_PATHOLOGY"),
    ],
)
def test_a_metric_reaches_the_detector_that_watches_it(
    monitor: ModuleType, column: str, values: list[float], name: str
) -> None:
    steady = monitor.replay(_steps(), CONFIG)
    raised = [alert for alert in monitor.replay(_steps(**{column: values}), CONFIG) if alert not in steady]
    steps = [alert.step for alert in raised if alert.name == name]
    assert steps
    assert min(steps) >= ONSET


def test_a_step_has_the_values_of_its_row_and_none_where_the_run_has_none() -> None:
    first, second = _steps(n=2, clip_fraction=[math.nan, 0.25], zero_variance_groups=[0.0, 0.75], grad_norm=[1.0, 2.0])
    assert (first.clip_fraction, first.advantage_std) == (None, 1.0)
    assert (second.step, second.clip_fraction, second.advantage_std, second.grad_norm) == (1, 0.25, 0.5, 2.0)


@pytest.mark.parametrize("monitor", REPLAYS, ids=lambda monitor: monitor.PACKAGE)
def test_a_run_that_lacks_metrics_is_replayed(monitor: ModuleType) -> None:
    bare = [dataclasses.replace(step, entropy=None, kl=None, clip_fraction=None) for step in _steps(n=80)]
    assert all(alert.step < 80 for alert in monitor.replay(bare, CONFIG))
