"""The dashboard *Run health*: one run's state, learning, agreement of its policies, and the causes of drift."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import stat, statetimeline, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.source.dashboard import alert_marks, dashboard, page_link
from dashboards.source.panels import (
    ACT,
    AUTOMATIC,
    DECADES,
    FROM_ZERO,
    GRID_WIDTH,
    HEALTHY,
    NEAR_ONE,
    RUN_HEALTH_UID,
    SHARE,
    WATCH,
    Axis,
    Meanings,
    Step,
    band,
    chart,
    judges,
    link,
    named,
    number,
    timeline,
)
from dashboards.source.promql import active_mask_rate, one_run, or_zero, per_run, run
from trmon_client.core.signals.catalogue import SIGNALS, SignalSpec

RUNNING: Meanings = {
    0: ("running", HEALTHY),
    1: ("paused", "blue"),
    2: ("stalled", ACT),
    3: ("crashed", ACT),
    4: ("finished", "text"),
}
SEVERITIES: Meanings = {0: ("quiet", HEALTHY), 1: ("fires: warn", WATCH), 2: ("fires: page", ACT)}
LEVELS = (("page", 2), ("warn", 1))
NEEDED: list[Step] = [(None, HEALTHY), (1, WATCH), (2, ACT)]
UNITS = {"fraction": "percentunit", "probability": "percentunit", "tokens": "short", "versions": "short"}
RISK_WIDTH, RISK_HEIGHT = 4, 6

TO_PAGE = link("This run on the page", "${page}/runs/${project:percentencode}/${run:percentencode}")

LEARNING = {
    "reward_mean": "Reward",
    "response_length_mean": "Response length",
    "zero_variance_groups": "Groups without learning signal",
}
AGREEMENT = {
    "kl_k3": "KL per token, k3",
    "kl_k1": "KL per token, k1",
    "chi2_token": "Token chi-squared",
    "ess_token": "Effective share of tokens",
    "ess_seq": "Effective share of sequences",
    "tv": "Total variation",
}
ENGINES = {
    "prob_pearson": "Correlation of probabilities",
    "prob_diff_max": "Largest gap of probabilities",
    "ppl_ratio": "Perplexity ratio",
    "ratio_mean": "Mean importance ratio",
    "abs_log_ratio_max": "Largest token log-ratio",
    "abs_log_ratio_mean": "Mean token log-ratio",
}
LOG_PROBS = {
    "invalid_fraction": "Tokens without usable log-probs",
    "saturated_fraction": "Tokens of padded log-probs",
    "band_fraction": "Tokens with a ratio beyond [0.5, 5]",
}
STALENESS = {
    "version_lag_mean": "Age of the sampling weights",
    "clip_fraction": "Clipped tokens",
    "chi2_seq_log1p": "Sequence chi-squared, log",
}
AXES = {
    **dict.fromkeys(("kl_k3", "abs_log_ratio_max", "abs_log_ratio_mean"), DECADES),
    "kl_k1": Axis(linear_below=1e-4),
    "chi2_token": Axis(linear_below=1e-3),
    **dict.fromkeys(("ess_token", "ess_seq"), SHARE),
    "prob_pearson": NEAR_ONE,
    **dict.fromkeys(("response_length_mean", "zero_variance_groups", "tv", "clip_fraction"), FROM_ZERO),
}
"""The scales of signals whose automatic one misleads."""


def run_health() -> Dashboard:
    scalars = chart(
        "$scalar",
        "A number that the trainer logs under its own name.",
        (per_run(run("trmon_scalar", name="$scalar"), "name"), "{{name}}"),
        unit="short",
        width=6,
        link=TO_PAGE,
    )
    made = dashboard(
        RUN_HEALTH_UID,
        "trmon / Run health",
        "One run: its state, whether it learns, whether its policies agree, and if not, why.",
        chosen=one_run(),
        rows={
            "": [*_verdict(), *_numbers(), *_risk(), _incident(), _alerts()],
            "Does it learn?": _signals(LEARNING),
            "Do the policies agree? (primary pair)": _signals(AGREEMENT),
            "Do the engines agree? (primary pair)": _signals(ENGINES),
            "Are the log-probs valid?": _signals(LOG_PROBS),
            "Is it stale, or are the steps too large?": _signals(STALENESS),
            "What is accepted": _acceptance(),
            "Trainer metrics": [scalars.repeat("scalar").repeat_direction("h").max_per_row(4)],
        },
        collapsed={"Are the log-probs valid?", "Is it stale, or are the steps too large?", "What is accepted"},
    ).link(page_link("This run on the page", "/runs/${project:percentencode}/${run:percentencode}"))
    for mark in alert_marks():
        made.annotation(mark)
    return made


def _verdict() -> list[stat.Panel]:
    """Return what the run's page says first: verdict, cause, since when, and the reward with its peak."""
    by = {need: per_run(run("trmon_run_verdict", need=need), "verdict", "cause") for need in ("now", "soon", "none")}
    need = f"2 * {by['now']} or {by['soon']} or 0 * {by['none']}"
    states = {name: per_run(run("trmon_incident_state", severity=name), "state") for name, _ in LEVELS}
    incidents = [f"{value} * {states[name]}" for name, value in LEVELS]
    return [
        named("Verdict", "The run's verdict; red: to investigate now.", (need, "{{verdict}}"), width=4, steps=NEEDED),
        named("Cause", "The finding or rule that leads its problems.", (need, "{{cause}}"), width=5, steps=NEEDED),
        _step("Since step", "The step at which began what the verdict names.", "trmon_run_since_step"),
        _step("Last good step", "The last good step before the incident.", "trmon_run_last_good_step"),
        named(
            "Incident",
            "The state of its incident; red: its worst severity is page.",
            (" or ".join(incidents), "{{state}}"),
            width=3,
            steps=NEEDED,
        ),
        number("Reward", "Mean reward of the newest step.", per_run(run("trmon_reward_mean")), unit="short", width=3),
        number("Peak reward", "In the time range.", _peak("reward_mean"), unit="short", width=3),
    ]


