"""The advice to a run's trainer."""

from __future__ import annotations

from typing import Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from trmon.api.http.auth import Reader
from trmon.api.http.components import Service
from trmon.api.http.parameters import Named
from trmon.domain.advice.advise import Advice, LrDecay
from trmon.domain.advice.risk_advice import RiskAdvice
from trmon.domain.model.errors import NotFound


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


router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"])


@router.get("/advice")
def get_advice(key: Named, access: Reader, service: Service) -> AdviceOut:
    """Return the advice to the trainer; 404 until a step of the run closes after the service started."""
    run = service.store.runs.get(key, access=access)
    view = service.view_cache.get(run.id)
    if view is None or view.advice is None:
        raise NotFound("advice of the run", str(key))
    return AdviceOut.of(view.advice)
