"""The variance proxies of verl 0.9.1 beside trmon's: equal from logits, and within trmon's band from log-probs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from verl.trainer.ppo.metric_utils import compute_variance_proxy_metrics

from trmon.domain.signals.run_features import gradient_noise
from trmon_client.core import divergence, statistics
from trmon_client.core.divergence.divergence_columns import with_divergences
from trmon_client.core.policies.policy import preset
from trmon_client.core.policies.token_decision import apply_token_rules
from trmon_client.core.signals import batch_signals

GRAD_NORM = 0.3


@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "token TIS"])
def test_the_proxies_are_those_of_verl(is_weighted: bool) -> None:
    random = torch.Generator().manual_seed(0)
    rollout = torch.randn(6, 7, 11, generator=random, dtype=torch.float64)
    logits = rollout + 0.5 * torch.randn(rollout.shape, generator=random, dtype=torch.float64)
    ids = torch.randint(0, 11, (6, 7, 1), generator=random)
    mask, advantages = torch.arange(7) < torch.randint(2, 8, (6, 1), generator=random), torch.linspace(-1, 1, 6)
    mu, old = (torch.log_softmax(each, -1).gather(-1, ids)[..., 0] for each in (rollout, logits))
    given = {"rollout_logprobs": mu, "old_logprobs": old, "mask": mask}
    columns = statistics.columns(**given, advantages=advantages)
    tensors = {
        "sum_pi_squared": torch.softmax(logits, -1).square().sum(-1),
        "old_log_probs": old,
        "advantages": advantages.double()[:, None].expand(6, 7),
        "response_mask": mask.double(),
    }
    if is_weighted:
        decided = apply_token_rules(preset("tis"), **given)
        columns = decided.attached_to(columns)
        tensors["rollout_is_weights"] = torch.as_tensor(decided.weights, dtype=torch.float64)
    theirs = compute_variance_proxy_metrics(SimpleNamespace(batch=tensors), GRAD_NORM)
    power = theirs["variance_proxy/proxy2_total_power"]
    band = batch_signals.compute(columns)
    assert band["proxy2_total_power_low"] <= power <= band["proxy2_total_power_high"]
    both = {"rollout_logits": rollout, "old_logits": logits, "mask": mask}
    exact = batch_signals.compute(with_divergences(columns, divergence.exact(**both, sum_pi_squared=True)))
    assert exact["proxy2_total_power_low"] == exact["proxy2_total_power_high"] == pytest.approx(power, rel=1e-6)
    noise = gradient_noise({**exact, "n_sequences": 6.0}, grad_norm=GRAD_NORM)
    assert noise.pure_noise_low == pytest.approx(theirs["variance_proxy/proxy3_pure_noise"], rel=1e-6)
    assert noise.signal_strength == theirs["variance_proxy/proxy1_signal_strength"]