def _step(title: str, about: str, metric: str) -> stat.Panel:
    return number(title, about, per_run(run(metric)), width=3)


def _peak(name: str) -> str:
    return per_run(f"max_over_time({run(f'trmon_{name}')}[$__range])")


def _numbers() -> list[stat.Panel]:
    states = [f"{value} * ({per_run(run('trmon_run_state', state=text))} == 1)" for value, (text, _) in RUNNING.items()]
    colors: list[Step] = [(None if value == 0 else value, color) for value, (_, color) in RUNNING.items()]
    silence = f"time() - {per_run(run('trmon_last_report_timestamp_seconds'))}"
    return [
        number("State", "State of the run.", " or ".join(states), steps=colors, width=3, meanings=RUNNING),
        number("Step", "Newest closed step.", per_run(run("trmon_step")), width=3),
        _count("Pages", "Alerts of severity page that fire; an incident counts once.", severity="page", color=ACT),
        _count("Warnings", "Alerts of severity warn that fire; an incident counts once.", severity="warn", color=WATCH),
        number(
            "Rejected",
            "Share of the newest step's sequences that the active policy rejects, or would reject in observe mode.",
            per_run(active_mask_rate(run)),
            unit="percentunit",
            steps=band("mask_rate"),
            width=3,
        ),
        _now("kl_k3", "KL per token"),
        _now("ess_token", "Effective tokens"),
        number("Silence", "Time since the newest report.", silence, unit="s", width=3),
    ]


def _count(title: str, about: str, *, severity: str, color: str) -> stat.Panel:
    firing = or_zero(per_run(run("trmon_run_alerts", severity=severity)))
    return number(title, about, firing, steps=[(None, HEALTHY), (1, color)], width=3)


def _now(name: str, title: str) -> stat.Panel:
    spec = _spec(name)
    about = f"{spec.description}; of the newest step."
    return number(title, about, per_run(run(f"trmon_{name}")), unit=_unit(spec), steps=band(name), width=3)


