"""The kinds of off-policyness: each is present, absent or unknown by what was sent and declared."""

from __future__ import annotations

from typing import Any

import pytest

from tests.domain.budget.test_pipeline_advice import given
from trmon.domain.budget.off_policy_kinds import off_policy_kinds

AGREEING = {"mismatch_prob_pearson": 0.999, "mismatch_kl_k1": 0.001}
AT_A_LAG = {"mismatch_kl_k1": [0.001] * 20 + [0.5] * 40, "engine_lag": [0] * 20 + [2] * 40}
CASES: list[tuple[str, dict[str, Any], dict[str, Any], float, str]] = [
    ("engine mismatch", {}, {}, 1, "unknown"),
    ("engine mismatch", AGREEING, {}, 1, "absent"),
    ("engine mismatch", {**AGREEING, "mismatch_prob_pearson": 0.98}, {}, 1, "present"),
    ("engine mismatch", {**AGREEING, "mismatch_kl_k1": -0.03}, {}, 1, "present"),
    ("engine mismatch", {"mismatch_kl_k1": 0.001}, {}, 1, "absent"),
    ("engine mismatch", {**AGREEING, "engine_lag": 2}, {}, 1, "unknown"),
    ("engine mismatch", AT_A_LAG, {}, 1, "absent"),
    ("staleness", {}, {}, 1, "unknown"),
    ("staleness", {"version_lag_max": 0}, {}, 1, "absent"),
    ("staleness", {"version_lag_max": [0] * 30 + [1] + [0] * 29}, {}, 1, "present"),
    ("reuse of rollouts", {}, {}, 1, "absent"),
    ("reuse of rollouts", {}, {}, 4, "present"),
    ("versions within a response", {"version_span_max": 0}, {}, 1, "absent"),
    ("versions within a response", {"version_span_max": 2}, {}, 1, "present"),
    ("missing old log-probs", {}, {}, 1, "unknown"),
    ("missing old log-probs", {"total_ess_seq": 0.9}, {}, 1, "present"),
    ("missing old log-probs", {"total_ess_seq": 0.9, "mismatch_ess_seq": 0.9}, {}, 1, "absent"),
    ("router decisions", {}, {}, 1, "unknown"),
    ("router decisions", {"router_flip_rate": 0.0}, {}, 1, "absent"),
    ("router decisions", {"router_flip_rate": 0.1}, {"router_replay": True}, 1, "present"),
    ("quantised rollout", {}, {}, 1, "unknown"),
    ("quantised rollout", {}, {"quantization": "fp8"}, 1, "present"),
    ("sampling mask", {}, {}, 1, "unknown"),
    ("sampling mask", {}, {"top_p": 1.0, "top_k": -1}, 1, "absent"),
    ("sampling mask", {}, {"actor_rollout_ref": {"rollout": {"top_p": 0.95}}}, 1, "present"),
    ("sampling mask", {}, {"top_k": 50}, 1, "present"),
    ("KV cache of older weights", {"version_span_max": 2}, {}, 1, "unknown"),
    ("speculative drafting", {}, {}, 1, "unknown"),
]


@pytest.mark.parametrize(("name", "signals", "config", "updates", "presence"), CASES)
def test_a_kind_is_told_by_what_was_sent(
    name: str, signals: dict[str, Any], config: dict[str, Any], updates: float, presence: str
) -> None:
    kinds = {kind.name: kind for kind in off_policy_kinds(given(signals, config), updates_per_step=updates)}
    assert kinds[name].presence == presence
    assert ("hides the difference" in kinds[name].why) is ("router_replay" in config)
    assert kinds[name].why


def test_engines_that_a_finding_says_disagree_are_not_told_to_agree() -> None:
    found = off_policy_kinds(given(AGREEING, {}, finding="engine_mismatch"), updates_per_step=1)
    assert (found[0].presence, found[0].why) == ("present", "engine mismatch stands since step 30")
