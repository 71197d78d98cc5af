"""The budget of a run: mismatch, the lag law and the split of its drift; conjectures, named as such."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np

from trmon.domain.budget.off_policy_kinds import KIND_SIGNALS, PipelineInput, off_policy_kinds
from trmon.domain.budget.pipeline_advice import LR_NAMES, pipeline_advice
from trmon.domain.findings.configuration import config_number
from trmon.domain.findings.verdict import Found, Judgement
from trmon.domain.signals.history import History
from trmon_client.api.answers import ApiNumber, OpenEnum
from trmon_client.api.budget import BudgetInfo, BudgetItemInfo, LagLawInfo, PolicySplitInfo
from trmon_client.core.bounds import AlphaSplit
from trmon_client.core.column_schema import GAPS
from trmon_client.core.policies.policy import Policy

ESS_LAG = 50.0
"""[DRIFT] conjecture 5: the largest lag that pays is at most 50 ess_seq."""
BATCH_RADIUS, CRITICAL_RADIUS = "lag_law.r_batch", "lag_law.r_crit"
UPDATE_NORM, HORIZON = "lag_law.update_norm", "lag_law.horizon"
"""Options of a run's configuration: the fitted radii, the norm of an update over its learning rate, and the updates."""


def lag_law(
    *,
    lag: float,
    horizon: float,
    lr: float,
    ess_seq: float,
    update_norm: float = math.nan,
    r_batch: float = math.nan,
    r_crit: float = math.nan,
) -> LagLawInfo:
    """Return the law eta << min(R_batch/(S G), R_crit/(T G)) for a run, and the ceiling 50 ess_seq of its lag.

    Args: lag: S, versions; horizon: T, updates; lr: eta; update_norm: G, the norm of an update over eta; r_batch,
    r_crit: the radii, fitted on runs of the same kind. nan where unknown: without both radii and G there is no scale.
    Source: arXiv 2607.01083, the two-constraint rule; [DRIFT] conjecture 5; formulas, section 11.
    """
    by_lag = _radius_over_drift(r_batch, lag * update_norm)
    by_horizon = _radius_over_drift(r_crit, horizon * update_norm)
    is_known = not (math.isnan(by_lag) or math.isnan(by_horizon))
    return LagLawInfo.from_fields(
        lag=lag,
        horizon=horizon,
        lr=lr,
        update_norm=update_norm,
        s_eta=lag * lr,
        t_eta=horizon * lr,
        lr_scale=min(by_lag, by_horizon) if is_known else math.nan,
        lag_scale=_radius_over_drift(r_batch, lr * update_norm),
        ess_seq=ess_seq,
        ess_ceiling=ESS_LAG * ess_seq,
    )


def fitted_radii(config: Mapping[str, Any]) -> dict[str, float]:
    """Return r_batch, r_crit and update_norm as a run's configuration declares them; nan where it does not."""
    options = {"r_batch": BATCH_RADIUS, "r_crit": CRITICAL_RADIUS, "update_norm": UPDATE_NORM}
    found = {name: config_number(config, option) for name, option in options.items()}
    return {name: math.nan if value is None or value <= 0 else value for name, value in found.items()}


def _radius_over_drift(radius: float, drift: float) -> float:
    if math.isnan(radius) or math.isnan(drift):
        return math.nan
    return math.inf if drift == 0 else radius / drift


def lag_sentences(law: LagLawInfo, *, stale: Found | None = None) -> Iterator[str]:
    """Yield which learning rate the run's lag allows, or what is missing for it, and where a finding limits the lag."""
    if stale is not None:
        yield f"This run's lag harms it: {stale.title} since step {stale.since.step}. Lower it before anything below."
    yield _allowed_rate(law)
    if not math.isnan(law.lag_scale) and not math.isinf(law.lag_scale):
        yield f"This learning rate allows lags well below {law.lag_scale:.3g} versions (conjecture)."
    yield _ceiling(law)


def _allowed_rate(law: LagLawInfo) -> str:
    if math.isnan(law.lag):
        return "The lag was not measured: pass versions and trainer_version to log_batch."
    if not math.isnan(law.lr_scale):
        allowed = f"A lag of {law.lag:.4g} allows learning rates well below {law.lr_scale:.3g} (conjecture)"
        return f"{allowed}{'' if math.isnan(law.lr) else f'; this run has {law.lr:.3g}'}."
    if math.isnan(law.lr):
        return "The learning rate was not sent: log it as scalar lr."
    return (
        f"S eta is {law.s_eta:.3g} and T eta is {law.t_eta:.3g}. Which learning rate this lag allows needs R_batch and "
        "R_crit, fitted on runs of this kind, and the norm of an update: options lag_law of the configuration."
    )


