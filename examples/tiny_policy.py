"""The policy of the examples, the engine that samples from it, and the loss that it learns by."""

from __future__ import annotations

import torch
from counting import END, LENGTH, N_PROMPTS, N_RESPONSES, N_TOKENS, Batch
from torch import Tensor, nn

torch.set_num_threads(1)  # more would wait for each other in a model this small


class Policy(nn.Module):
    """A GRU; calling it returns the log-probs of responses, [B, T], with gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N_TOKENS, 32)
        self.gru = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, N_TOKENS)

    def forward(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        read = torch.cat([prompts[:, None], tokens[:, :-1]], dim=1)
        logits = self.head(self.gru(self.embedding(read))[0])
        return logits.log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)


class RolloutEngine:
    """Samples token by token from its own copy of the weights, in bfloat16, as an inference engine does."""

    def __init__(self, seed: int) -> None:
        self.policy, self.version = Policy().bfloat16(), 0
        self.generator = torch.Generator().manual_seed(seed)

    def load(self, weights: dict[str, Tensor], version: int) -> None:
        self.policy.load_state_dict(weights)
        self.version = version

    @torch.no_grad()
    def rollout(self, *, first_group: int = 0) -> Batch:
        """Return responses with their log-probs. Groups are numbered from `first_group`: each rank needs its own."""
        groups = torch.arange(N_PROMPTS).repeat_interleave(N_RESPONSES)
        prompts = torch.randint(10, (N_PROMPTS,), generator=self.generator)[groups]
        token, state, tokens, logprobs = prompts, None, [], []
        for _ in range(LENGTH):
            features, state = self.policy.gru(self.policy.embedding(token[:, None]), state)
            every = self.policy.head(features[:, 0]).float().log_softmax(-1)
            token = torch.multinomial(every.exp(), 1, generator=self.generator).squeeze(-1)
            tokens.append(token)
            logprobs.append(every.gather(-1, token[:, None]).squeeze(-1))
        sampled = torch.stack(tokens, 1)
        ended = (sampled == END).long().cumsum(1)
        return {
            "prompts": prompts,
            "tokens": sampled,
            "mask": (ended - (sampled == END).long()) == 0,
            "rollout_logprobs": torch.stack(logprobs, 1),
            "truncated": ended[:, -1] == 0,
            "group_ids": groups + first_group,
            "versions": torch.full_like(groups, self.version),
        }


def clipped_loss(logprobs: Tensor, batch: Batch) -> Tensor:
    """Return PPO's clipped loss of each response, [B], a mean over its tokens."""
    mask, advantages = batch["mask"], batch["advantages"][:, None]
    ratio = (logprobs - batch.get("old_logprobs", batch["rollout_logprobs"])).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -(gain * mask).sum(1) / mask.sum(1).clamp(min=1)
