"""Response schema of advice."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from trmon.domain.advice.advise import Advice, LrDecay
from trmon.domain.advice.risk_advice import RiskAdvice


class AdviceOut(BaseModel):
    """The advice after the newest step, with reasons; the trainer applies it only if its author opts in."""

    step: int
    lr_scale: float = Field(description="Factor for the learning rate of the next steps, for Adam-like optimizers.")
    lr_scale_sgd: float = Field(description="The same factor for plain SGD.")
    lr_decay: LrDecay | None = Field(description="A permanent learning-rate cut, and the step of the advice.")
    kl_factor: float | None = Field(description="Factor for the KL penalty's coefficient; null without a kl_target.")
    stop: bool = Field(description="Whether an alert over batches pages.")
    should_stop: bool = Field(
        False, description="Whether the run collapsed; only if its config has `stop_on_collapse: true`."
    )
    incident_since: int | None = Field(
        None, description="The step since which the open incident is, for the trainer's recorder; null without one."
    )
    collapse_risk: RiskAdvice | None = Field(
        None, description="The risk of a collapse, and the learning-rate factor that it recommends; never applied."
    )
    reasons: dict[str, str]

    @classmethod
    def of(cls, advice: Advice) -> Self:
        """Return the response for an advice."""
        return cls(**advice.document())
