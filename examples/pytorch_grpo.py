"""GRPO in plain PyTorch: minibatches, epochs and gradient accumulation.

TRMON_URL=http://127.0.0.1:8642 python examples/pytorch_grpo.py [STEPS]
"""

import sys

import torch
from counting import reported, score, where_to_look
from tiny_policy import Policy, RolloutEngine, clipped_loss

import trmon_client as trmon

EPOCHS, MINIBATCHES, MICRO_BATCHES = 2, 2, 2


def main(steps: int = 50) -> None:
    torch.manual_seed(0)
    policy, engine = Policy(), RolloutEngine(seed=0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3)
    with trmon.init(project="examples", run="pytorch-grpo", config={"lr": 2e-3, "epochs": EPOCHS}) as monitor:
        for step in range(steps):
            engine.load(policy.state_dict(), version=step)
            batch = score(engine.rollout())
            with torch.no_grad():
                batch["old_logprobs"] = policy(batch["prompts"], batch["tokens"])
            # The whole rollout before its updates: complete groups, and the mismatch of the two engines.
            monitor.log_batch(step=step, chunks=1, trainer_version=step, old_version=step, **reported(batch))
            rows = [part for _ in range(EPOCHS) for part in torch.randperm(len(batch["tokens"])).chunk(MINIBATCHES)]
            for update, minibatch in enumerate(rows):
                optimizer.zero_grad()
                for micro_batch in minibatch.chunk(MICRO_BATCHES):
                    part = {name: values[micro_batch] for name, values in batch.items()}
                    logprobs = policy(part["prompts"], part["tokens"])
                    decision = monitor.log_batch(
                        step=step,
                        update=update,  # which optimizer step of this rollout
                        chunks=MICRO_BATCHES,  # how many calls make up the update
                        logprobs=logprobs.detach(),
                        trainer_version=step,
                        old_version=step,
                        **reported(part),
                    )
                    loss = torch.where(decision.mask, clipped_loss(logprobs, part), 0).sum() / len(minibatch)
                    loss.backward()
                grad_norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                optimizer.step()
            monitor.log_scalars(step, {"grad_norm": grad_norm, "loss": loss.detach()})
            print(f"step {step}: reward {batch['rewards'].mean():.2f}")
    print(where_to_look(monitor))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
