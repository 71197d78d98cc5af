"""Report a run of TRL: `attach(trainer, project=..., run=...)` before `trainer.train()`."""

from trmon_client.integrations.trl.attachment import attach

__all__ = ["attach"]
