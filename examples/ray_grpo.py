"""GRPO with Ray: two learners train data-parallel, each with a monitor of its own and a pool that verifies answers.

TRMON_URL=http://127.0.0.1:8642 python examples/ray_grpo.py [STEPS [fork|spawn]]
"""

import multiprocessing
import os
import sys
import tempfile

import ray
import torch
from counting import N_PROMPTS, reported, score, where_to_look
from tiny_policy import Policy, RolloutEngine, clipped_loss
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import trmon_client as trmon

N_LEARNERS, N_VERIFIERS, EPOCHS = 2, 2, 2


@ray.remote
class Sampler(RolloutEngine):
    """The rollout engine of a learner."""


@ray.remote
class Learner:
    """A data-parallel rank: a monitor belongs to the process that trains, so the actor makes it."""

    def __init__(self, rank: int, sampler: ray.actor.ActorHandle, start_method: str) -> None:
        self.rank, self.sampler, self.start_method = rank, sampler, start_method

    def train(self, steps: int, store: str) -> str:
        """Train, and return how to look at the run."""
        distributed.init_process_group("gloo", init_method=store, rank=self.rank, world_size=N_LEARNERS)
        torch.manual_seed(0)
        policy = DistributedDataParallel(Policy())
        optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3)
        monitor = trmon.init(project="examples", run="ray-grpo", config={"lr": 2e-3, "verifiers": self.start_method})
        # A process that verifies inherits the monitor if it is forked; it reports nothing and ends in peace.
        pool = multiprocessing.get_context(self.start_method).Pool(N_VERIFIERS)
        for step in range(steps):
            ray.get(self.sampler.load.remote(policy.module.state_dict(), step))
            rollout = ray.get(self.sampler.rollout.remote(first_group=self.rank * N_PROMPTS))
            batch = score(rollout, pool.starmap)
            batch["old_logprobs"] = policy(batch["prompts"], batch["tokens"]).detach()
            for update in range(EPOCHS):
                logprobs = policy(batch["prompts"], batch["tokens"])
                versions = {"trainer_version": step, "old_version": step}
                decision = monitor.log_batch(
                    step=step, update=update, chunks=1, logprobs=logprobs.detach(), **versions, **reported(batch)
                )
                loss = torch.where(decision.mask, clipped_loss(logprobs, batch), 0).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"step {step}: reward {batch['rewards'].mean():.2f} on rank {self.rank}")
        pool.close()
        pool.join()  # terminating it would lose a worker that is still starting: it forgets the signal under Ray
        monitor.close()
        distributed.destroy_process_group()
        return where_to_look(monitor)


def main(steps: int = 50, start_method: str = "spawn") -> None:
    # A cluster that already runs on this machine may have another number of workers.
    ray.init(address="local", num_cpus=2 * N_LEARNERS, include_dashboard=False)
    variables = {name: value for name, value in os.environ.items() if name.startswith("TRMON_")}
    # For a cluster that was started without them.
    learner = Learner.options(runtime_env={"env_vars": variables})
    learners = [learner.remote(rank, Sampler.remote(seed=rank), start_method) for rank in range(N_LEARNERS)]
    store = f"file://{tempfile.mkdtemp()}/gloo"  # on several hosts, in a folder that they share
    texts = ray.get([learner.train.remote(steps, store) for learner in learners])
    print(texts[0])


if __name__ == "__main__":
    main(*[int(argument) if argument.isdecimal() else argument for argument in sys.argv[1:]])
