"""Log-probs that never held a finite value count as not given; those of a policy that turns NaN are invalid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.client.trainer import batch, settings
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.core.logprob_mistakes import LogprobMistake, mistake_in_range
from trmon_client.core.statistics import columns_of_inputs
from trmon_client.error_guard import ErrorGuard, WarnOnce
from trmon_client.logprob_checks import GivenPolicies, MistakeChecks, token_ranges
from trmon_client.monitor import Monitor

NAN = np.full((4, 6), np.nan)


def three(**changed: Any) -> dict[str, Any]:
    """Return three policies, some replaced."""
    given = batch()
    return given | {"old_logprobs": given["rollout_logprobs"] - 1e-3} | changed


def on_a_device(inputs: CheckedInputs) -> CheckedInputs:
    """Return inputs as tensors, as they are on a device."""
    return inputs.mapped(torch.from_numpy)


@pytest.mark.parametrize("kind", [np.nan, np.inf, -np.inf])
def test_a_policy_without_a_finite_value_has_no_pair(
    kind: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Monitor(settings(tmp_path)) as monitor:
        decisions = [monitor.log_batch(step=step, **three(rollout_logprobs=np.full((4, 6), kind))) for step in range(3)]
    for decision in decisions:
        assert decision.columns.pairs == ("staleness",)
        assert decision.columns["n_invalid"].tolist() == [0] * 4
        assert decision.mask_rate == 0.0
    assert capsys.readouterr().err.count("rollout_logprobs= holds no finite value") == 1


def test_a_policy_is_given_from_its_first_finite_value_on_and_then_its_nan_are_invalid(tmp_path: Path) -> None:
    with Monitor(settings(tmp_path)) as monitor:
        monitor.log_batch(step=0, **three(rollout_logprobs=NAN))
        one = NAN.copy()
        one[3, 5] = -1.0
        decision = monitor.log_batch(step=1, **three(rollout_logprobs=one))
        later = monitor.log_batch(step=2, **three(rollout_logprobs=NAN))
    assert decision.columns.pairs == ("mismatch", "staleness", "total")
    assert decision.columns["n_invalid"].tolist() == [6, 6, 6, 5]
    assert later.reasons == ["invalid_logprobs"] * 4


def test_values_of_tokens_that_do_not_count_prove_nothing() -> None:
    mask = np.ones((4, 6))
    mask[:, 5] = 0
    hidden = NAN.copy()
    hidden[:, 5] = -1.0
    given = GivenPolicies(WarnOnce())
    assert "logprobs" not in given.select(check_inputs(**three(logprobs=hidden, mask=mask)))[0].logprobs
    # Without a counting token nothing is known of any policy.
    given = GivenPolicies(WarnOnce())
    assert len(given.select(check_inputs(**three(logprobs=NAN, mask=np.zeros((4, 6)))))[0].logprobs) == 3


def test_a_finite_value_is_found_in_any_row() -> None:
    late = np.full((100, 3), np.nan)
    late[99, 2] = -1.0
    inputs = check_inputs(logprobs=late, old_logprobs=np.zeros((100, 3)) - 1.0, mask=np.ones((100, 3)))
    assert set(GivenPolicies(WarnOnce()).select(inputs)[0].logprobs) == {"logprobs", "old_logprobs"}


def test_on_a_device_a_policy_is_absent_once_an_earlier_call_has_been_read() -> None:
    given = GivenPolicies(WarnOnce())
    inputs = on_a_device(check_inputs(**three(rollout_logprobs=NAN)))
    first, values = given.select(inputs)
    assert set(first.logprobs) == {"rollout_logprobs", "old_logprobs", "logprobs"}
    given.learn({name: value.numpy() for name, value in values.items()})
    second, again = given.select(inputs)
    assert set(second.logprobs) == {"old_logprobs", "logprobs"}
    assert set(again) == {"rollout_logprobs", "mask"}, "known policies need no further look"
    given.learn(given.select(on_a_device(check_inputs(**three())))[1])
    assert len(given.select(inputs)[0].logprobs) == 3


@pytest.mark.parametrize("policy", ["trm", "icepop", "opsm"])
@pytest.mark.parametrize("names", [("logprobs",), ()], ids=["one policy", "no policy"])
def test_without_a_pair_every_sequence_that_is_not_empty_is_accepted(
    names: tuple[str, ...], policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask = np.ones((4, 6))
    mask[2] = 0
    given = {name: batch()[name] for name in names}
    with Monitor(settings(tmp_path, mode="enforce", policy=policy)) as monitor:
        for step in (0, 1):
            decision = monitor.log_batch(step=step, **given, mask=mask, rewards=[1.0, 0.0, 1.0, 0.0])
    assert decision.accepted.tolist() == [True, True, False, True]
    assert (decision.mask_rate, decision.signals["reward_mean"]) == (0.0, pytest.approx(1 / 3))
    assert decision.weights.sum() == 18
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "nothing to compare" in line]
    assert f"policy {policy} does not apply" in said


MASK = np.array([[1, 1, 0], [1, 1, 1]])
LOGPROBS = np.array([[-0.1, -2.0, 0.5], [-1e-3, 0.0, -3.0]])

SIGN, PROBABILITIES, UNIT = LogprobMistake
CASES: dict[str, tuple[Any, LogprobMistake | None]] = {
    "log-probs": (LOGPROBS, None),
    "probabilities": (np.exp(np.minimum(LOGPROBS, 0.0)), PROBABILITIES),
    "probabilities, some of them 0": (np.array([[0.5, 0.0, -9.0], [1.0, 0.2, 0.3]]), PROBABILITIES),
    "probabilities, one of them not a number": (np.array([[0.5, np.nan, -9.0], [1.0, 0.2, 0.3]]), PROBABILITIES),
    "certain tokens only": (np.zeros((2, 3)), None),
    "rounding above 0": (np.full((2, 3), 1e-6), None),
    "negated log-probs": (-LOGPROBS, SIGN),
    "negated log-probs, one of them infinite": (np.array([[0.5, np.inf, -9.0], [1.0, 0.2, 0.3]]), SIGN),
    "values on both sides of 0": (np.array([[0.5, -0.1, -9.0], [1.0, 7.0, 0.3]]), None),
    "values that are not numbers": (np.full((2, 3), np.nan), None),
}


@pytest.mark.parametrize("library", ["numpy", "torch", "short floats"])
@pytest.mark.parametrize(("values", "found"), CASES.values(), ids=CASES.keys())
def test_the_range_of_values_tells_what_they_are(values: Any, found: LogprobMistake | None, library: str) -> None:
    given: dict[str, Any] = {"rollout_logprobs": LOGPROBS, "logprobs": values, "mask": MASK}
    if library != "numpy":
        given = {name: torch.from_numpy(np.asarray(array)) for name, array in given.items()}
    if library == "short floats":
        given["logprobs"] = given["logprobs"].to(torch.bfloat16)
    ranges = token_ranges(check_inputs(**given))
    assert mistake_in_range(*np.asarray(ranges["logprobs"])) is found
    assert mistake_in_range(*np.asarray(ranges["rollout_logprobs"])) is None


def of_tokens(*, temperature: float = 1.0) -> np.ndarray:
    """Return the log-probs of tokens that a policy of temperature 1 sampled, float64 [8, 16]."""
    random = np.random.default_rng(0)
    logits = random.normal(0.0, 2.0, (8, 16, 50))
    sampled = (logits + random.gumbel(size=logits.shape)).argmax(-1)[..., None]
    scaled = logits / temperature
    found: np.ndarray = np.take_along_axis(scaled - np.logaddexp.reduce(scaled, -1, keepdims=True), sampled, -1)[..., 0]
    return found


LN2, LN10 = np.log(2), np.log(10)
OF_BOTH = {
    "log-probs": (lambda logp: (logp - 1e-3, logp), None, ""),
    "another temperature": (lambda logp: (of_tokens(temperature=LN2), logp), None, ""),
    "negated": (lambda logp: (-logp, logp), SIGN, "no value below 0 in rollout_logprobs="),
    "both negated": (lambda logp: (-logp, -logp), SIGN, "no value below 0 in rollout_logprobs= and old_logprobs="),
    "probabilities": (lambda logp: (logp, np.exp(logp)), PROBABILITIES, "values from 0 to 1 only in old_logprobs="),
    "mu in log2": (lambda logp: (logp / LN2, logp), UNIT, "log2 in rollout_logprobs="),
    "pi_old in log2": (lambda logp: (logp, logp / LN2), UNIT, "log2 in old_logprobs="),
    "mu in log10": (lambda logp: (logp / LN10, logp), UNIT, "log10 in rollout_logprobs="),
    "pi_old in log10": (lambda logp: (logp, logp / LN10), UNIT, "log10 in old_logprobs="),
}


@pytest.mark.parametrize(("given", "mistake", "what"), OF_BOTH.values(), ids=OF_BOTH)
def test_a_mistake_is_one_line_of_the_console_with_its_fix(
    given: Any, mistake: LogprobMistake | None, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mu, old = given(of_tokens())
    with Monitor(settings(tmp_path)) as monitor:
        for step in range(4):
            monitor.log_batch(step=step, rollout_logprobs=mu, old_logprobs=old, mask=np.ones(mu.shape))
    said = [line for line in capsys.readouterr().err.splitlines() if "pairs mismatch" not in line]
    assert said == ([f"trmon: {what}: {mistake.title}. {mistake.fix}"] if mistake else [])


def test_the_units_of_small_calls_are_added_up_and_too_few_tokens_tell_nothing() -> None:
    logp = of_tokens().reshape(-1)
    for n, is_said in ((20, False), (22, True)):
        guard = ErrorGuard()
        checks = MistakeChecks(guard)
        for start in range(0, 3 * n, n):
            mine = logp[None, start : start + n]
            inputs = check_inputs(rollout_logprobs=mine / LN2, logprobs=mine, mask=np.ones((1, n)))
            checks.see(checks.ranges(inputs), columns_of_inputs(inputs))
        assert (list(guard.losses.warnings()) == ["unit"]) is is_said


def test_masks_that_leave_no_token_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logp = of_tokens()
    for masks, is_said in (([0, 0, 0, 1], True), ([0, 0, 1, 0], False)):
        with Monitor(settings(tmp_path)) as monitor:
            for step, counted in enumerate(masks):
                mask = np.full(logp.shape, bool(counted))
                monitor.log_batch(step=step, rollout_logprobs=logp, old_logprobs=logp - 1e-3, mask=mask)
        line = "trmon: the masks of the first 3 calls leave no token in the loss: 1 marks those that count"
        assert (line in capsys.readouterr().err.splitlines()) is is_said


def test_an_empty_batch_has_no_ranges() -> None:
    empty = np.zeros((0, 3))
    inputs = check_inputs(rollout_logprobs=empty, logprobs=empty, mask=empty)
    assert token_ranges(inputs) == {}
