"""GRPO in Lightning: `log_batch` in the training step, the rank from the trainer.

TRMON_URL=http://127.0.0.1:8642 python examples/lightning_grpo.py [STEPS [DEVICES]]
"""

import sys
from typing import Any

import torch
from counting import N_PROMPTS, reported, score, where_to_look
from lightning import pytorch as lightning
from tiny_policy import Policy, RolloutEngine, clipped_loss
from torch.utils.data import DataLoader

import trmon_client as trmon

EPOCHS, MINIBATCHES = 2, 2


class GRPO(lightning.LightningModule):
    """A training step is a rollout and the optimizer steps on it."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.policy = Policy()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.policy.parameters(), lr=2e-3)

    def on_fit_start(self) -> None:
        self.engine = RolloutEngine(seed=self.global_rank)
        self.monitor = trmon.init(
            project="examples",
            run="lightning-grpo",
            config={"lr": 2e-3, "epochs": EPOCHS},
            rank=self.global_rank,
            world_size=self.trainer.world_size,
        )

    def training_step(self, _: Any, step: int) -> None:
        self.engine.load(self.policy.state_dict(), version=step)
        batch = score(self.engine.rollout(first_group=self.global_rank * N_PROMPTS))
        with torch.no_grad():
            batch["old_logprobs"] = self.policy(batch["prompts"], batch["tokens"])
        rows = [part for _ in range(EPOCHS) for part in torch.randperm(len(batch["tokens"])).chunk(MINIBATCHES)]
        for update, minibatch in enumerate(rows):
            self.update({name: values[minibatch] for name, values in batch.items()}, step=step, update=update)
        self.log("reward", batch["rewards"].mean(), prog_bar=True)

    def update(self, batch: dict[str, torch.Tensor], *, step: int, update: int) -> None:
        versions = {"trainer_version": step, "old_version": step}
        logprobs = self.policy(batch["prompts"], batch["tokens"])
        decision = self.monitor.log_batch(
            step=step, update=update, chunks=1, logprobs=logprobs.detach(), **versions, **reported(batch)
        )
        loss = torch.where(decision.mask, clipped_loss(logprobs, batch), 0).mean()
        self.optimizers().zero_grad()
        self.manual_backward(loss)
        self.optimizers().step()

    def on_fit_end(self) -> None:
        self.monitor.close()
        if self.global_rank == 0:
            print(where_to_look(self.monitor))


def main(steps: int = 50, devices: int = 1) -> None:
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=devices, max_epochs=1, logger=False, enable_checkpointing=False
    )
    trainer.fit(GRPO(), DataLoader(range(steps * devices), batch_size=1))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
