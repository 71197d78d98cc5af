"""The budget of a run as a service answers it: mismatch, lag, split of the drift, and advice by pipeline."""

from __future__ import annotations

from trmon_client.api.answers import AnswerInfo, ApiNumber


class ShownByInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal or an option of the run's configuration that shows something, with its value as text."""

    name: str
    value: str


class BudgetItemInfo(AnswerInfo, frozen=True, kw_only=True):
    """One limit of the mismatch budget; `state` is within, exceeded, undecided or not_measured."""

    name: str
    limit: ApiNumber
    signal: str
    value: ApiNumber
    state: str
    note: str


class LagLawInfo(AnswerInfo, frozen=True, kw_only=True):
    """The lag law: S, T, eta and G, and what they allow; NaN where something is not known."""

    lag: ApiNumber
    horizon: ApiNumber
    lr: ApiNumber
    update_norm: ApiNumber
    s_eta: ApiNumber
    t_eta: ApiNumber
    lr_scale: ApiNumber
    lag_scale: ApiNumber
    ess_seq: ApiNumber
    ess_ceiling: ApiNumber


class PolicySplitInfo(AnswerInfo, frozen=True, kw_only=True):
    """Lower bounds of the worst-case TVs of staleness (`alpha_0`) and mismatch (`alpha_1`), and mean TVs."""

    alpha_0: ApiNumber
    alpha_1: ApiNumber
    mismatch_share: ApiNumber
    mean_staleness: ApiNumber
    mean_mismatch: ApiNumber
    exact_max: ApiNumber
    exact_mean: ApiNumber
    is_replayed: bool


class OffPolicyKindInfo(AnswerInfo, frozen=True, kw_only=True):
    """A kind of off-policyness; `presence` is present, absent or unknown."""

    name: str
    presence: str
    why: str
    shown_by: tuple[ShownByInfo, ...]


class PipelineMethodInfo(AnswerInfo, frozen=True, kw_only=True):
    """A kind of the run's pipeline, what shows it, and the method that suits it."""

    kind: str
    title: str
    shown_by: tuple[ShownByInfo, ...]
    method: str


class AntiPatternInfo(AnswerInfo, frozen=True, kw_only=True):
    """An anti-pattern; `presence` is present, absent or unknown."""

    number: int
    name: str
    presence: str
    why: str
    shown_by: tuple[ShownByInfo, ...]


class PipelineAdviceInfo(AnswerInfo, frozen=True, kw_only=True):
    """The methods for the run's pipeline, whether it needs a correction, and the five anti-patterns."""

    methods: tuple[PipelineMethodInfo, ...]
    correction: str | None
    correction_shown_by: tuple[ShownByInfo, ...]
    anti_patterns: tuple[AntiPatternInfo, ...]


class BudgetInfo(AnswerInfo, frozen=True, kw_only=True):
    """The budget at the newest step; the mismatch budget and the lag law are conjectures."""

    step: int
    steps: int
    mismatch: tuple[BudgetItemInfo, ...]
    lag: LagLawInfo
    lag_words: tuple[str, ...]
    split: PolicySplitInfo
    kinds: tuple[OffPolicyKindInfo, ...] = ()
    minorizer: ApiNumber
    minorizer_vacuous: ApiNumber
    pipeline: PipelineAdviceInfo
