"""Log-probs that never held a finite value count as not given; those of a policy that turns NaN are invalid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.client.trainer import batch, settings
from trmon_client.core.inputs.checked_inputs import CheckedInputs, check_inputs
from trmon_client.error_guard import WarnOnce
from trmon_client.logprob_checks import GivenPolicies, probabilities_in, token_ranges
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
def test_the_pairs_of_a_policy_without_a_finite_value_are_absent(
    kind: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Monitor(settings(tmp_path)) as monitor:
        decisions = [monitor.log_batch(step=step, **three(rollout_logprobs=np.full((4, 6), kind))) for step in range(3)]
    for decision in decisions:
        assert decision.columns is not None
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
    assert decision.columns is not None
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
    given.learn(values.with_arrays([array.numpy() for array in values.arrays]))
    second, again = given.select(inputs)
    assert set(second.logprobs) == {"old_logprobs", "logprobs"}
    assert set(again.by_argument) == {"rollout_logprobs"}, "known policies need no further look"
    _, values = given.select(on_a_device(check_inputs(**three())))
    given.learn(values.with_arrays([array.numpy() for array in values.arrays]))
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
    assert decision.weights is not None
    assert decision.weights.sum() == 18
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "nothing to compare" in line]
    assert f"policy {policy} does not apply" in said


MASK = np.array([[1, 1, 0], [1, 1, 1]])
LOGPROBS = np.array([[-0.1, -2.0, 0.5], [-1e-3, 0.0, -3.0]])

CASES = {
    "log-probs": (LOGPROBS, []),
    "probabilities": (np.exp(np.minimum(LOGPROBS, 0.0)), ["logprobs"]),
    "probabilities, some of them 0": (np.array([[0.5, 0.0, -9.0], [1.0, 0.2, 0.3]]), ["logprobs"]),
    "certain tokens only": (np.zeros((2, 3)), []),
    "rounding above 0": (np.full((2, 3), 1e-6), []),
    "a value above 1": (np.full((2, 3), 1.5), []),
    "a value that is not a number": (np.full((2, 3), np.nan), []),
}


@pytest.mark.parametrize("library", ["numpy", "torch", "short floats"])
@pytest.mark.parametrize(("values", "found"), CASES.values(), ids=CASES.keys())
def test_values_from_0_to_1_are_probabilities(values: Any, found: list[str], library: str) -> None:
    given: dict[str, Any] = {"rollout_logprobs": LOGPROBS, "logprobs": values, "mask": MASK}
    if library != "numpy":
        given = {name: torch.from_numpy(np.asarray(array)) for name, array in given.items()}
    if library == "short floats":
        given["logprobs"] = given["logprobs"].to(torch.bfloat16)
    ranges = token_ranges(check_inputs(**given))
    assert probabilities_in({name: np.asarray(array) for name, array in ranges.items()}) == found


def test_an_empty_batch_has_no_ranges() -> None:
    empty = np.zeros((0, 3))
    inputs = check_inputs(rollout_logprobs=empty, logprobs=empty, mask=empty)
    assert token_ranges(inputs) == {}