def _ceiling(law: LagLawInfo) -> str:
    if math.isnan(law.ess_ceiling):
        return "The ceiling of the lag, 50 ess_seq (conjecture), needs log-probs of two policies."
    ceiling = f"the conjectured ceiling of 50 ess_seq, {law.ess_ceiling:.3g}"
    if math.isnan(law.lag):
        return f"A lag pays up to {ceiling}."
    return f"The lag of {law.lag:.4g} is {'above' if law.lag > law.ess_ceiling else 'within'} {ceiling}."


TOKEN_TV, CHI2_SEQ, ROUTER_FLIPS = 1e-4, 0.1, 1e-3
TAIL = 0.05
"""The share of tokens above a 95th percentile."""
ENGINE_PREFIXES = ("mismatch_", "total_")


class BudgetState(OpenEnum, Enum):
    """Whether a quantity is within its limit; `undecided` where what was measured proves neither."""

    WITHIN = "within"
    EXCEEDED = "exceeded"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not_measured"


def mismatch_budget(signals: Mapping[str, float]) -> tuple[BudgetItemInfo, ...]:
    """Return the three limits besides the signals. Source: [DRIFT] problem 4, a conjecture; formulas, section 11."""
    return _token_tv(signals), _chi2_seq(signals), _router_flips(signals)


def token_tv_state(*, mean: float, largest: float, limit: float = TOKEN_TV) -> BudgetState:
    """Return whether the 95th percentile of the tokens' TV is within a limit, as far as mean and maximum prove it.

    Within: the maximum is, or the mean is at most TAIL * limit, so that by Markov's inequality less than TAIL of the
    tokens exceed the limit. Exceeded: the mean is above what a share of TAIL at the maximum and the rest at the limit
    can reach.
    Args: mean, largest: over the tokens of a batch, nan where unknown.
    Source: formulas, section 11.
    """
    if largest <= limit or mean <= TAIL * limit:
        return BudgetState.WITHIN
    if mean > (1 - TAIL) * limit + TAIL * (1.0 if math.isnan(largest) else largest):
        return BudgetState.EXCEEDED
    return BudgetState.NOT_MEASURED if math.isnan(mean) and math.isnan(largest) else BudgetState.UNDECIDED


def _token_tv(signals: Mapping[str, float]) -> BudgetItemInfo:
    mean, largest = (signals.get(name, math.nan) for name in ("tv_mean", "tv_max"))
    state = token_tv_state(mean=mean, largest=largest)
    signal, value = ("tv_max", largest) if math.isnan(mean) else ("tv_mean", mean)
    note = {
        BudgetState.NOT_MEASURED: "needs the logits of both engines, and tv=True",
        BudgetState.UNDECIDED: "mean and maximum of the tokens' TV prove neither",
    }.get(state, "proved by mean and maximum of the tokens' TV")
    return BudgetItemInfo(
        name="95th percentile of token TV",
        limit=TOKEN_TV,
        signal=signal,
        value=ApiNumber(value),
        state=state,
        note=note,
    )


def _chi2_seq(signals: Mapping[str, float]) -> BudgetItemInfo:
    prefix = next((one for one in ENGINE_PREFIXES if f"{one}chi2_seq_log1p" in signals), ENGINE_PREFIXES[0])
    value = math.expm1(min(signals.get(f"{prefix}chi2_seq_log1p", math.nan), 700.0))
    is_total = "; both drifts together, since mismatch was not sent" if prefix == "total_" else ""
    note = f"an estimate over the sampled sequences{is_total}"
    return _item("chi-squared of sequences", limit=CHI2_SEQ, signal=f"{prefix}chi2_seq", value=value, note=note)


def _router_flips(signals: Mapping[str, float]) -> BudgetItemInfo:
    value = signals.get("router_flip_rate", math.nan)
    note = "only mixtures of experts have a router" if math.isnan(value) else "share of routings that differ"
    return _item("router flips", limit=ROUTER_FLIPS, signal="router_flip_rate", value=value, note=note)


def _item(name: str, *, limit: float, signal: str, value: float, note: str) -> BudgetItemInfo:
    state = BudgetState.WITHIN if value < limit else BudgetState.EXCEEDED
    if math.isnan(value):
        state = BudgetState.NOT_MEASURED
    return BudgetItemInfo(name=name, limit=limit, signal=signal, value=ApiNumber(value), state=state, note=note)


