"""Each injection causes its own fault, in proportion to its severity."""

from __future__ import annotations

import pytest

from trmon.lab.testbed.config import Anchor, LabConfig
from trmon.lab.testbed.injection import Fault, Injection

HEALTHY = {
    "weight_bits": None,
    "lag": 0,
    "router_noise": 0.0,
    "padded_share": 0.0,
    "top_p": 1.0,
    "temperature": 1.0,
    "negated_share": 0.0,
    "nan_share": 0.0,
    "entropy_bonus": 0.0,
    "token_limit": None,
    "lr": 5e-4,
}

SEVERITIES = [
    ("quantise takes bits away", Injection.QUANTISE, 0.2, {"weight_bits": 7}),
    ("quantise ends at three bits", Injection.QUANTISE, 1.0, {"weight_bits": 3}),
    ("stale begins with one version", Injection.STALE, 0.01, {"lag": 1}),
    ("stale ends at sixteen versions", Injection.STALE, 1.0, {"lag": 16}),
    ("router noise grows", Injection.ROUTER, 0.5, {"router_noise": 1.5}),
    ("pad takes the log-probs of more and more responses", Injection.PAD, 0.25, {"padded_share": 0.25}),
    ("support shrinks the nucleus", Injection.SUPPORT, 1.0, {"top_p": 0.7}),
    ("lr ends at a rate that collapses", Injection.LR, 1.0, {"lr": 4e-3}),
    ("temperature cools the rollout", Injection.TEMPERATURE, 0.5, {"temperature": 0.85}),
    ("reward turns more and more groups around", Injection.REWARD, 0.25, {"negated_share": 0.25}),
    ("nan takes a share of the rewards", Injection.NAN, 1.0, {"nan_share": 0.05}),
    ("entropy raises its bonus", Injection.ENTROPY, 0.5, {"entropy_bonus": 0.5}),
    ("length lowers the limit of tokens", Injection.LENGTH, 0.5, {"token_limit": 10}),
]


def _what(fault: Fault) -> dict[str, object]:
    return {name: getattr(fault, name) for name in HEALTHY if name != "lr"} | {"lr": fault.learning_rate(5e-4)}


@pytest.mark.parametrize(("sentence", "injection", "severity", "change"), SEVERITIES, ids=[s[0] for s in SEVERITIES])
def test_an_injection_changes_only_its_own_parameter(
    sentence: str, injection: Injection, severity: float, change: dict[str, float]
) -> None:
    assert _what(Fault(injection, severity)) == pytest.approx(HEALTHY | change)


@pytest.mark.parametrize("injection", Injection)
def test_zero_severity_changes_nothing(injection: Injection) -> None:
    assert _what(Fault(injection, 0.0)) == _what(Fault()) == HEALTHY


def test_a_run_is_healthy_first_then_worse_until_the_ramp_ends() -> None:
    config = LabConfig(seed=0, injection=Injection.STALE, onset_step=10, ramp_steps=4)
    assert [config.fault(step).severity for step in (0, 9, 10, 11, 13, 14, 99)] == [0, 0, 0.25, 0.5, 1, 1, 1]
    assert {LabConfig.healthy(0).fault(step) for step in range(200)} == {Fault()}


def test_the_temperature_of_the_rollout_may_be_chosen() -> None:
    config = LabConfig(seed=0, injection=Injection.TEMPERATURE, onset_step=0, ramp_steps=1, rollout_temperature=1.2)
    assert config.fault(0).temperature == pytest.approx(1.2)


def test_corrupt_logprobs_meet_a_trainer_that_trusts_them() -> None:
    anchors = {injection: LabConfig.injected(injection, 0).anchor for injection in Injection}
    assert [injection for injection in Injection if anchors[injection] is Anchor.ROLLOUT] == [Injection.PAD]
