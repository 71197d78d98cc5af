"""Rewards, group ids and old log-probs, added to the rollouts so that TRL shuffles and splits them with the rest."""

from __future__ import annotations

from typing import Any

REWARDS, GROUP_IDS, OLD_LOGPS = "trmon_rewards", "trmon_group_ids", "trmon_old_logps"


class RolloutLabels:
    """Collects while a trainer generates rollouts; `rewards`, by function, is set by the wrapped method."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._n_groups_before = 0
        self.begin()

    def begin(self) -> None:
        """Forget the previous rollouts."""
        self.rewards: Any = None
        self._first_score: Any = None

    def note_score(self, score: Any) -> None:
        """Keep the first log-probs of the rollouts: those of the policy; others are of the reference."""
        self._first_score = score if self._first_score is None else self._first_score

    def added_to(self, rollouts: dict[str, Any]) -> dict[str, Any]:
        """Return the rollouts with labels, [B]; and with [B, T] log-probs where RLOO keeps only their sums."""
        labels = self._rewards_and_groups(len(rollouts["completion_mask"]))
        if "old_logps" in rollouts:
            labels[OLD_LOGPS] = self._first_score[0]
        self.begin()
        return {**rollouts, **labels}

    def of(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of `log_batch` for a micro-batch."""
        return {"rewards": inputs.get(REWARDS), "group_ids": inputs.get(GROUP_IDS)}

    def old_of(self, inputs: dict[str, Any]) -> Any:
        """Return the log-probs [B, T] under the weights of the generation; None where TRL did not compute them."""
        return inputs.get("old_per_token_logps", inputs.get(OLD_LOGPS))

    def _rewards_and_groups(self, n_rows: int) -> dict[str, Any]:
        """Gathered rewards [all ranks' rows, functions] become this rank's weighted sums; NaN where none applies."""
        import torch

        trainer, by_function = self._trainer, self.rewards
        rewards = (by_function * trainer.reward_weights.to(by_function.device)).nansum(dim=1)
        rewards = torch.where(by_function.isnan().all(dim=1), torch.nan, rewards)
        groups = torch.arange(len(rewards), device=rewards.device) // trainer.num_generations
        groups += self._n_groups_before
        # Several generations may share one optimizer step: their groups have ids of their own.
        self._n_groups_before += len(rewards) // trainer.num_generations
        first = trainer.accelerator.process_index * n_rows
        local = slice(first, first + n_rows)
        return {REWARDS: rewards[local], GROUP_IDS: groups[local]}
