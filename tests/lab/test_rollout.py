"""The rollout engine: its samples, its log-probs, and the effect of each fault on both."""

from __future__ import annotations

import pytest
import torch

from trmon.lab.testbed.injection import Fault, Injection
from trmon.lab.testbed.policy import new_policy
from trmon.lab.testbed.rollout import Rollout, RolloutEngine, nucleus_logprobs
from trmon.lab.testbed.task import N_SYMBOLS, draw_prompts

PROMPTS = draw_prompts(128, generator=torch.Generator().manual_seed(2))
WEIGHTS = new_policy(0).weights()


HEALTHY = Fault()


def _generate(fault: Fault = HEALTHY, *, version: int = 7) -> Rollout:
    engine = RolloutEngine(generator=torch.Generator().manual_seed(1))
    engine.load(WEIGHTS, version=version, bits=fault.weight_bits)
    return engine.generate(PROMPTS, fault=fault)


def test_a_rollout_carries_the_version_of_its_weights() -> None:
    assert _generate(version=7).versions.tolist() == [7] * len(PROMPTS)


def test_equal_generators_sample_equal_rollouts() -> None:
    one, same = _generate(), _generate()
    assert torch.equal(one.tokens, same.tokens)
    assert torch.equal(one.logprobs, same.logprobs)


def test_only_symbols_are_sampled() -> None:
    tokens = _generate().tokens
    assert tokens.min() >= 0
    assert tokens.max() < N_SYMBOLS


def test_the_learner_cannot_move_the_engines_weights() -> None:
    weights = {name: weight.clone() for name, weight in WEIGHTS.items()}
    engine = RolloutEngine(generator=torch.Generator().manual_seed(1))
    engine.load(weights, version=0)
    for weight in weights.values():
        weight.fill_(1.0)
    assert torch.equal(engine.generate(PROMPTS, fault=Fault()).tokens, _generate().tokens)


@pytest.mark.parametrize("injection", [Injection.QUANTISE, Injection.ROUTER, Injection.SUPPORT])
def test_faults_of_the_engine_change_what_is_sampled(injection: Injection) -> None:
    assert not torch.equal(_generate(Fault(injection, 1.0)).tokens, _generate().tokens)


@pytest.mark.parametrize("injection", [Injection.STALE, Injection.LR])
def test_faults_elsewhere_leave_sampling_alone(injection: Injection) -> None:
    assert torch.equal(_generate(Fault(injection, 1.0)).tokens, _generate().tokens)


def test_lost_logprobs_are_zero_to_the_end_and_the_tokens_stay() -> None:
    healthy, padded = _generate(), _generate(Fault(Injection.PAD, 1.0))
    lost = padded.logprobs == 0.0
    assert torch.equal(padded.tokens, healthy.tokens)
    assert torch.equal(padded.logprobs[~lost], healthy.logprobs[~lost])
    assert lost[:, -1].all()
    assert (lost.long().diff(dim=1) >= 0).all()


def test_half_severity_loses_about_half_of_the_ends() -> None:
    lost = (_generate(Fault(Injection.PAD, 0.5)).logprobs[:, -1] == 0.0).float().mean().item()
    assert 0.35 < lost < 0.65


NUCLEI = [
    ("all of the probability keeps every symbol", 1.0, [0.5, 0.3, 0.15, 0.05]),
    ("the symbol that reaches top_p is the last one in", 0.7, [0.625, 0.375, 0, 0]),
    ("the likeliest symbol is always in", 0.1, [1, 0, 0, 0]),
    ("a symbol beyond what is needed stays out", 0.9, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
]


@pytest.mark.parametrize(("sentence", "top_p", "expected"), NUCLEI, ids=[case[0] for case in NUCLEI])
def test_a_nucleus_is_the_fewest_symbols_renormalised(sentence: str, top_p: float, expected: list[float]) -> None:
    shuffled = torch.tensor([2, 0, 3, 1])
    logprobs = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()[:, shuffled]
    kept = nucleus_logprobs(logprobs, top_p=top_p).exp()
    torch.testing.assert_close(kept, torch.tensor([expected])[:, shuffled].float())
