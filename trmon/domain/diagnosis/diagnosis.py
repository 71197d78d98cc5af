"""The diagnosis of a run: its findings, causes first, and the remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import RISK_SIGNALS, RiskReading, read_risk
from trmon.domain.diagnosis.conditions import (
    Evidence,
    HistoryAnyOf,
    HistoryCondition,
    HistoryLimit,
    HistoryVerdict,
    Missing,
    Observation,
)
from trmon.domain.diagnosis.criteria import Thresholds, finding_conditions, unhealthy
from trmon.domain.diagnosis.features import with_features
from trmon.domain.diagnosis.history import ENGINE_PAIRS, History, config_number
from trmon.domain.diagnosis.remedies import Remedy, RenderedRemedy, remedy_of
from trmon.domain.finding import CAUSES, Finding, FindingForm
from trmon.domain.rules.condition import ThresholdSide, Truth
from trmon.domain.signals.derived_signals import REFERENCE_POLICY, SHADOW_PREFIX
from trmon.domain.signals.reward_history import EMA_STEPS

CHI2_WEIGHTS, CHI2_SYSTEM = 2.0, 4.0
MASK_RATE_WEIGHTS, MASK_RATE_SYSTEM = 0.10, 0.25
BAND_FRACTION_SYSTEM = 0.10
MASK_RATE = f"{SHADOW_PREFIX}{REFERENCE_POLICY}"
"""The mask rate of geo_mask: that of the active policy depends on bounds of our own, which say little of the drift."""


class Stage(Enum):
    """The mildest correction that suffices for the measured drift."""

    REJECTION = "rejection"
    REJECTION_AND_WEIGHTS = "rejection_and_weights"
    SYSTEM_FIX = "system_fix"
    UNKNOWN = "unknown"

    @property
    def advice(self) -> str:
        """The advice for the stage."""
        return _STAGE_ADVICE[self]


_STAGE_ADVICE = {
    Stage.REJECTION: "rejection sampling alone is enough",
    Stage.REJECTION_AND_WEIGHTS: "rejection sampling with token-level truncated weights",
    Stage.SYSTEM_FIX: "fix the system: correction would discard or distort too much",
    Stage.UNKNOWN: "unknown: signals are missing",
}


@dataclass(frozen=True, slots=True)
class Escalation:
    """The stage with its evidence, or with the missing signals.

    The effective sample size after rejection, which formulas lists too, is not recorded and not used.
    """

    stage: Stage
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()


def escalation(history: History, limits: Thresholds) -> Escalation:
    """Return the stage of the newest rows of a history."""
    system = HistoryAnyOf(
        (
            _above("chi2_token", CHI2_SYSTEM),
            _above(MASK_RATE, MASK_RATE_SYSTEM),
            _above("band_fraction", BAND_FRACTION_SYSTEM),
            HistoryLimit(signal="prob_pearson", bound=ThresholdSide.BELOW, threshold=limits.pearson_ill),
        )
    ).read(history)
    if system.truth is Truth.TRUE:
        return Escalation(Stage.SYSTEM_FIX, system.evidence)
    # formulas requires weights from exactly 2, or 0.10, on: the limit is just below.
    weights = HistoryAnyOf((_at_least("chi2_token", CHI2_WEIGHTS), _at_least(MASK_RATE, MASK_RATE_WEIGHTS))).read(
        history
    )
    if system.truth is Truth.UNKNOWN or weights.truth is Truth.UNKNOWN:
        return Escalation(Stage.UNKNOWN, missing=tuple(dict.fromkeys((*system.missing, *weights.missing))))
    if weights.truth is Truth.TRUE:
        return Escalation(Stage.REJECTION_AND_WEIGHTS, weights.evidence)
    return Escalation(Stage.REJECTION)


def _above(signal: str, threshold: float) -> HistoryLimit:
    return HistoryLimit(signal=signal, bound=ThresholdSide.ABOVE, threshold=threshold)


def _at_least(signal: str, threshold: float) -> HistoryLimit:
    return HistoryLimit(signal=signal, bound=ThresholdSide.ABOVE, threshold=math.nextafter(threshold, 0.0))


AGREEMENT_SIGNALS = ("kl_k3", "prob_pearson", "ppl_ratio", "chi2_token", "ess_token", "kl_k1")
"""Signals of how far the policies of a pair agree, the most telling ones first."""
TRAINING_SIGNALS = ("reward_ema", "entropy_relative", "response_length_relative", "grad_norm")
"""Signals by which a run without log-probs is judged."""
NEWEST_ROWS = 5
"""A signal is measured if it has a value in so many of the newest rows."""


class Assurance(Enum):
    """How much is known of a run without a finding. Source: formulas, section 9, verdicts."""

    HEALTHY = "healthy"
    NO_DRIFT_FOUND = "no drift found"
    TRAINING_HEALTHY = "training healthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The newest value of a signal that was measured."""

    signal: str
    value: float


