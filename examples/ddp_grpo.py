"""GRPO with DistributedDataParallel; the client takes rank and world size from torch.distributed.

TRMON_URL=http://127.0.0.1:8642 torchrun --nproc-per-node 4 examples/ddp_grpo.py [STEPS]
"""

import sys

import torch
import torch._dynamo  # at an optimizer's first step it would keep the process group, and gloo's threads, to the exit
from counting import N_PROMPTS, reported, score, where_to_look
from tiny_policy import Policy, RolloutEngine, clipped_loss
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import trmon_client as trmon

EPOCHS = 2


def main(steps: int = 50) -> None:
    distributed.init_process_group("gloo")
    rank, n_ranks = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    policy = DistributedDataParallel(Policy())
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3)
    engine = RolloutEngine(seed=rank)
    # Each rank reports its own rows; the service merges them, and says which ranks are missing.
    monitor = trmon.init(project="examples", run="ddp-grpo", config={"lr": 2e-3, "ranks": n_ranks})
    for step in range(steps):
        engine.load(policy.module.state_dict(), version=step)
        # Prompts of different ranks are different groups: their ids must not meet.
        batch = score(engine.rollout(first_group=rank * N_PROMPTS))
        with torch.no_grad():
            batch["old_logprobs"] = policy(batch["prompts"], batch["tokens"])
        for update in range(EPOCHS):
            logprobs = policy(batch["prompts"], batch["tokens"])
            decision = monitor.log_batch(
                step=step,
                update=update,
                chunks=1,
                logprobs=logprobs.detach(),
                trainer_version=step,
                old_version=step,
                **reported(batch),
            )
            loss = torch.where(decision.mask, clipped_loss(logprobs, batch), 0).mean()
            optimizer.zero_grad()
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
        if rank == 0:
            monitor.log_scalars(step, {"grad_norm": grad_norm, "loss": loss.detach()})
            print(f"step {step}: reward {batch['rewards'].mean():.2f} on rank 0")
    monitor.close()
    distributed.destroy_process_group()
    if rank == 0:
        print(where_to_look(monitor))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
