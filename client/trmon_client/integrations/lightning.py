"""Reports what a Trainer of Lightning logs; a run is judged by its scalars alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.loggers import Logger

from trmon_client.config.settings import resolve_settings
from trmon_client.integrations.framework_runs import described_config, report_checkpoint, report_numbers
from trmon_client.monitor import Monitor


class LightningCallback(Callback):  # type: ignore[misc]
    """Sends the scalars of rank 0 while it fits: `Trainer(..., callbacks=[LightningCallback(project=..., run=...)])`.

    It adds a logger to the trainer's, and so sends every `log_every_n_steps` what `self.log` gave them.

    Args: as of `trmon_client.init`; the module's hyperparameters without secrets are added to `config`.
    Errors: ValueError as of `trmon_client.init`; none in training.
    """

    def __init__(self, **settings: Any) -> None:
        self._given = {**settings, "rank": 0, "world_size": 1}
        resolve_settings(self._given, environment=os.environ)
        self._logger: _ScalarsLogger | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a run."""
        if trainer.is_global_zero:
            config = described_config("lightning", pl_module.hparams, given=self._given.get("config"))
            settings = resolve_settings({**self._given, "config": config}, environment=os.environ)
            self._logger = _ScalarsLogger(Monitor(replace(settings, reports_checkpoints=True)), trainer)
            trainer.loggers = [*trainer.loggers, self._logger]

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Report the checkpoints that have been saved since the last batch, and deleted for them."""
        if self._logger is not None:
            self._logger.report_saved()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Report the pause of the training loop."""
        if self._logger is not None and not trainer.sanity_checking:
            self._logger.monitor.pause("evaluation")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the run as crashed, or as interrupted."""
        self._end(trainer, exception)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """End the run."""
        self._end(trainer, None)

    def _end(self, trainer: Any, error: BaseException | None) -> None:
        logger, self._logger = self._logger, None
        if logger is not None:
            trainer.loggers = [other for other in trainer.loggers if other is not logger]
            logger.report_saved()
            logger.monitor.__exit__(None if error is None else type(error), error, None)


class _ScalarsLogger(Logger):  # type: ignore[misc]
    name = "trmon"
    version = None

    def __init__(self, monitor: Monitor, trainer: Any) -> None:
        super().__init__()
        self.monitor = monitor
        self._trainer = trainer
        self._saved: dict[int, Any] = {}

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        # Metrics of an evaluation count steps of its own.
        if self._trainer.training and step is not None:
            report_numbers(self.monitor, step, lambda: metrics)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        # Lightning has counted the step that it has just done; it logs its numbers under the count before it. The
        # checkpoint that this one replaces is deleted after this call.
        self._saved[max(0, self._trainer.global_step - 1)] = checkpoint_callback

    def report_saved(self) -> None:
        """Report what has been saved since the last call."""
        saved, self._saved = self._saved, {}
        for step, callback in saved.items():
            report_checkpoint(self.monitor, step, partial(getattr, callback, "_last_checkpoint_saved"))

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        pass
