"""OpenRLHF 0.11.2: its loss, and its controller under Ray, with trmon hooked by `worker_process_setup_hook`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest
import ray
import torch
from openrlhf.models.loss import PolicyLoss
from openrlhf.trainer.ppo_trainer import PPOTrainer
from ray import cloudpickle

from tests.client.integrations.rollouts import (
    Rollouts,
    assert_bit_identical,
    assert_reported,
    reported,
)
from tests.client.server import Peer
from tests.peers.openrlhf import controllers
from trmon_client.core import wire
from trmon_client.integrations.openrlhf import hook_openrlhf

SENT = cloudpickle.dumps(PPOTrainer.__ray_metadata__.modified_class)
"""The actor's class as the driver, which has no hooks, sends it to a worker."""
pytestmark = pytest.mark.timeout(600)
"""Ray takes minutes to start on a busy machine."""


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    """Ray in local processes, whose workers are hooked as the page says."""
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"worker_process_setup_hook": "trmon_client.integrations.openrlhf.hook_openrlhf"},
    )
    yield
    ray.shutdown()


def loss_of(rollouts: Rollouts, **correction: object) -> tuple[torch.Tensor, ...]:
    """Return what `PolicyLoss` computes, and its gradient."""
    pi = rollouts.old.clone().requires_grad_()
    loss, clip, kl, vllm_kl, filtered = PolicyLoss(**correction)(
        pi, rollouts.old, rollouts.advantages, action_mask=rollouts.mask, rollout_log_probs=rollouts.mu
    )
    loss.backward()
    return tuple(value for value in (loss.detach(), pi.grad, clip, kl, vllm_kl, filtered) if value is not None)


def test_the_loss_is_bit_identical_and_the_signals_are_what_it_logs(server: Peer) -> None:
    rollouts = Rollouts.generate()
    before = loss_of(rollouts, is_correction_level="token")
    hook_openrlhf()
    trainer = controllers.controller(rollouts)
    trainer.train_step(controllers.samples(rollouts), 0)
    trained_on = trainer.actor_model_group.appended
    assert_bit_identical(
        [rollouts.mu, rollouts.old],
        [*map(torch.cat, zip(*((e.rollout_log_probs, e.action_log_probs) for e in trained_on), strict=True))],
    )
    assert_bit_identical(list(before), list(loss_of(rollouts, is_correction_level="token")))
    reports, columns = reported(server, n=2)
    assert [(report.step, report.update, report.chunks) for report in reports] == [(1, None, 2)] * 2
    advantages = torch.cat([experience.advantages for experience in trained_on])
    made = Rollouts(rollouts.mu, rollouts.old, rollouts.mask, advantages, rollouts.rewards)
    assert_reported(columns, made, has=("rewards", "group_ids", "truncated"))
    # OpenRLHF's vllm_kl is the mean of log mu - log pi_old, trmon's k1 of the same pair.
    assert float(before[4]) == pytest.approx(made.expected()["mismatch_kl_k1"], rel=1e-5)


def test_a_band_of_one_asks_for_log_probs_and_leaves_the_loss_as_it_is() -> None:
    rollouts = Rollouts.generate()
    off = loss_of(rollouts)
    on = loss_of(rollouts, is_correction_level="token", is_correction_mode="clip", is_correction_threshold=(1.0, 1.0))
    assert_bit_identical(list(off), list(on[: len(off)]))


def test_the_class_that_ray_sends_to_a_worker_calls_the_hooks(server: Peer) -> None:
    hook_openrlhf()
    received = cloudpickle.loads(SENT)
    for name in ("train_step", "save_logs_and_checkpoints"):
        assert hasattr(getattr(received, name).__wrapped__, "hooked_method")


def test_ray_hooks_the_worker_that_trains(server: Peer) -> None:
    variables = {name: value for name, value in os.environ.items() if name.startswith("TRMON_")}
    folder = sys.modules["tests"].__path__

    def train() -> tuple[bool, int]:
        # The wheel of OpenRLHF installs a package `tests`, which a worker would find.
        sys.modules["tests"] = ModuleType("tests")
        sys.modules["tests"].__path__ = folder
        import_module("tests.peers.openrlhf.conftest")
        trained: tuple[bool, int] = import_module("tests.peers.openrlhf.controllers").train_one_step(4)
        return trained

    assert ray.get(ray.remote(train).options(runtime_env={"env_vars": variables}).remote()) == (True, 5)
    reports, columns = reported(server, n=2)
    assert {report.step for report in reports} == {5}
    assert columns.pairs == ("mismatch",)
    (scalars,) = server.wait_for(wire.Scalars)
    assert (scalars.step, scalars.values["policy_loss"]) == (5, 0.25)
