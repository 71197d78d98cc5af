"""GRPO with Accelerate: `accumulate` says when an optimizer step is due, `chunks` tells trmon.

TRMON_URL=http://127.0.0.1:8642 torchrun --nproc-per-node 2 examples/accelerate_grpo.py [STEPS]
(or accelerate launch, with your configuration)
"""

import sys

import torch
from accelerate import Accelerator
from counting import N_PROMPTS, reported, score, where_to_look
from tiny_policy import Policy, RolloutEngine, clipped_loss

import trmon_client as trmon

EPOCHS, MICRO_BATCHES = 2, 4


def main(steps: int = 50) -> None:
    accelerator = Accelerator(gradient_accumulation_steps=MICRO_BATCHES, cpu=True)
    torch.manual_seed(0)
    policy = Policy()
    policy, optimizer = accelerator.prepare(policy, torch.optim.Adam(policy.parameters(), lr=2e-3))
    engine = RolloutEngine(seed=accelerator.process_index)
    # Every process of this Accelerator is a data-parallel rank. With model parallelism, pass the data-parallel ones.
    monitor = trmon.init(
        project="examples",
        run="accelerate-grpo",
        config={"lr": 2e-3, "epochs": EPOCHS},
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
    )
    for step in range(steps):
        engine.load(accelerator.unwrap_model(policy).state_dict(), version=step)
        batch = score(engine.rollout(first_group=accelerator.process_index * N_PROMPTS))
        with torch.no_grad():
            batch["old_logprobs"] = policy(batch["prompts"], batch["tokens"])
        for update in range(EPOCHS):
            for rows in torch.randperm(len(batch["tokens"])).chunk(MICRO_BATCHES):
                part = {name: values[rows] for name, values in batch.items()}
                with accelerator.accumulate(policy):
                    logprobs = policy(part["prompts"], part["tokens"])
                    decision = monitor.log_batch(
                        step=step,
                        update=update,
                        chunks=MICRO_BATCHES,
                        logprobs=logprobs.detach(),
                        trainer_version=step,
                        old_version=step,
                        **reported(part),
                    )
                    loss = torch.where(decision.mask, clipped_loss(logprobs, part), 0).mean()
                    accelerator.backward(loss)  # divides by the accumulation steps
                    if accelerator.sync_gradients:
                        grad_norm = accelerator.clip_grad_norm_(policy.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
        if accelerator.is_main_process:
            monitor.log_scalars(step, {"grad_norm": grad_norm, "loss": loss.detach()})
        accelerator.print(f"step {step}: reward {batch['rewards'].mean():.2f} on rank 0")
    monitor.close()
    accelerator.print(where_to_look(monitor))
    accelerator.end_training()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
