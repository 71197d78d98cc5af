"""What every trainer of TRL has in common: a run's life, its pauses and its scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from trmon_client.config.settings import ClientSettings
from trmon_client.integrations.framework_runs import Hook, pausing_hook
from trmon_client.monitor import Monitor

NAMES = ("loss", "grad_norm", "learning_rate", "entropy", "completions/clipped_ratio")
PREFIXES = ("sampling/", "sample/staleness_")
RENAMED = {"learning_rate": "lr"}


def trainer_scalars(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the numbers of the newest entry of a trainer's log history; evaluations have other names."""
    newest = history[-1] if history else {}
    return {
        RENAMED.get(name, name): value
        for name, value in newest.items()
        if value is not None and (name in NAMES or name.startswith(PREFIXES))
    }


class TrainingHooks:
    """The wrappers of one trainer's methods: they raise what the wrapped methods raise, and nothing else."""

    PARAMETERS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "train": (),
        "evaluate": (),
        "log": ("logs",),
        "_save_checkpoint": ("model", "trial"),
    }
    """The methods that are wrapped, and the first parameters that they must have."""

    def __init__(self, trainer: Any, settings: ClientSettings) -> None:
        self._trainer = trainer
        self._settings = settings
        self._monitor: Monitor | None = None

    def by_method(self) -> dict[str, Hook]:
        """Return the wrapper of each method."""
        return {
            "train": self._train,
            "evaluate": pausing_hook(lambda: self._monitor, "evaluation"),
            "_save_checkpoint": pausing_hook(lambda: self._monitor, "checkpoint"),
            "log": self._log,
        }

    def _begin(self) -> None:
        """Forget what an earlier training left."""

    def _scalars_step(self) -> int:
        """Return the step of the newest batch, to which scalars belong; TRL logs after the optimizer step."""
        return max(0, int(self._trainer.state.global_step) - 1)

    @property
    def _training_monitor(self) -> Monitor | None:
        """The monitor, unless the trainer evaluates."""
        return self._monitor if self._trainer.model.training else None

    @property
    def _chunks(self) -> int | None:
        """The number of micro-batches of this optimizer step; None for the last one of an epoch, which may be cut."""
        chunks = int(self._trainer.current_gradient_accumulation_steps)
        return chunks if chunks == self._trainer.args.gradient_accumulation_steps else None

    def _train(self, train: Hook, *args: Any, **kwargs: Any) -> Any:
        self._begin()
        with Monitor(self._settings) as self._monitor:
            return train(*args, **kwargs)

    def _log(self, log: Hook, *args: Any, **kwargs: Any) -> Any:
        logged = log(*args, **kwargs)
        if (monitor := self._training_monitor) is not None and self._trainer.state.is_world_process_zero:
            monitor.error_guard.guard(lambda: self._log_scalars(monitor), otherwise=None)
        return logged

    def _log_scalars(self, monitor: Monitor) -> None:
        if values := trainer_scalars(self._trainer.state.log_history):
            monitor.log_scalars(self._scalars_step(), values)