HOLDS_STALENESS = (
    "Unknown: by the stated versions (old_version, else trainer_version) old_logprobs are of other weights than the "
    "rollout's, so that the mismatch pair holds staleness too."
)
EXACT_GAPS = "Exact at the sampled positions, from the logits of all three policies."


def policy_split(signals: Mapping[str, float], *, is_replayed: bool) -> PolicySplitInfo:
    """Return the split of a step's signals. Source: [3P] theorem 2; formulas, sections 7 and 11."""
    alphas = AlphaSplit.of_signals(signals)
    holds_staleness = signals.get("engine_lag", 0.0) > 0
    means = ("staleness_tv_is", "mismatch_tv")
    if alphas.is_exact:
        means = ("staleness_exact_tv_mean", "mismatch_exact_tv_mean")
    mean_staleness, mean_mismatch = (math.nan if holds_staleness else signals.get(name, math.nan) for name in means)
    exact_max, exact_mean = (signals.get(name, math.nan) for name in ("tv_max", "tv_mean"))
    return PolicySplitInfo.from_fields(
        alpha_0=alphas.staleness,
        alpha_1=alphas.mismatch,
        mismatch_share=alphas.mismatch_share,
        mean_staleness=mean_staleness,
        mean_mismatch=mean_mismatch,
        exact_max=exact_max,
        exact_mean=exact_mean,
        note=HOLDS_STALENESS if holds_staleness else EXACT_GAPS if alphas.is_exact else "",
        is_replayed=is_replayed,
    )


ESS_ROWS = 20
"""The effective sample size of one step is noise; the ceiling reads the median of so many."""
LR_OPTIONS = ("actor_rollout_ref.actor.optim.lr", "optim.lr", "learning_rate", "lr")
STEP_OPTIONS = ("trainer.total_training_steps", "total_training_steps", "max_steps", "n_updates")
PAIRS_READ = ("mismatch", "total", "staleness")
PAIR_STEMS = (
    *("ess_seq", "chi2_seq_log1p", "kl_k1", "chi2_token", "ess_token", "tv"),
    *("prob_pearson", "prob_diff_mean", "prob_diff_max"),
)
BUDGET_SIGNALS = tuple(
    dict.fromkeys(
        (
            *(f"{pair}_{stem}" for pair in PAIRS_READ for stem in PAIR_STEMS),
            *(f"{gap}_exact_tv_{stem}" for gap in GAPS for stem in ("max", "mean")),
            *("staleness_tv_is", "tv_max", "tv_mean", "minorizer", "minorizer_vacuous", "bound_adaptive"),
            *("max_vio", "ref_kl", "update_norm", "response_length_mean", "clip_fraction", "grad_variance"),
            *LR_NAMES,
            *KIND_SIGNALS,
        )
    )
)


def run_budget(
    history: History,
    *,
    config: Mapping[str, Any],
    policy: Policy,
    updates_per_step: float,
    judgement: Judgement | None,
) -> BudgetInfo:
    """Return the report on the newest steps of a run.

    Args: updates_per_step: optimizer steps on each rollout; judgement: of the run, which no part contradicts.
    Source: formulas, section 11.
    """
    newest = {name: history.newest(name)[1] for name in history.values}
    known = {name: value for name, value in newest.items() if not math.isnan(value)}
    given = PipelineInput(history=history, config=config, policy=policy, judgement=judgement)
    kinds = off_policy_kinds(given, updates_per_step=updates_per_step)
    radii = fitted_radii(config)
    lags = history.find("version_lag_max")[1]
    sent = next((known[name] for name in LR_NAMES if name in known), None)
    law = lag_law(
        lag=float(np.nanmax(lags)) if np.isfinite(lags).any() else math.nan,
        horizon=_horizon(history, config, updates_per_step=updates_per_step),
        lr=sent if sent is not None else _first_number(config, LR_OPTIONS),
        ess_seq=history.newest("ess_seq", rows=ESS_ROWS)[1],
        **{**radii, "update_norm": known.get("update_norm", radii["update_norm"])},
    )
    return BudgetInfo(
        step=int(history.steps[-1]),
        steps=len(history),
        mismatch=mismatch_budget(known),
        lag=law,
        lag_words=tuple(lag_sentences(law, stale=given.stands("stale_rollouts"))),
        split=policy_split(known, is_replayed=given.is_replayed),
        kinds=kinds,
        minorizer=ApiNumber(known.get("minorizer", math.nan)),
        minorizer_vacuous=ApiNumber(known.get("minorizer_vacuous", math.nan)),
        pipeline=pipeline_advice(given, kinds),
    )


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
