"""The advice of a run, as its trainer gets it with acknowledgements."""

from __future__ import annotations

from typing import Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.api.runs.routes import Named
from trmon.domain.advice.advise import Advice, LrDecay
from trmon.domain.model.errors import NotFound

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"])


class AdviceOut(BaseModel):
    """What is advised after the newest step, and why; a trainer applies none of it unless its author asks for that."""

    step: int
    lr_scale: float = Field(description="Factor of the learning rate for the next steps, Adam-like optimizers.")
    lr_scale_sgd: float = Field(description="The same for plain ones.")
    lr_decay: LrDecay | None = Field(description="A lasting cut of the learning rate, by the step it came at.")
    kl_factor: float | None = Field(description="Factor of the KL penalty's coefficient; null without a kl_target.")
    stop: bool
    reasons: dict[str, str]

    @classmethod
    def of(cls, advice: Advice) -> Self:
        """Return advice as answered."""
        return cls(**advice.document())


@router.get("/advice")
def get_advice(key: Named, access: Reader, service: Service) -> AdviceOut:
    """Return what is advised to the trainer; 404 where no step of the run has closed since it is watched."""
    run = service.store.runs.get(key, access=access)
    view = service.view_cache.get(run.id)
    if view is None or view.advice is None:
        raise NotFound("advice of the run", str(key))
    return AdviceOut.of(view.advice)
