"""The diagnosis of a run: its findings, causes first, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import RiskReading, read_risk
from trmon.domain.collapse_risk.risk_signals import RISK_SIGNALS
from trmon.domain.diagnosis.assurance import (
    AGREEMENT_SIGNALS,
    TRAINING_SIGNALS,
    Assurance,
    Measurement,
    measured,
)
from trmon.domain.diagnosis.conditions import HistoryCondition, HistoryVerdict
from trmon.domain.diagnosis.criteria import finding_conditions, unhealthy
from trmon.domain.diagnosis.escalation import Escalation, escalation
from trmon.domain.diagnosis.features import with_features
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.observation import Evidence, Missing, Observation
from trmon.domain.diagnosis.quadrant import Quadrant, quadrant
from trmon.domain.diagnosis.remedies import remedy_of
from trmon.domain.diagnosis.remedy import Remedy, RenderedRemedy
from trmon.domain.diagnosis.temperatures import TemperatureRatio, temperature_ratio
from trmon.domain.diagnosis.thresholds import Thresholds
from trmon.domain.model.finding import CAUSES, Finding
from trmon.domain.model.finding_form import FindingForm
from trmon.domain.rules.condition import Truth
from trmon.domain.signals.smoothed_signal import EMA_STEPS


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