def measured(history: History, signals: tuple[str, ...]) -> tuple[Measurement, ...]:
    """Return the newest values of those of the signals that the newest rows have."""
    found = []
    for signal in signals:
        name, values = history.find(signal)
        known = values[-NEWEST_ROWS:]
        known = known[np.isfinite(known)]
        if len(known):
            found.append(Measurement(signal=name, value=float(known[-1])))
    return tuple(found)


class Quadrant(Enum):
    """Whether the average token drifts (tv), and whether a few tokens drift far (chi2)."""

    ON_POLICY = "on_policy"
    EVEN_DRIFT = "even_drift"
    HEAVY_TAIL = "heavy_tail"
    BOTH = "both"
    UNKNOWN = "unknown"

    @property
    def advice(self) -> str:
        """The correction that suffices."""
        return _QUADRANT_ADVICE[self]


_QUADRANT_ADVICE = {
    Quadrant.ON_POLICY: "nothing to correct",
    Quadrant.EVEN_DRIFT: "token-level correction suffices",
    Quadrant.HEAVY_TAIL: "mask sequences; token weights would explode",
    Quadrant.BOTH: "fix the system; no correction suffices",
    Quadrant.UNKNOWN: "tv and chi2_token are needed: pass rollout_logprobs with old_logprobs or logprobs",
}
_BY_TRUTHS = {
    (Truth.FALSE, Truth.FALSE): Quadrant.ON_POLICY,
    (Truth.TRUE, Truth.FALSE): Quadrant.EVEN_DRIFT,
    (Truth.FALSE, Truth.TRUE): Quadrant.HEAVY_TAIL,
    (Truth.TRUE, Truth.TRUE): Quadrant.BOTH,
}


def quadrant(history: History, limits: Thresholds) -> Quadrant:
    """Return the quadrant of a history's newest rows."""
    tv = HistoryLimit(signal="tv", bound=ThresholdSide.ABOVE, threshold=limits.tv).read(history)
    chi2 = HistoryLimit(signal="chi2_token", bound=ThresholdSide.ABOVE, threshold=limits.chi2_moderate).read(history)
    return _BY_TRUTHS.get((tv.truth, chi2.truth), Quadrant.UNKNOWN)


SUMMARY_ROWS = 20
ROLLOUT_OPTIONS = ("actor_rollout_ref.rollout.temperature", "temperature")
"""The sampling temperature in the configurations of verl and of TRL."""


@dataclass(frozen=True, slots=True)
class TemperatureRatio:
    """The bounds of T_rollout/T_trainer. Source: formulas, section 9, T."""

    lowest: float
    highest: float

    def sentence(self, config: Mapping[str, Any]) -> str:
        """Return what is known of the two temperatures, as numbers if the configuration has the sampling one."""
        given = next((known for name in ROLLOUT_OPTIONS if (known := config_number(config, name))), None)
        shown = f"{self.lowest:.2f} to {self.highest:.2f}"
        if given is None:
            return f"The rollout's temperature is {shown} times that of the trainer's log-probs."
        trainer = f"{given / self.highest:.2f} to {given / self.lowest:.2f}"
        return (
            f"The rollout samples at {given:g} as configured; the trainer's log-probs are of {trainer}, "
            f"as the ratio is {shown}."
        )


def temperature_ratio(history: History) -> TemperatureRatio | None:
    """Return the ratio from the newest rows; None if it is not known or not positive."""
    ends = [_median(history, name) for name in ("temperature_near", "temperature_far")]
    if any(math.isnan(end) or end <= 0 for end in ends):
        return None
    return TemperatureRatio(min(ends), max(ends))


