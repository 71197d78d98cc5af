"""The budget of a run at its newest step, as one report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.domain.advice.pipeline_advice import PipelineAdvice, pipeline_advice
from trmon.domain.advice.pipeline_kinds import PipelineInput
from trmon.domain.budget.lag_law import HORIZON, LagLaw, fitted_radii, lag_law
from trmon.domain.budget.lag_words import lag_sentences
from trmon.domain.budget.mismatch_budget import BudgetItem, mismatch_budget
from trmon.domain.budget.off_policy_kinds import KIND_SIGNALS, OffPolicyKind, off_policy_kinds
from trmon.domain.budget.policy_split import PolicySplit, policy_split
from trmon.domain.diagnosis.history import History, config_number, declares_replay
from trmon.domain.signals.derived_signals import ALIASES
from trmon_client.core.policies.policy import Policy

ESS_ROWS = 20
"""The effective sample size of one step is noise; the ceiling reads the median of so many."""
LR_NAMES = ("lr", *ALIASES["lr"])
LR_OPTIONS = ("actor_rollout_ref.actor.optim.lr", "optim.lr", "learning_rate", "lr")
STEP_OPTIONS = ("trainer.total_training_steps", "total_training_steps", "max_steps", "n_updates")
BUDGET_SIGNALS = (
    *(f"{pair}_{stem}" for pair in ("mismatch", "total", "staleness") for stem in ("ess_seq", "chi2_seq_log1p")),
    *("mismatch_prob_diff_mean", "total_prob_diff_mean", "staleness_prob_diff_mean", "staleness_prob_diff_max"),
    *("staleness_tv_is", "tv_max", "tv_mean", "minorizer", "minorizer_vacuous", "bound_adaptive"),
    *("max_vio", "ref_kl", "update_norm", *LR_NAMES),
    *KIND_SIGNALS,
)
"""What the report reads beside the signals of a diagnosis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """The report: each part says what it could not measure; the mismatch budget and the lag law are conjectures.

    `kinds`: of off-policyness. `minorizer` is L - adaptive on the sequences in the loss in units of reward, nan unless
    the run sends logits and declares centred advantages; `minorizer_vacuous` is 0 or 1, nan where unknown. `lag_words`
    says what the law says.
    """

    step: int
    steps: int
    mismatch: tuple[BudgetItem, ...]
    lag: LagLaw
    lag_words: tuple[str, ...]
    split: PolicySplit
    kinds: tuple[OffPolicyKind, ...]
    minorizer: float
    minorizer_vacuous: float
    pipeline: PipelineAdvice


def run_budget(history: History, *, config: Mapping[str, Any], policy: Policy, updates_per_step: float) -> RunBudget:
    """Return the report on the newest steps of a run.

    Args: config: of the run; policy: its active one; updates_per_step: optimizer steps on each rollout.
    Source: formulas, section 11.
    """
    newest = {name: history.newest(name)[1] for name in history.values}
    known = {name: value for name, value in newest.items() if not math.isnan(value)}
    given = PipelineInput(history=history, config=config, policy=policy)
    law = _law(history, config, known, updates_per_step=updates_per_step)
    return RunBudget(
        step=int(history.steps[-1]),
        steps=len(history),
        mismatch=mismatch_budget(known),
        lag=law,
        lag_words=tuple(lag_sentences(law)),
        split=policy_split(known, is_replayed=declares_replay(config)),
        kinds=off_policy_kinds(given, updates_per_step=updates_per_step),
        minorizer=known.get("minorizer", math.nan),
        minorizer_vacuous=known.get("minorizer_vacuous", math.nan),
        pipeline=pipeline_advice(given),
    )


def _law(history: History, config: Mapping[str, Any], known: Mapping[str, float], *, updates_per_step: float) -> LagLaw:
    radii = fitted_radii(config)
    lags = history.find("version_lag_max")[1]
    return lag_law(
        lag=float(np.nanmax(lags)) if np.isfinite(lags).any() else math.nan,
        horizon=_horizon(history, config, updates_per_step=updates_per_step),
        lr=_learning_rate(config, known),
        ess_seq=history.newest("ess_seq", rows=ESS_ROWS)[1],
        **{**radii, "update_norm": known.get("update_norm", radii["update_norm"])},
    )


def _learning_rate(config: Mapping[str, Any], known: Mapping[str, float]) -> float:
    sent = next((known[name] for name in LR_NAMES if name in known), None)
    return sent if sent is not None else _first_number(config, LR_OPTIONS)


def _horizon(history: History, config: Mapping[str, Any], *, updates_per_step: float) -> float:
    """Return the updates of the whole run, as configured; else those so far."""
    declared = _first_number(config, (HORIZON,))
    if not math.isnan(declared):
        return declared
    steps = _first_number(config, STEP_OPTIONS)
    return (steps if steps > 0 else float(history.steps[-1]) + 1) * updates_per_step


def _first_number(config: Mapping[str, Any], options: tuple[str, ...]) -> float:
    found = (config_number(config, option) for option in options)
    return next((number for number in found if number is not None), math.nan)
