"""Asynchronous policy gradient in two processes: one samples with older weights while the other trains.

TRMON_URL=http://127.0.0.1:8642 python examples/async_grpo.py [STEPS]
"""

import sys
from contextlib import suppress
from queue import Empty, Full

import torch
from counting import reported, score, where_to_look
from tiny_policy import Policy, RolloutEngine, clipped_loss
from torch import multiprocessing

import trmon_client as trmon

SYNC_STEPS = 4
"""The sampler gets new weights every so many optimizer steps."""
MAX_WAITING = 2
"""Batches that may wait for the trainer."""


def sample(weights: multiprocessing.Queue, batches: multiprocessing.Queue) -> None:
    """Sample until the weights are None, always with the newest that have arrived."""
    engine = RolloutEngine(seed=0)
    newest = weights.get()
    while newest is not None:
        engine.load(*newest)
        batch = score(engine.rollout())
        with suppress(Full):
            batches.put(batch, timeout=1.0)
        with suppress(Empty):
            newest = weights.get_nowait()
    batches.cancel_join_thread()


def main(steps: int = 50) -> None:
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    context = multiprocessing.get_context("spawn")
    weights, batches = context.Queue(), context.Queue(MAX_WAITING)
    sampler = context.Process(target=sample, args=(weights, batches), daemon=True)
    sampler.start()
    with trmon.init(project="examples", run="async-grpo", config={"sync_steps": SYNC_STEPS}) as monitor:
        for step in range(steps):
            if step % SYNC_STEPS == 0:
                weights.put(({name: value.clone() for name, value in policy.state_dict().items()}, step))
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
