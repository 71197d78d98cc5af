"""The service's advice as the trainer reads it."""

from __future__ import annotations

from typing import Any


class TrainerAdvice(dict[str, Any]):
    """The fields of the advice by name; fields that an older service does not send are neutral."""

    @property
    def should_stop(self) -> bool:
        """Whether the run should end now: its reward collapsed, or its numbers are NaN.

        Always false unless the run's `config` has `stop_on_collapse: True`.
        """
        return self.get("should_stop") is True
