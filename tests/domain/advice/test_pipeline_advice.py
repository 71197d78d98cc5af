"""The advice by pipeline: which kinds a run's pipeline has, and the method for each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.domain.advice.test_anti_patterns import given
from trmon.domain.budget.pipeline_advice import (
    CORRECTION,
    METHODS,
    NO_CORRECTION,
    PipelineKind,
    pipeline_advice,
    pipeline_kinds,
)

SMALL = {"mismatch_kl_k1": 0.04, "mismatch_chi2_token": 0.2}


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
    assert {kind.value for kind in pipeline_kinds(given(signals, config))} == kinds


def test_each_kind_has_its_method_and_what_shows_it() -> None:
    assert METHODS.keys() == set(PipelineKind)
    (method,) = pipeline_advice(given({"version_lag_max": 3}, {})).methods
    assert (method.title, method.method) == ("Asynchronous", METHODS[PipelineKind.ASYNC])
    assert [(one.name, one.value) for one in method.shown_by] == [("version_lag_max", "3")]


@pytest.mark.parametrize(
    ("signals", "correction"),
    [
        (SMALL, NO_CORRECTION),
        ({**SMALL, "mismatch_kl_k1": 0.05}, CORRECTION),
        ({**SMALL, "mismatch_chi2_token": 0.3}, CORRECTION),
        ({"mismatch_kl_k1": 0.04}, None),
    ],
)
def test_a_correction_is_advised_from_the_limits_on(signals: dict[str, Any], correction: str | None) -> None:
    assert pipeline_advice(given(signals, {})).correction == correction
