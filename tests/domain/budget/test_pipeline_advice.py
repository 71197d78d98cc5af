"""The anti-patterns and the kinds of off-policyness: what shows each, what excludes it, and what would tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trmon.domain.budget.off_policy_kinds import PipelineInput, PipelineKind, Presence, off_policy_kinds
from trmon.domain.budget.pipeline_advice import CORRECTION, METHODS, NO_CORRECTION, anti_patterns, pipeline_advice
from trmon.domain.findings.judge import Place
from trmon.domain.findings.verdict import Found, Judgement, Word
from trmon.domain.severity import Severity
from trmon.domain.signals.history import History
from trmon_client.api.budget import PipelineAdviceInfo
from trmon_client.core.policies.policy import preset

STEPS = 60
PRESENT, ABSENT, UNKNOWN = Presence.PRESENT, Presence.ABSENT, Presence.UNKNOWN
SEQUENCE = {"algorithm.rollout_correction.rollout_is": "sequence"}
CLIPPED = {"clip_fraction": 0.25}
LENGTHS = {"response_length_mean": 80.0}
NOISE = {"grad_variance": [1.0] * 30 + [2.5] * 30}

CASES = [
    (1, PRESENT, "a KL without engines", {"staleness_kl_k1": 0.01}, {}),
    (1, PRESENT, "engines that disagree", {"mismatch_kl_k1": 0.01, "mismatch_prob_pearson": 0.98}, {}),
    (1, ABSENT, "engines that agree", {"mismatch_kl_k1": 0.01, "mismatch_prob_pearson": 0.999}, {}),
    (1, PRESENT, "never at lag 0", {"total_kl_k1": 0.01, "total_prob_pearson": 0.999, "version_lag_max": 2}, {}),
    (1, UNKNOWN, "scalars alone", {"reward_mean": 0.5}, {}),
    (2, PRESENT, "few samples, rising noise", {"mismatch_ess_token": 0.4, **NOISE}, SEQUENCE),
    (2, ABSENT, "few samples, steady noise", {"mismatch_ess_token": 0.4, "grad_variance": 1.0}, SEQUENCE),
    (2, ABSENT, "at exactly half the samples", {"mismatch_ess_token": 0.5, **NOISE}, SEQUENCE),
    (2, UNKNOWN, "noise not sent", {"mismatch_ess_token": 0.4}, SEQUENCE),
    (2, UNKNOWN, "samples not measured", NOISE, SEQUENCE),
    (2, ABSENT, "token weights", {"mismatch_ess_token": 0.4, **NOISE}, {"rollout_is": "token"}),
    (2, ABSENT, "no weights", {"mismatch_ess_token": 0.4, **NOISE}, {}),
    (3, PRESENT, "a wide range", CLIPPED, {"epsilon_high": 0.28}),
    (3, ABSENT, "the usual range", CLIPPED, {"epsilon": 0.2}),
    (3, ABSENT, "at exactly a fifth", {"clip_fraction": 0.2}, {"epsilon": 0.4}),
    (3, UNKNOWN, "no range named", CLIPPED, {}),
    (3, UNKNOWN, "clipping not measured", {}, {"epsilon": 0.4}),
    (4, ABSENT, "no surge", {**LENGTHS, "lr": 1e-6}, {}),
    (4, UNKNOWN, "no lengths", {"lr": 1e-6}, {}),
    (5, ABSENT, "no finding", {"mismatch_prob_diff_mean": 0.004, "mismatch_prob_diff_max": 0.9}, {}),
    (5, UNKNOWN, "not measured", {}, {}),
]
FOUND_CASES = [
    (1, PRESENT, "engine_mismatch", {"mismatch_kl_k1": 0.01, "mismatch_prob_pearson": 0.999}),
    (4, PRESENT, "length_surge", {**LENGTHS, "lr": 1e-6}),
    (4, ABSENT, "length_surge", {**LENGTHS, "lr": [1e-6] * 40 + [5e-7] * 20}),
    (4, PRESENT, "length_surge", {**LENGTHS, "lr": [1e-6] * 20 + [5e-7] * 40}),
    (4, UNKNOWN, "length_surge", LENGTHS),
    (5, PRESENT, "engine_mismatch", {"mismatch_prob_diff_mean": 0.004}),
    (5, ABSENT, "engine_mismatch", {"mismatch_prob_diff_mean": 0.01}),
]
"""What a finding that stands since step 30 decides."""


def judgement(finding: str) -> Judgement:
    found = Found(
        finding=finding,
        clause="c",
        title=finding.replace("_", " "),
        meaning="",
        severity=Severity.WARN,
        remedy=finding,
        chart="",
        since=Place(1, 30),
        found=Place(1, 34),
        from_start=False,
        last_good=Place(1, 29),
        evidence=(),
    )
    return Judgement(word=Word.FINDING, place=Place(1, 59), rows=60, findings=(found,))


def given(
    signals: dict[str, Any], config: dict[str, Any], *, policy: str = "trm_auto", finding: str | None = None
) -> PipelineInput:
    values = {name: np.broadcast_to(np.asarray(value, float), STEPS) for name, value in signals.items()}
    history = History.of_rows(step=np.arange(STEPS), update=np.full(STEPS, -1), values=values)
    found = None if finding is None else judgement(finding)
    return PipelineInput(history=history, config=config, policy=preset(policy), judgement=found)


def advice(signals: dict[str, Any], config: dict[str, Any], *, finding: str | None = None) -> PipelineAdviceInfo:
    asked = given(signals, config, finding=finding)
    return pipeline_advice(asked, off_policy_kinds(asked, updates_per_step=1.0))


@pytest.mark.parametrize(
    ("number", "presence", "signals", "config"),
    [pytest.param(n, presence, signals, config, id=f"{n} {why}") for n, presence, why, signals, config in CASES],
)
def test_an_anti_pattern_is_told_by_configuration_and_numbers(
    number: int, presence: Presence, signals: dict[str, Any], config: dict[str, Any]
) -> None:
    found = anti_patterns(given(signals, config))[number - 1]
    assert (found.number, found.presence) == (number, presence)


@pytest.mark.parametrize(("number", "presence", "finding", "signals"), FOUND_CASES)
def test_an_anti_pattern_says_what_the_judge_found(
    number: int, presence: Presence, finding: str, signals: dict[str, Any]
) -> None:
    assert anti_patterns(given(signals, {}, finding=finding))[number - 1].presence is presence


@pytest.mark.parametrize(
    ("policy", "presence"),
    [
        ("seq_mis", PRESENT),
        ("seq_tis", PRESENT),
        ("decoupled_seq_is_rs", PRESENT),
        ("decoupled_token_is", ABSENT),
        ("seq_mis_mask", ABSENT),
    ],
)
def test_policies_with_weights_of_sequences_are_known_by_their_rules(policy: str, presence: Presence) -> None:
    found = anti_patterns(given({"mismatch_ess_token": 0.4, **NOISE}, {}, policy=policy))[1]
    assert found.presence is presence


def test_the_numbers_that_show_it_are_named() -> None:
    found = anti_patterns(given({"mismatch_ess_token": 0.4, **NOISE}, {}, policy="seq_mis"))[1]
    assert found.presence is PRESENT
    assert [(one.name, one.value) for one in found.shown_by] == [
        ("policy", "seq_mis"),
        ("mismatch_ess_token", "0.4"),
        ("grad_variance", "2.5"),
    ]


SMALL = {"mismatch_kl_k1": 0.01, "mismatch_chi2_token": 0.2}


@pytest.mark.parametrize(
    ("signals", "config", "kinds"),
    [
        ({}, {}, {"sync_dense"}),
        ({"version_lag_max": 0}, {}, {"sync_dense"}),
        ({"version_lag_max": [0] * 40 + [3] * 20}, {}, {"sync_dense"}),
        ({"version_lag_max": 3}, {}, {"async"}),
        ({"router_flip_rate": 0.1}, {}, {"moe"}),
        ({"max_vio": 0.1}, {}, {"moe"}),
        ({}, {"router_replay": True}, {"moe"}),
        ({}, {"actor_rollout_ref": {"rollout": {"quantization": "fp8"}}}, {"quantised"}),
        ({}, {"actor_rollout_ref.rollout.quantization": None}, {"sync_dense"}),
        ({}, {"actor_rollout_ref.rollout.dtype": "bfloat16"}, {"sync_dense"}),
        ({"version_lag_max": 1, "router_flip_rate": 0.1}, {"quantization": "int8"}, {"async", "moe", "quantised"}),
    ],
)
def test_a_pipeline_has_the_kinds_that_something_shows(
    signals: dict[str, Any], config: dict[str, Any], kinds: set[str]
) -> None:
    assert {method.kind for method in advice(signals, config).methods} == kinds


def test_each_kind_has_its_method_and_what_shows_it() -> None:
    assert METHODS.keys() == set(PipelineKind)
    (method,) = advice({"version_lag_max": 3}, {}).methods
    assert (method.title, method.method) == METHODS[PipelineKind.ASYNC]
    assert [(one.name, one.value) for one in method.shown_by] == [("version_lag_max", "3")]


@pytest.mark.parametrize(
    ("signals", "correction"),
    [
        (SMALL, NO_CORRECTION),
        ({**SMALL, "mismatch_kl_k1": 0.02}, CORRECTION),
        ({**SMALL, "mismatch_chi2_token": 0.3}, CORRECTION),
        ({"mismatch_kl_k1": 0.04}, None),
    ],
)
def test_a_correction_is_advised_from_the_limits_on(signals: dict[str, Any], correction: str | None) -> None:
    assert advice(signals, {}).correction == correction


def test_no_correction_is_not_advised_beside_a_finding() -> None:
    found = advice(SMALL, {}, finding="engine_mismatch")
    assert found.correction == "Engine mismatch since step 30: its remedy comes first."


AGREEING = {"mismatch_prob_pearson": 0.999, "mismatch_kl_k1": 0.001}
AT_A_LAG = {"mismatch_kl_k1": [0.001] * 20 + [0.5] * 40, "engine_lag": [0] * 20 + [2] * 40}
KIND_CASES: list[tuple[str, dict[str, Any], dict[str, Any], float, str]] = [
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


@pytest.mark.parametrize(("name", "signals", "config", "updates", "presence"), KIND_CASES)
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
