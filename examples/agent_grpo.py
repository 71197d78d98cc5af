"""GRPO on traces of an agent: turns between a tool's tokens, and only the turns that are off-policy are masked.

TRMON_URL=http://127.0.0.1:8642 python examples/agent_grpo.py [STEPS]
"""

import sys

import torch
from counting import END, LENGTH, N_PROMPTS, N_RESPONSES, Batch, reported, score, where_to_look
from tiny_policy import Policy, RolloutEngine, clipped_loss

import trmon_client as trmon
from trmon_client.turns import turn_ids_of_mask

TURN, LAG = 3, 16
"""Tokens of a turn; steps by which the weights that sample the last turn of every other trace are behind."""
TURNS = {
    "name": "turns",
    "criteria": [],
    "turns": [{"statistic": "turn_mean_k3", "pair": "mismatch", "upper": 0.005}],
}


@torch.no_grad()
def rollout(current: RolloutEngine, behind: RolloutEngine) -> Batch:
    """Return traces of three turns, after each of which a tool repeats the last token; its tokens do not count."""
    groups = torch.arange(N_PROMPTS).repeat_interleave(N_RESPONSES)
    prompts = torch.randint(10, (N_PROMPTS,), generator=current.generator)[groups]
    token, states, tokens, logprobs = prompts, [None, None], [], []
    is_behind = torch.arange(len(groups)) % 2 == 1
    for position in range(LENGTH):
        every = []
        for at, engine in enumerate((current, behind)):
            features, states[at] = engine.policy.gru(engine.policy.embedding(token[:, None]), states[at])
            every.append(engine.policy.head(features[:, 0]).float().log_softmax(-1))
        late = is_behind[:, None] & (position > LENGTH - TURN - 2)
        sampled = torch.where(late, every[1], every[0])
        if position % (TURN + 1) < TURN:
            token = torch.multinomial(sampled.exp(), 1, generator=current.generator).squeeze(-1)
        tokens.append(token)
        logprobs.append(sampled.gather(-1, token[:, None]).squeeze(-1))
    said = torch.stack(tokens, 1)
    ended = (said == END).long().cumsum(1) - (said == END).long() > 0
    is_tool = torch.arange(LENGTH) % (TURN + 1) == TURN
    mask = ~ended & ~is_tool
    return {"prompts": prompts, "tokens": said, "mask": mask, "rollout_logprobs": torch.stack(logprobs, 1)} | {
        "group_ids": groups,
        "turn_ids": turn_ids_of_mask(mask),
    }


def main(steps: int = 50) -> None:
    torch.manual_seed(0)
    policy, current, behind = Policy(), RolloutEngine(seed=0), RolloutEngine(seed=1)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    with trmon.init(project="examples", run="agent-grpo", mode="enforce", policy=TURNS) as monitor:
        for step in range(steps):
            current.load(policy.state_dict(), version=step)
            if step % LAG == 0:
                behind.load(policy.state_dict(), version=step)
            batch = score(rollout(current, behind))
            logprobs = policy(batch["prompts"], batch["tokens"])
            batch["old_logprobs"] = logprobs.detach()
            decision = monitor.log_batch(step=step, chunks=1, **reported(batch))
            # Tokens of rejected turns leave the loss, the other turns of their traces stay.
            loss = clipped_loss(logprobs, {**batch, "mask": decision.token_mask}).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(
                f"step {step}: reward {batch['rewards'].mean():.2f}, masks {decision.turns.mask_rate:.0%} of the turns"
            )
    print(where_to_look(monitor))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
