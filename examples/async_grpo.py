"""Asynchronous policy gradient in two processes: one samples with older weights while the other trains.

TRMON_URL=http://127.0.0.1:8642 python examples/async_grpo.py [STEPS]
"""

import sys

import torch
from counting import reported, score, where_to_look
from tiny_policy import Policy, RolloutEngine, clipped_loss
from torch import multiprocessing

import trmon_client as trmon

SYNC_STEPS = 2
"""The sampler gets new weights every so many optimizer steps, and samples one set of batches ahead of the trainer."""


def sample(weights: multiprocessing.Queue, batches: multiprocessing.Queue) -> None:
    """Sample batches with each set of weights that arrives, until it is None."""
    engine = RolloutEngine(seed=0)
    for newest in iter(weights.get, None):
        engine.load(*newest)
        for _ in range(SYNC_STEPS):
            batches.put(score(engine.rollout()))
    batches.cancel_join_thread()


def send(policy: Policy, weights: multiprocessing.Queue, *, step: int) -> None:
    """Send the sampler a copy of the weights."""
    weights.put(({name: value.clone() for name, value in policy.state_dict().items()}, step))


def main(steps: int = 50) -> None:
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    context = multiprocessing.get_context("spawn")
    weights, batches = context.Queue(), context.Queue()
    sampler = context.Process(target=sample, args=(weights, batches), daemon=True)
    sampler.start()
    send(policy, weights, step=0)
    with trmon.init(project="examples", run="async-grpo", config={"sync_steps": SYNC_STEPS}) as monitor:
        for step in range(steps):
            if step % SYNC_STEPS == 0:
                send(policy, weights, step=step)
            batch = batches.get()
            logprobs = policy(batch["prompts"], batch["tokens"])
            # `versions`, in the batch: the weights that sampled each row; with the trainer's own, they tell the lag.
            decision = monitor.log_batch(
                step=step, chunks=1, logprobs=logprobs.detach(), trainer_version=step, **reported(batch)
            )
            loss = torch.where(decision.mask, clipped_loss(logprobs, batch), 0).mean()
            optimizer.zero_grad()
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            monitor.log_scalars(step, {"grad_norm": grad_norm, "loss": loss.detach()})
            lag = step - int(batch["versions"].min())
            print(f"step {step}: reward {batch['rewards'].mean():.2f}, sampled {lag} steps ago")
    weights.put(None)
    sampler.join()
    print(where_to_look(monitor))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
