"""A stored run through rlwatch 0.5.1: `attach(framework="manual")`, then `log_step`, whose answer is what it sends.

Cooldown (100 steps of one detector and severity) and the limit of 50 alerts a run apply. Approximations:

- `rewards`, an array of single rewards, is not passed, as rlwatch's own callbacks for TRL and verl do not pass it; its
  test for two modes of the rewards does not run.
- `loss` is not stored, so a loss that is not finite is not seen.
- Without the extra `monitoring`, as `pip install rlwatch` leaves it.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterable

import rlwatch

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_research.collapse.rivals.monitor_alerts import MonitorAlert
from trmon_research.collapse.rivals.trainer_log import LoggedStep

PACKAGE = "rlwatch"


def replay(steps: Iterable[LoggedStep], config: ExperimentConfig) -> list[MonitorAlert]:
    """Return the alerts that rlwatch sends while a run logs its steps."""
    with tempfile.TemporaryDirectory(prefix="rlwatch-") as folder, contextlib.redirect_stderr(io.StringIO()):
        monitor = rlwatch.attach(framework="manual", run_id=config.run_name, storage={"log_dir": folder})
        sent = [alert for step in steps for alert in _log(monitor, step)]
        monitor.stop()
    return [MonitorAlert(alert.step, alert.detector, alert.severity) for alert in sent]


def _log(monitor: rlwatch.RLWatch, step: LoggedStep) -> list:
    return monitor.log_step(
        step.step,
        entropy=step.entropy,
        kl_divergence=step.kl,
        reward_mean=step.reward_mean,
        reward_std=step.reward_std,
        advantage_std=step.advantage_std,
        learning_rate=step.learning_rate,
        clip_fraction=step.clip_fraction,
        grad_norm=step.grad_norm,
    )
