"""The loss: PPO's clip, and rejected sequences without a gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from tests.lab.recording import RecordedDecision
from trmon.lab.testbed.batch import Batch
from trmon.lab.testbed.config import Anchor, LabConfig
from trmon.lab.testbed.loss import clipped_loss
from trmon.lab.testbed.task import prompts
from trmon_client.core import acceptance, statistics

CONFIG = LabConfig(seed=0)
LENGTHS = torch.tensor([16, 8])


@dataclass(frozen=True)
class Setup:
    batch: Batch
    logprobs: Tensor

    def gradient(self, *, config: LabConfig = CONFIG, is_enforced: bool = False) -> Tensor:
        """The gradient of the loss with respect to the learner's log-probs, [2, 16]."""
        columns = statistics.columns(
            rollout_logprobs=self.batch.rollout_logprobs, logprobs=self.logprobs, mask=self.batch.prompts.mask
        )
        verdict = acceptance.decide(columns, acceptance.preset("trm_max"))
        decision = RecordedDecision(columns, verdict, is_enforced)
        value = clipped_loss(self.batch, self.logprobs, decision=decision, config=config)
        (gradient,) = torch.autograd.grad(value, self.logprobs)
        return gradient


def _setup(*, ratio: float = 1.0, advantages: tuple[float, float] = (1.0, 1.0)) -> Setup:
    old = torch.full((2, 16), -1.0)
    task = prompts(torch.zeros((2, 16), dtype=torch.int64), LENGTHS)
    batch = Batch(
        prompts=task,
        tokens=task.answers,
        mask=task.mask,
        rollout_logprobs=old.clone(),
        old_logprobs=old,
        flips=torch.zeros((2, 16), dtype=torch.bool),
        versions=torch.zeros(2, dtype=torch.int64),
        rewards=torch.zeros(2),
        exact=torch.zeros(2, dtype=torch.bool),
        advantages=torch.tensor(advantages),
        group_ids=torch.zeros(2, dtype=torch.int64),
        truncated=None,
    )
    return Setup(batch, (old + torch.tensor(ratio).log()).requires_grad_())


CLIP = [
    ("inside the clip range both directions have a gradient", 1.1, (1.0, -1.0), [True, True]),
    ("above it only a bad sequence has a gradient", 1.5, (1.0, -1.0), [False, True]),
    ("below it only a good sequence has a gradient", 0.5, (1.0, -1.0), [True, False]),
]


@pytest.mark.parametrize(("sentence", "ratio", "advantages", "has_gradient"), CLIP, ids=[case[0] for case in CLIP])
def test_the_clip_holds_what_has_moved_far(
    sentence: str, ratio: float, advantages: tuple[float, float], has_gradient: list[bool]
) -> None:
    assert _setup(ratio=ratio, advantages=advantages).gradient().any(dim=1).tolist() == has_gradient


def test_sequences_have_equal_weight_at_any_length() -> None:
    assert _setup().gradient().sum(dim=1).tolist() == pytest.approx([-0.5, -0.5])


def test_masked_tokens_do_not_matter() -> None:
    setup = _setup()
    setup.batch.old_logprobs[~setup.batch.prompts.mask] = float("nan")
    gradient = setup.gradient()
    assert not gradient[~setup.batch.prompts.mask].any()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("anchor", Anchor)
def test_a_rejected_sequence_of_nans_counts_and_has_no_gradient(anchor: Anchor) -> None:
    setup = _setup()
    setup.batch.rollout_logprobs[0] = float("nan")
    gradient = setup.gradient(config=replace(CONFIG, anchor=anchor), is_enforced=True)
    assert not gradient[0].any()
    assert gradient[1].sum().item() == pytest.approx(-0.5)


def test_a_trainer_that_trusts_the_engine_uses_its_log_probs() -> None:
    setup = _setup()
    setup.batch.rollout_logprobs[:] = 0.0
    trusting = setup.gradient(config=replace(CONFIG, anchor=Anchor.ROLLOUT))
    assert trusting.sum(dim=1).tolist() == pytest.approx([-0.5 * torch.tensor(-1.0).exp().item()] * 2)
