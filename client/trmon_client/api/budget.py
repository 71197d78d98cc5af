"""The budget of a run: mismatch, lag, split of the drift, advice by pipeline; and the advice to its trainer."""

from __future__ import annotations

from typing import Annotated

import msgspec

from trmon_client.api.answers import AnswerInfo, ApiNumber, BudgetState, PipelineKind, Presence, Severity, says
from trmon_client.api.diagnosis import FleetRiskInfo


class LrDecayInfo(AnswerInfo, frozen=True, kw_only=True):
    """A lasting cut of the learning rate, and the step at which it was first advised."""

    factor: float
    step: int


class RiskAdviceInfo(FleetRiskInfo, frozen=True, kw_only=True):
    """The risk of a collapse, and the learning-rate factor that it recommends; never applied."""

    lr_scale: float = 1.0


class IncidentAdviceInfo(AnswerInfo, frozen=True, kw_only=True):
    """The open incident as its trainer is told of it."""

    opened_step: int
    severity: Severity
    cause: Annotated[str, says("The finding, or else the rule, that leads it.")]
    title: str
    since_step: int
    last_good_step: int | None
    checkpoint_step: Annotated[int | None, says("Of the newest checkpoint by the last good step.")]
    checkpoint_path: str | None
    remedy: str
    summary: str


class AdviceInfo(AnswerInfo, frozen=True, kw_only=True):
    """The advice after the newest step, with reasons; the trainer applies it only if its author opts in."""

    step: int
    lr_scale: Annotated[float, says("Factor for the learning rate of the next steps, for Adam-like optimizers.")]
    lr_scale_sgd: Annotated[float, says("The same factor for plain SGD.")]
    lr_decay: Annotated[LrDecayInfo | None, says("A permanent learning-rate cut, and the step of the advice.")]
    kl_factor: Annotated[float | None, says("Factor for the KL penalty's coefficient; null without a kl_target.")]
    stop: Annotated[bool, says("Whether an alert over batches pages.")]
    should_stop: Annotated[
        bool, says("Whether the run collapsed; only if its config has `stop_on_collapse: true`.")
    ] = False
    incident_since: Annotated[
        int | None, says("The step since which the open incident is, for the trainer's recorder; null without one.")
    ] = None
    collapse_risk: Annotated[
        RiskAdviceInfo | None,
        says("The risk of a collapse, and the learning-rate factor that it recommends; never applied."),
    ] = None
    save_checkpoint: Annotated[
        bool, says("Whether a run that warns has reported no checkpoint since; only trainers that opt in save one.")
    ] = False
    incident: Annotated[IncidentAdviceInfo | None, says("The open incident; null without one.")] = None
    findings: Annotated[dict[str, str], says("The severity of each finding that stands and warns or pages.")] = (
        msgspec.field(default_factory=dict)
    )
    reasons: dict[str, str]


class ShownByInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal or an option of the run's configuration that shows something, with its value as text."""

    name: str
    value: str


class BudgetItemInfo(AnswerInfo, frozen=True, kw_only=True):
    """One limit of the mismatch budget, a conjecture of [DRIFT], and how the run's value was judged."""

    name: str
    limit: float
    signal: str
    value: ApiNumber
    state: BudgetState
    note: str


class LagLawInfo(AnswerInfo, frozen=True, kw_only=True):
    """The lag law, eta << min(R_batch/(S G), R_crit/(T G)) (arXiv 2607.01083): a conjecture for this run."""

    lag: Annotated[ApiNumber, says("S: the largest lag of the newest steps, in versions.")]
    horizon: Annotated[ApiNumber, says("T: the updates of the whole run, as configured; else those so far.")]
    lr: Annotated[ApiNumber, says("eta: the newest learning rate.")]
    update_norm: Annotated[ApiNumber, says("G: the norm of an update over eta, as sent or configured.")]
    s_eta: ApiNumber
    t_eta: ApiNumber
    lr_scale: Annotated[ApiNumber, says("The learning rate that eta must stay well below; null without the radii.")]
    lag_scale: Annotated[ApiNumber, says("The lag that this learning rate must stay well below; null without R_batch.")]
    ess_seq: Annotated[ApiNumber, says("Effective share of sequences, the median of the newest 20 steps.")]
    ess_ceiling: Annotated[ApiNumber, says("50 ess_seq: the conjectured largest lag that pays.")]


class PolicySplitInfo(AnswerInfo, frozen=True, kw_only=True):
    """Where the drift comes from: lower bounds of the worst-case TVs of staleness and mismatch, and mean TVs."""

    alpha_0: Annotated[ApiNumber, says("Lower bound for staleness: the largest difference of a token's probabilities.")]
    alpha_1: Annotated[ApiNumber, says("Lower bound for engine mismatch, as of staleness.")]
    mismatch_share: ApiNumber
    mean_staleness: ApiNumber
    mean_mismatch: ApiNumber
    exact_max: Annotated[ApiNumber, says("Largest TV from logits, of the pair whose logits were sent.")]
    exact_mean: Annotated[ApiNumber, says("Mean TV from logits.")]
    note: Annotated[str, says("Why the split is unknown, or that it is exact; empty otherwise.")] = ""
    is_replayed: Annotated[bool, says("Whether routing is replayed, which hides alpha and does not shrink it.")]


class OffPolicyKindInfo(AnswerInfo, frozen=True, kw_only=True):
    """A kind of off-policyness, whether the run has it, and what shows it."""

    name: str
    presence: Presence
    why: str
    shown_by: tuple[ShownByInfo, ...]


class PipelineMethodInfo(AnswerInfo, frozen=True, kw_only=True):
    """A kind of the run's pipeline, what shows it, and the method that suits it."""

    kind: PipelineKind
    title: str
    shown_by: tuple[ShownByInfo, ...]
    method: str


class AntiPatternInfo(AnswerInfo, frozen=True, kw_only=True):
    """An anti-pattern, whether the run shows it, and the numbers that do."""

    number: int
    name: str
    presence: Presence
    why: str
    shown_by: tuple[ShownByInfo, ...]


class PipelineAdviceInfo(AnswerInfo, frozen=True, kw_only=True):
    """The advice for the run's pipeline: operational defaults of [DRIFT]'s author, not laws."""

    methods: tuple[PipelineMethodInfo, ...]
    correction: str | None
    correction_shown_by: tuple[ShownByInfo, ...]
    anti_patterns: tuple[AntiPatternInfo, ...]


class BudgetInfo(AnswerInfo, frozen=True, kw_only=True):
    """The budget at the newest step; the mismatch budget and the lag law are conjectures."""

    step: int
    steps: Annotated[int, says("The number of newest steps that were read.")]
    mismatch: tuple[BudgetItemInfo, ...]
    lag: LagLawInfo
    lag_words: Annotated[tuple[str, ...], says("What the law says of this run, in sentences.")]
    split: PolicySplitInfo
    kinds: Annotated[
        tuple[OffPolicyKindInfo, ...], says("The kinds of off-policyness; unknown where the reports do not show it.")
    ]
    minorizer: Annotated[
        ApiNumber,
        says("L - adaptive on the sequences in the loss; null without exact KL and declared centred advantages."),
    ]
    minorizer_vacuous: Annotated[ApiNumber, says("1 where the minorizer's bound certifies nothing, else 0.")]
    pipeline: PipelineAdviceInfo
    advice: Annotated[
        AdviceInfo | None, says("The advice to the trainer; null until a step closes after the service started.")
    ] = None
