"""Reports what a Trainer of Hugging Face's transformers logs, and the checkpoints that one saves.

Importing this module lets `report_to="trmon"` name the callback.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import INTEGRATION_TO_CALLBACK

from trmon_client.advice import requests_at_step
from trmon_client.config.settings import OnIncident, resolve_settings
from trmon_client.error_guard import ErrorGuard
from trmon_client.integrations.framework_runs import (
    SUMMARY_OF_TRAINING,
    as_name,
    described_config,
    report,
    report_numbers,
    warn_once,
)
from trmon_client.monitor import Monitor, call_on_incident


class TransformersCallback(TrainerCallback):  # type: ignore[misc]
    """Sends scalars and checkpoints of the main process: `Trainer(..., callbacks=[TransformersCallback(project=...)])`.

    Args: as of `trmon_client.init`; the trainer's arguments without secrets are added to `config`, and its `run_name`
        names the run if nothing else does.
    Errors: ValueError as of `trmon_client.init`; none in training.
    """

    def __init__(self, **settings: Any) -> None:
        self._given = {**settings, "rank": 0, "world_size": 1}
        resolved = resolve_settings(self._given, environment=os.environ)
        self._asks_to_save, self._on_incident = resolved.checkpoint_on_warning, resolved.on_incident
        self._monitor: Monitor | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin a run."""
        if state.is_world_process_zero:
            config = described_config("transformers", args.to_dict(), given=self._given.get("config"))
            given = {**self._given, "config": config}
            if args.run_name and not (given.get("run") or os.environ.get("TRMON_RUN")):
                given["run"] = as_name(args.run_name)
            settings = resolve_settings(given, environment=os.environ)
            self._monitor = Monitor(replace(settings, reports_checkpoints=True, on_incident=None))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Send what the trainer logs."""
        if logs and SUMMARY_OF_TRAINING not in logs:
            report_numbers(self._monitor, state.global_step, lambda: logs)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the pauses of the training loop, and do what the service asks."""
        if self._asks_to_save or self._on_incident is not None:
            act_on_requests(self._monitor, args, control, on_incident=self._on_incident)
        if self._monitor is not None and control.should_evaluate:
            self._monitor.pause("evaluation")
        elif self._monitor is not None and control.should_save:
            self._monitor.pause("checkpoint")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report a checkpoint."""
        report_saved(self._monitor, args, state, step=state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the run; an exception before it is reported at the end of the process."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.close()


INTEGRATION_TO_CALLBACK["trmon"] = TransformersCallback


def report_saved(monitor: Monitor | None, args: Any, state: Any, *, step: int) -> None:
    """Report the checkpoint that a Trainer has just saved. Args: args, state: the Trainer's; step: as reported."""

    def send(known: Monitor) -> None:
        # A search of hyperparameters saves in folders of its trials.
        if (folder := Path(args.output_dir, f"checkpoint-{state.global_step}")).is_dir():
            known.checkpoint(step, folder)

    if state.is_world_process_zero:
        report(monitor, send)


class SavingCallback(TrainerCallback):  # type: ignore[misc]
    """Reports the checkpoints of a trainer whose methods are wrapped, and lets it act on what the service asks.

    Args: monitor: returns that of the training. newest_step: returns the step under which the newest batch is reported.
        asks_to_save, on_incident: of the trainer's author.
    """

    def __init__(
        self,
        monitor: Callable[[], Monitor | None],
        newest_step: Callable[[], int],
        *,
        asks_to_save: bool = False,
        on_incident: OnIncident | None = None,
    ) -> None:
        self._monitor, self._newest_step = monitor, newest_step
        self._asks_to_save = asks_to_save
        self._on_incident = on_incident

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report a checkpoint."""
        report_saved(self._monitor(), args, state, step=self._newest_step())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save a checkpoint at a warning, and call the trainer's function for an incident."""
        if self._asks_to_save or self._on_incident is not None:
            act_on_requests(self._monitor(), args, control, on_incident=self._on_incident)


def act_on_requests(monitor: Monitor | None, args: Any, control: Any, *, on_incident: OnIncident | None) -> None:
    """Do at the end of a step what all ranks agree is asked of them. Args: monitor: None on other ranks."""
    requests = requests_at_step(monitor)
    if requests.save_checkpoint and args.save_total_limit == 1:
        warn_once(
            "save_total_limit", "save_total_limit=1 would delete the checkpoint from before the warning: none is saved"
        )
    elif requests.save_checkpoint:
        control.should_save = True
    if requests.incident is not None and on_incident is not None:
        call_on_incident(on_incident, requests.incident, monitor.error_guard if monitor else ErrorGuard())