def _median(history: History, signal: str) -> float:
    values = history.find(signal, pairs=ENGINE_PAIRS)[1][-SUMMARY_ROWS:]
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The diagnosis at the newest step of a run.

    `primary` is the cause, `form` the side on which it left its range if it has two, `observed` are all findings,
    causes first, `unknown` those that cannot be decided, and `shortfall` is the evidence why a run without a finding is
    not healthy; `temperatures` are known if T is the cause. `agreement` and `training` are the measured signals by
    which a run without a finding is judged. `collapse_risk` is that of the newest step, None if it has none.
    """

    step: int
    steps: int
    primary: Finding
    observed: tuple[Observation, ...]
    unknown: tuple[Observation, ...]
    shortfall: tuple[Evidence, ...]
    quadrant: Quadrant
    escalation: Escalation
    remedy: Remedy | None
    form: FindingForm | None = None
    temperatures: TemperatureRatio | None = None
    agreement: tuple[Measurement, ...] = ()
    training: tuple[Measurement, ...] = ()
    collapse_risk: RiskReading | None = None

    def rendered_remedy(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        last_good_step: int | None = None,
        has_ended: bool = False,
    ) -> RenderedRemedy | None:
        """Return the remedy with the values of the run, and what is known of its temperatures; None without one.

        Args: config: of the run; last_good_step: the last step before its illness; has_ended: whether the run
        has, so that the remedy is for the next one.
        """
        if self.remedy is None:
            return None
        rendered = self.remedy.render(config, last_good_step=last_good_step, has_ended=has_ended)
        if self.temperatures is None:
            return rendered
        return replace(rendered, fix=f"{rendered.fix} {self.temperatures.sentence(config or {})}")

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The signals that findings lack, without duplicates."""
        return tuple(dict.fromkeys(gap for observation in self.unknown for gap in observation.missing))

    @property
    def assurance(self) -> Assurance:
        """What the diagnosis assures if nothing was found; unknown with a finding or outside the healthy ranges."""
        if self.primary is Finding.HEALTHY:
            return Assurance.HEALTHY
        if self.observed or self.shortfall or self.primary is not Finding.UNKNOWN:
            return Assurance.UNKNOWN
        if self.agreement:
            return Assurance.NO_DRIFT_FOUND
        return Assurance.TRAINING_HEALTHY if self.training else Assurance.UNKNOWN

    @property
    def has_collapsed(self) -> bool:
        """Whether the collapse is there: its risk says nothing any more."""
        found = {self.primary, *(observation.finding for observation in self.observed)}
        return Finding.REWARD_COLLAPSE in found

    @property
    def needs_more_steps(self) -> bool:
        """Whether a finding that is not known merely needs more steps."""
        return any(observation.needs_only_steps for observation in self.unknown)


def diagnose(history: History, *, limits: Thresholds | None = None) -> Diagnosis:
    """Return the diagnosis of the newest steps of a run, or of the signals of one step.

    A finding holds if it held in at least half of the newest 5 rows, unless its condition says otherwise. It is unknown
    if it needs a longer history or a missing signal. A run is healthy only if all findings are known.
    Source: formulas, section 9.
    """
    limits = limits or Thresholds()
    history = with_features(history)
    conditions = finding_conditions(limits)
    found = {finding: _observe(finding, conditions[finding], history) for finding in CAUSES}
    observed = _with_consequences_last([found[finding] for finding in CAUSES if found[finding].truth is Truth.TRUE])
    unknown = tuple(found[finding] for finding in CAUSES if found[finding].truth is Truth.UNKNOWN)
    health = unhealthy(limits).read(history)
    primary = observed[0].finding if observed else _without_findings(unknown, health)
    form = observed[0].form if observed else None
    return Diagnosis(
        step=int(history.steps[-1]),
        steps=len(history),
        primary=primary,
        observed=observed,
        unknown=unknown,
        shortfall=health.evidence if primary is Finding.UNKNOWN else (),
        quadrant=quadrant(history, limits),
        escalation=escalation(history, limits),
        remedy=remedy_of(primary, form),
        form=form,
        temperatures=temperature_ratio(history) if primary is Finding.TEMPERATURE else None,
        agreement=measured(history, AGREEMENT_SIGNALS),
        training=measured(history, TRAINING_SIGNALS),
        collapse_risk=_newest_risk(history),
    )


def _newest_risk(history: History) -> RiskReading | None:
    newest = {name: float(history.values[name][-1]) for name in RISK_SIGNALS if history.has(name)}
    return read_risk(newest, shipped_model())


def _with_consequences_last(observed: list[Observation]) -> tuple[Observation, ...]:
    """Return the observations with H after R, unless it began long before: equal rewards follow a collapsed reward."""
    by_finding = {item.finding: item for item in observed}
    equal, fallen = by_finding.get(Finding.NO_LEARNING_SIGNAL), by_finding.get(Finding.REWARD_COLLAPSE)
    if equal is None or fallen is None or (equal.since_step or 0) < (fallen.since_step or 0) - EMA_STEPS:
        return tuple(observed)
    return (*(item for item in observed if item is not equal), equal)


def _observe(finding: Finding, condition: HistoryCondition, history: History) -> Observation:
    verdict = condition.read(history)
    is_true = verdict.truth is Truth.TRUE
    return Observation(
        finding=finding,
        truth=verdict.truth,
        evidence=_first_broken(verdict.evidence),
        missing=verdict.missing if verdict.truth is Truth.UNKNOWN else (),
        since_step=int(history.steps[verdict.since]) if is_true else None,
    )


def _first_broken(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """Return one item a signal: of several limits, the one that it broke first, which made the finding begin."""
    kept: dict[str, Evidence] = {}
    for item in evidence:
        kept[item.signal] = min(kept.get(item.signal, item), item, key=lambda one: one.since_step)
    return tuple(kept.values())


def _without_findings(unknown: tuple[Observation, ...], health: HistoryVerdict) -> Finding:
    return Finding.UNKNOWN if unknown or health.truth is not Truth.FALSE else Finding.HEALTHY