def _risk() -> list[stat.Panel | timeseries.Panel]:
    about = (
        "The probability that a collapse begins within 200 steps: a prediction, not a finding, and not calibrated for "
        "your trainer. None where the predictor is silent, and once the reward has collapsed."
    )
    risk, steps = per_run(run("trmon_collapse_risk")), band("collapse_risk")
    return [
        number("Risk of collapse", about, risk, unit="percentunit", steps=steps, width=RISK_WIDTH).height(RISK_HEIGHT),
        chart(
            "Risk of collapse over time",
            about,
            (risk, "{{run}}"),
            unit="percentunit",
            steps=steps,
            width=GRID_WIDTH - RISK_WIDTH,
            axis=SHARE,
            link=TO_PAGE,
        ).height(RISK_HEIGHT),
    ]


def _incident() -> statetimeline.Panel:
    by_severity = {value: per_run(run("trmon_incident_since_step", severity=name), "cause") for name, value in LEVELS}
    levels = " or ".join(f"({value} + 0 * {since})" for value, since in by_severity.items())
    return timeline(
        "Incident, by what leads it",
        "The run's incident while it is open: one for each illness, under the finding or rule that leads it.",
        (or_zero(levels), "{{cause}}"),
        meanings=SEVERITIES,
        height=4,
        link=TO_PAGE,
    )


def _alerts() -> statetimeline.Panel:
    pages = per_run(run("trmon_alert_active", severity="page"), "rule")
    others = per_run(run("trmon_alert_active", severity="warn|info"), "rule")
    return timeline(
        "Findings and rules that fired",
        "The findings and rules that fired in the time range, and when.",
        (or_zero(f"2 * {pages} or {others}"), "{{rule}}"),
        meanings=SEVERITIES,
        link=TO_PAGE,
    )


def _signals(titles: Mapping[str, str]) -> list[timeseries.Panel]:
    found = []
    for name, title in titles.items():
        spec = _spec(name)
        healthy = f" Healthy: {spec.healthy}." if spec.healthy else ""
        findings = dict.fromkeys(clause.finding for clause in judges(name))
        judged = f" Judged by {' and '.join(findings)}." if findings else ""
        panel = chart(
            title,
            f"{name}. {spec.description}: {spec.formula}, in {spec.unit}.{healthy}{judged}",
            (per_run(run(f"trmon_{name}")), "{{run}}"),
            *([(_peak(name), "peak of the time range")] if name == "reward_mean" else []),
            unit=_unit(spec),
            steps=band(name),
            axis=AXES.get(name, AUTOMATIC),
            link=TO_PAGE,
        )
        found.append(panel)
    return found


def _acceptance() -> list[timeseries.Panel]:
    threshold = per_run(run("trmon_threshold"), "policy", "statistic", "pair", "where", "bound")
    return [
        chart(
            "Rejected, by policy",
            "Share of each step's sequences that the active policy rejects, and that its shadow policies would reject.",
            (per_run(run("trmon_mask_rate"), "policy"), "{{policy}}"),
            unit="percentunit",
            steps=band("mask_rate"),
            link=TO_PAGE,
        ),
        chart(
            "Bounds of the active policy",
            "The allowed range of a sequence's statistic; it changes when bounds are adapted or a policy is set.",
            (threshold, "{{policy}}: {{statistic}} {{where}} {{bound}}"),
            link=TO_PAGE,
        ),
        chart(
            "Error bounds",
            "Bounds of the surrogate's error, in units of reward; NaN, and no line, where no bound can be given.",
            (per_run(run("trmon_bound"), "kind"), "{{kind}}"),
            axis=DECADES,
            link=TO_PAGE,
        ),
    ]


def _spec(name: str) -> SignalSpec:
    return next(spec for spec in SIGNALS.values() if spec.stem == name)


def _unit(spec: SignalSpec) -> str:
    return UNITS.get(spec.unit, "none")
