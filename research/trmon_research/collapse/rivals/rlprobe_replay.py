"""A stored run through rlprobe 0.1.0: `Recorder.log_step` at each step, and every 25 steps a `tick` of `RunWatcher`.

That is what `rlprobe watch` does with a growing recording, at the interval of rlprobe's callback for TRL. The first
diagnosis is after 50 steps, the first multiple of 25 that has the 30 steps it needs; a finding is told once for each
severity. Approximations:

- `kl_mean` is meant to be a KL to a reference policy, whose alarm also needs a level of 0.5 nats.
- `nan_count` and `inf_count` say whether the gradient norm is NaN or infinite.
- Not passed, since not stored: samples, components of the reward, repetition, KL by position, the time of a step.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rlprobe.doctor.live import RunWatcher
from rlprobe.recorder import Recorder

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_research.collapse.rivals.monitor_alerts import MonitorAlert
from trmon_research.collapse.rivals.trainer_log import LoggedStep

PACKAGE = "rlprobe"
DIAGNOSE_EVERY = 25
"""The default of `diagnose_every` in rlprobe's callback for TRL."""


def replay(steps: Iterable[LoggedStep], config: ExperimentConfig) -> list[MonitorAlert]:
    """Return the findings that rlprobe reports while a run logs its steps. Errors: RuntimeError if a step was lost."""
    alerts: list[MonitorAlert] = []
    with tempfile.TemporaryDirectory(prefix="rlprobe-") as folder:
        recorder = Recorder(
            Path(folder), algorithm="grpo", run_id=config.run_name, capture_env=False, install_handlers=False
        )
        watcher = RunWatcher(folder)
        for n_logged, step in enumerate(steps, start=1):
            _log(recorder, step)
            if n_logged % DIAGNOSE_EVERY == 0:
                if not recorder.flush(timeout=60.0) or recorder.dropped:
                    raise RuntimeError(f"rlprobe lost steps of {config.run_name}")
                alerts += [MonitorAlert(step.step, found.signature_id, found.severity) for found in watcher.tick()]
        recorder.close()
    return alerts


def _log(recorder: Recorder, step: LoggedStep) -> None:
    recorder.log_step(
        step.step,
        reward_mean=step.reward_mean,
        reward_std=step.reward_std,
        zero_variance_group_frac=step.zero_variance_share,
        adv_std=step.advantage_std,
        entropy_mean=step.entropy,
        kl_mean=step.kl,
        clip_fraction=step.clip_fraction,
        lr=step.learning_rate,
        grad_norm=step.grad_norm,
        nan_count=int(math.isnan(step.grad_norm)),
        inf_count=int(math.isinf(step.grad_norm)),
        completion_len_mean=step.response_length,
        truncation_rate=step.truncated_share,
    )
