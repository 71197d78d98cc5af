"""The charts of optional inputs and methods: turns, weights, the gradient, the budget and routers."""

from __future__ import annotations

import math

from grafana_foundation_sdk.builders import timeseries

from dashboards.source.panels import (
    AUTOMATIC,
    DECADES,
    FROM_ZERO,
    GOOD,
    HEALTHY,
    SHARE,
    WATCH,
    Axis,
    Query,
    Step,
    chart,
    link,
)
from dashboards.source.promql import per_run, run
from trmon.domain.budget.run_budget import CHI2_SEQ, ESS_LAG, ROUTER_FLIPS, TOKEN_TV

TO_PAGE = link("This run on the page", "${page}/runs/${project:percentencode}/${run:percentencode}")


def methods() -> list[timeseries.Panel]:
    """Return the charts, in the order of the row."""
    return [
        _chart(
            "Turns rejected",
            "Share of the turns, and of their tokens, that the active policy's turn criteria reject.",
            ("trmon_turn_mask_rate", "turns"),
            ("trmon_turn_mask_rate_tokens", "tokens of turns"),
            unit="percentunit",
            axis=SHARE,
        ),
        _chart(
            "Weights of sequences",
            "Under a policy that weights sequences, such as soft masking: the mean weight, rejected ones at 0, and "
            "the effective share (sum w)^2/(N sum w^2). If that is small, few sequences carry the update.",
            ("trmon_sequence_weight_mean", "mean weight"),
            ("trmon_sequence_weight_ess", "effective share"),
            axis=FROM_ZERO,
        ),
        _chart(
            "KL to the reference policy",
            "ref_kl_k3, in nats per token; needs ref_logprobs.",
            ("trmon_ref_kl_k3", "k3"),
            axis=DECADES,
        ),
        _chart(
            "Variance of the gradient",
            "proxy 3, a band: what it is at least and at most. Its course tells, not its size.",
            ("trmon_proxy3_pure_noise_low", "at least"),
            ("trmon_proxy3_pure_noise_high", "at most"),
            axis=DECADES,
        ),
        _chart(
            "Pull on the entropy",
            "Covariance of log-prob and advantage over tokens: above 0, updates lower the entropy.",
            ("trmon_logp_advantage_cov", "covariance"),
        ),
        _chart(
            "Leaked past PPO's clip",
            "Of the tokens beyond the clip range, those that PPO's minimum does not clip.",
            ("trmon_leak_share", "leaked"),
            unit="percentunit",
            axis=SHARE,
        ),
        chart(
            "Direction of the gradient",
            "grad_cosine of trmon_client.GradientSketch: the cosine of this step's gradient with the one before.",
            (_scalar("grad_cosine"), "cosine"),
            axis=Axis(least=-1, most=1),
            link=TO_PAGE,
        ),
        _chart(
            "Minorizer",
            "Gain of the surrogate minus its error bound, in units of reward; below 0 nothing is certified. Needs "
            "exact KL and a run that declares advantages_centred.",
            ("trmon_minorizer", "L - bound"),
        ),
        _chart(
            "Budget: total variation of tokens",
            "Mean over tokens, from logits. Conjecture: a correction gains less than 0.3% while the 95th percentile is "
            "below the limit. A mean below a twentieth of the limit proves it.",
            ("trmon_tv_mean", "mean"),
            axis=DECADES,
            steps=_up_to(TOKEN_TV),
        ),
        _chart(
            "Budget: chi-squared of sequences",
            "Log of 1 + chi-squared, of the primary pair. Conjecture: below the limit, with the other two, a "
            "correction gains less than 0.3%.",
            ("trmon_chi2_seq_log1p", "log(1 + chi-squared)"),
            axis=FROM_ZERO,
            steps=_up_to(math.log1p(CHI2_SEQ)),
        ),
        chart(
            "Budget: lag",
            f"Mean lag of the sampling weights, in versions, and the conjectured largest one that pays, {ESS_LAG:g} "
            "ess_seq.",
            (per_run(run("trmon_version_lag_mean")), "lag"),
            (f"{ESS_LAG:g} * {per_run(run('trmon_ess_seq'))}", "conjectured ceiling"),
            axis=FROM_ZERO,
            link=TO_PAGE,
        ),
        chart(
            "Router flips",
            "Share of routings whose experts in training are not the rollout's; needs trmon_client.moe.flips. The "
            "limit is the budget's, and that of moe_routing where a replay is declared.",
            (_scalar("router_flip_rate"), "flips"),
            unit="percentunit",
            axis=FROM_ZERO,
            steps=_up_to(ROUTER_FLIPS),
            link=TO_PAGE,
        ),
        chart(
            "Load of experts",
            "max_vio: how far the busiest expert is above the mean load, the worst layer; needs trmon_client.moe.",
            (_scalar("max_vio"), "max_vio"),
            axis=FROM_ZERO,
            link=TO_PAGE,
        ),
    ]


def _chart(
    title: str, about: str, *metrics: Query, unit: str = "none", axis: Axis = AUTOMATIC, steps: list[Step] = GOOD
) -> timeseries.Panel:
    queries = ((per_run(run(metric)), legend) for metric, legend in metrics)
    return chart(title, about, *queries, unit=unit, axis=axis, steps=steps, link=TO_PAGE)


def _scalar(name: str) -> str:
    return per_run(run("trmon_scalar", name=name))


def _up_to(limit: float) -> list[Step]:
    return [(None, HEALTHY), (limit, WATCH)]
