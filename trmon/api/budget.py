"""The budget of a run."""

from __future__ import annotations

from typing import Self

from fastapi import APIRouter
from pydantic import Field

from trmon.api.http.auth import Reader
from trmon.api.http.components import Service
from trmon.api.http.json_numbers import Number
from trmon.api.http.parameters import Named
from trmon.api.http.response_model import ResponseModel
from trmon.domain.advice.anti_patterns import Presence
from trmon.domain.advice.pipeline_kinds import PipelineKind
from trmon.domain.budget.mismatch_budget import BudgetState
from trmon.domain.budget.run_budget import BUDGET_SIGNALS, RunBudget, run_budget
from trmon.fleet.summaries import history_of, newest_steps, steps_per_rollout


class ShownByOut(ResponseModel):
    """A signal or an option of the run's configuration that shows something, with its value as text."""

    name: str
    value: str


class BudgetItemOut(ResponseModel):
    """One limit of the mismatch budget, and how the run's value was judged."""

    name: str
    limit: float
    signal: str
    value: Number
    state: BudgetState
    note: str


class LagLawOut(ResponseModel):
    """The lag law, eta << min(R_batch/(S G), R_crit/(T G)) (arXiv 2607.01083): a conjecture for this run."""

    lag: Number = Field(description="S: the largest lag of the newest steps, in versions.")
    horizon: Number = Field(description="T: the updates of the whole run, as configured; else those so far.")
    lr: Number = Field(description="eta: the newest learning rate.")
    update_norm: Number = Field(description="G: the norm of an update over eta, as sent or configured.")
    s_eta: Number
    t_eta: Number
    lr_scale: Number = Field(description="The learning rate that eta must stay well below; null without the radii.")
    lag_scale: Number = Field(description="The lag that this learning rate must stay well below; null without R_batch.")
    ess_seq: Number = Field(description="Effective share of sequences, the median of the newest 20 steps.")
    ess_ceiling: Number = Field(description="50 ess_seq: the conjectured largest lag that pays.")


class PolicySplitOut(ResponseModel):
    """Where the drift comes from: lower bounds of the worst-case TVs of staleness and mismatch, and mean TVs."""

    alpha_0: Number = Field(description="Lower bound for staleness: the largest difference of a token's probabilities.")
    alpha_1: Number = Field(description="Lower bound for engine mismatch, as of staleness.")
    mismatch_share: Number
    mean_staleness: Number
    mean_mismatch: Number
    exact_max: Number = Field(description="Largest TV from logits, of the pair whose logits were sent.")
    exact_mean: Number = Field(description="Mean TV from logits.")
    is_replayed: bool = Field(description="Whether routing is replayed, which hides alpha and does not shrink it.")


class OffPolicyKindOut(ResponseModel):
    """A kind of off-policyness, whether the run has it, and what shows it."""

    name: str
    presence: Presence
    why: str
    shown_by: list[ShownByOut]


class PipelineMethodOut(ResponseModel):
    """A kind of the run's pipeline, what shows it, and the method that suits it."""

    kind: PipelineKind
    title: str
    shown_by: list[ShownByOut]
    method: str


class AntiPatternOut(ResponseModel):
    """An anti-pattern, whether the run shows it, and the numbers that do."""

    number: int
    name: str
    presence: Presence
    why: str
    shown_by: list[ShownByOut]


class PipelineAdviceOut(ResponseModel):
    """The advice for the run's pipeline: operational defaults of [DRIFT]'s author, not laws."""

    methods: list[PipelineMethodOut]
    correction: str | None
    correction_shown_by: list[ShownByOut]
    anti_patterns: list[AntiPatternOut]


class BudgetOut(ResponseModel):
    """The budget at the newest step; the mismatch budget and the lag law are conjectures."""

    step: int
    steps: int = Field(description="The number of newest steps that were read.")
    mismatch: list[BudgetItemOut]
    lag: LagLawOut
    lag_words: list[str] = Field(description="What the law says of this run, in sentences.")
    split: PolicySplitOut
    kinds: list[OffPolicyKindOut] = Field(description="The kinds of off-policyness; unknown where nothing sent tells.")
    minorizer: Number = Field(
        description="L - adaptive on the sequences in the loss; null without exact KL and declared centred advantages."
    )
    minorizer_vacuous: Number = Field(description="1 where the minorizer's bound certifies nothing, else 0.")
    pipeline: PipelineAdviceOut

    @classmethod
    def of(cls, budget: RunBudget) -> Self:
        """Return the response for a budget."""
        return cls.model_validate(budget)


router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"])


@router.get("/budget")
def get_budget(key: Named, access: Reader, service: Service) -> BudgetOut:
    """Return what a run's mismatch and lag leave room for, and the advice for its pipeline; 404 before a batch."""
    run = service.store.runs.get(key, access=access)
    rows = newest_steps(service.store, run, access=access, extra=BUDGET_SIGNALS)
    policy = service.store.policies.current(run.id, access=access).policy
    found = run_budget(history_of(rows), config=run.config, policy=policy, updates_per_step=steps_per_rollout(rows))
    return BudgetOut.of(found)
