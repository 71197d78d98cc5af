"""What the risk of a collapse recommends; a trainer applies none of it by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trmon.domain.alerts.alert import Alert
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import RiskLevel, read_risk, risk_sentence
from trmon.domain.incidents.incident import finding_of
from trmon.domain.model.finding import Finding

PAGE_LR_SCALE = 0.5
"""The cut of the learning rate that reward_collapse asks for too; a prediction does not ask for more."""
ACTIONS = {
    RiskLevel.WARN: "look at what drives it and keep a checkpoint",
    RiskLevel.PAGE: "keep a checkpoint and halve the learning rate, unless a finding names another cause",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskAdvice:
    """The probability of a collapse, what raises it most, and the factor for the learning rate that it recommends.

    The factor is apart from the advice's own `lr_scale`, which trainers that opted in apply: a prediction is no reason
    to change a run on its own.
    """

    probability: float
    level: RiskLevel
    driven_by: tuple[str, ...]
    lr_scale: float = 1.0

    @property
    def reason(self) -> str:
        """The risk, and what to do; empty while it is low."""
        action = ACTIONS.get(self.level)
        return "" if action is None else f"{risk_sentence(self.probability, self.driven_by)}: {action}"


def risk_advice(signals: Mapping[str, float], *, incident: Alert | None) -> RiskAdvice | None:
    """Return the advice at a row's risk; None without one, and once the open incident is the collapse itself."""
    model = shipped_model()
    reading = read_risk(signals, model)
    if reading is None or (incident is not None and finding_of(incident) is Finding.REWARD_COLLAPSE):
        return None
    level = reading.level(model.file)
    return RiskAdvice(
        probability=reading.probability,
        level=level,
        driven_by=reading.driven_by,
        lr_scale=PAGE_LR_SCALE if level is RiskLevel.PAGE else 1.0,
    )
