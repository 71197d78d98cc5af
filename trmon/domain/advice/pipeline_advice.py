"""Advice by pipeline: which method suits a run. Source: [DRIFT], operational defaults of its author, not laws."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trmon.domain.advice.anti_patterns import AntiPattern, anti_patterns
from trmon.domain.advice.pipeline_kinds import PipelineInput, PipelineKind, ShownBy, pipeline_kinds
from trmon.domain.diagnosis.criteria import Thresholds

METHODS = {
    PipelineKind.SYNC_DENSE: "PPO-clip with decoupled geometric rejection: policy geo_mask; verl's preset "
    "decoupled_geo_rs with 0.99_1.01. The geometric mean, never the sequence sum, which drops the longest responses.",
    PipelineKind.ASYNC: "Bound the staleness, as a setting of yours and not of the algorithm, and scale the learning "
    "rate by the effective sample size (VCPO): trmon_client.advice.scale_lr. Decoupled, with a proximal policy.",
    PipelineKind.MOE: "Align the routing before any tuning of the loss: IcePop at once, replay of the rollout's "
    "routing (R3) or Keep Routing for production; log router_flip_rate.",
    PipelineKind.QUANTISED: "Treat the quantised policy as a behaviour policy of its own (QuRL, QaRL), not as a "
    "defect: keep the ratio to it in the loss, and judge its mismatch against the run's own start.",
}
"""The method for each kind of pipeline."""
NO_CORRECTION = (
    "Below kl 0.05 and chi2_token 0.3 no correction may be needed: in the first few hundred steps, measure only."
)
CORRECTION = (
    "Correct: bypass saves a forward pass where the mismatch is small; decoupled where rollouts are used late or often."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineMethod:
    """A kind of the run's pipeline, what shows it, and the method that suits it."""

    kind: PipelineKind
    title: str
    shown_by: tuple[ShownBy, ...]
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAdvice:
    """The methods for a run's pipeline, whether it needs a correction now, and the five anti-patterns."""

    methods: tuple[PipelineMethod, ...]
    correction: str | None
    correction_shown_by: tuple[ShownBy, ...]
    anti_patterns: tuple[AntiPattern, ...]


def pipeline_advice(given: PipelineInput) -> PipelineAdvice:
    """Return the advice for a run. Source: [DRIFT], advice by pipeline; formulas, section 9."""
    return PipelineAdvice(
        methods=tuple(
            PipelineMethod(kind=kind, title=kind.title, shown_by=shown_by, method=METHODS[kind])
            for kind, shown_by in pipeline_kinds(given).items()
        ),
        correction=_correction(given),
        correction_shown_by=given.shown("kl_k1", "chi2_token"),
        anti_patterns=anti_patterns(given),
    )


def _correction(given: PipelineInput) -> str | None:
    """Return whether the drift asks for a correction; None where it was not measured."""
    limits, kl, chi2 = Thresholds(), given.value("kl_k1"), given.value("chi2_token")
    if math.isnan(kl) or math.isnan(chi2):
        return None
    return NO_CORRECTION if abs(kl) < limits.kl_ill and chi2 < limits.chi2_moderate else CORRECTION
