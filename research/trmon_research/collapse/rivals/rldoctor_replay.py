"""A stored run through rldoctor 0.2.0: `LiveMonitor.log` at each step, with the metric names of TRL.

It diagnoses every 25 steps from the 75th on (a multiple of 25 that is at least 60), and answers findings of severity
warning or critical that are new or have got worse. Approximations:

- The configuration is what rldoctor's own callback takes from TRL's `GRPOConfig`; it has no `max_steps` there either,
  without which a plateau counts from the beginning of a run.
- Not passed, since not stored: a held-out score, components of the reward, clipping at each bound, the time of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rl_doctor.detectors.base import Finding
from rl_doctor.live import LiveMonitor

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_research.collapse.rivals.monitor_alerts import MonitorAlert
from trmon_research.collapse.rivals.trainer_log import LoggedStep

PACKAGE = "rldoctor"


def replay(steps: Iterable[LoggedStep], config: ExperimentConfig) -> list[MonitorAlert]:
    """Return the findings that rldoctor announces while a run logs its steps."""
    monitor = LiveMonitor(config=_trl_config(config), on_finding=_ignore)
    return [
        MonitorAlert(step.step, finding.detector, finding.severity.name.lower())
        for step in steps
        for finding in monitor.log(_trl_metrics(step), step=step.step)
    ]


def _ignore(finding: Finding) -> None:
    """Keep a finding out of the log; `log` answers it too."""


def _trl_config(config: ExperimentConfig) -> dict[str, object]:
    return {
        "algorithm": "grpo",
        "num_generations": config.n_responses,
        "per_device_train_batch_size": config.n_prompts * config.n_responses,
        "learning_rate": config.learning_rate.start,
        "beta": 0.0,
        "epsilon": config.clip,
    }


def _trl_metrics(step: LoggedStep) -> Mapping[str, float]:
    metrics = {
        "reward": step.reward_mean,
        "reward_std": step.reward_std,
        "frac_reward_zero_std": step.zero_variance_share,
        "advantages_std": step.advantage_std,
        "entropy": step.entropy,
        "kl": step.kl,
        "clip_ratio/region_mean": step.clip_fraction,
        "grad_norm": step.grad_norm,
        "learning_rate": step.learning_rate,
        "completions/mean_length": step.response_length,
        "completions/clipped_ratio": step.truncated_share,
    }
    return {name: value for name, value in metrics.items() if value is not None}
