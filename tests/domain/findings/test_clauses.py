"""Every clause of findings.yaml: rows in which it comes to hold, and rows inside its limit in which it does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import pytest

from trmon.domain.findings.catalogue import LOST, NONFINITE, Clause, Comparison, builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.findings.measures import COMPUTED, SETTLED, VIEWS, sources_of

CATALOGUE = builtin_catalogue()
JUDGE = Judge(CATALOGUE)
HEALTHY_ROWS, ILL_ROWS = 130, 60
FAR, NEAR = 1.5, 0.9
"""How far values are beyond their limits, and inside them."""
HEALTHY: Mapping[str, float] = {
    "reward_mean": 0.4,
    "sampled_entropy": 0.5,
    "grad_norm": 0.3,
    "loss": 0.01,
    "response_length_mean": 300.0,
    "reward_std": 0.4,
    "n_tokens": 50_000.0,
    "n_sequences": 64.0,
    "mismatch_prob_pearson": 0.998,
    "mismatch_kl_k1": 0.0005,
    "mismatch_kl_k3": 0.0006,
    "mismatch_abs_log_ratio_mean": 0.01,
    "mismatch_ratio_mean": 1.0,
    "mismatch_ppl_ratio": 1.0,
    "staleness_kl_k3": 0.00002,
    "mismatch_ess_token": 0.97,
}
LITTLE = 1e-4
"""The value of what else a clause reads, in healthy rows."""
Values = dict[str, float]
Ill = Values | Callable[[int], Values]
"""The values of ill rows, the same in each or by the row."""


def wobble(row: int) -> float:
    """Return a factor near 1, different in each row."""
    return 1.0 + 0.01 * math.sin(2.4 * row)


def healthy(row: int) -> Values:
    """Return a healthy row."""
    values = {name: value * wobble(row) for name, value in HEALTHY.items()}
    values["mismatch_prob_pearson"] = 0.998 + 0.0005 * math.sin(2.4 * row)
    near_one = {name: 1.0 + 1e-4 * math.sin(2.4 * row) for name in ("mismatch_ratio_mean", "mismatch_ppl_ratio")}
    return values | near_one | {"reward_mean": 0.4 + 0.15 * math.sin(2.4 * row)}


def usual(name: str) -> float:
    """Return the healthy value of a signal."""
    gaps = {"pearson_gap": 0.002, "ppl_gap": 6e-5, "settled_kl_k3": 2e-5}
    return gaps.get(name) or HEALTHY.get(sources_of(name)[0], LITTLE)


def reached(comparison: Comparison, factor: float) -> float:
    """Return the value of a signal for which a comparison is beyond its limit by a factor, or inside it."""
    limit = comparison.limit
    away = factor if comparison.is_upper == (limit > 0) else 1.0 / factor
    wanted = limit * away if limit else (0.01 * (factor - 1.0) if comparison.is_upper else 0.01 * (1.0 - factor))
    if comparison.side in (">=", "<=") and factor > 1.0 and not limit:
        wanted = 0.0
    if comparison.transform in ("", "mean", "mean_of_others", "average", "mean_size"):
        return wanted
    if comparison.transform in ("off_one", "average_off_one"):
        return 1.0 + wanted
    if comparison.transform in ("above_early", "above_usual", "rise"):
        return usual(comparison.signals[0]) + (wanted if wanted > 0 else 0.0)
    return usual(comparison.signals[0]) * wanted


AUTOMATIC = ("beyond_noise", "growth_errors", "average_errors", "off_one_errors")
"""They hold wherever a steady signal changes at all."""


def source_value(name: str, value: float) -> tuple[str, float]:
    """Return the signal behind a name and its value."""
    if name == "pearson_gap":
        return "mismatch_prob_pearson", 1.0 - value
    if name == "settled_kl_k3":
        return "staleness_kl_k3", value
    if name == "ppl_gap":
        return "mismatch_ppl_ratio", 1.0 + value
    return sources_of(name)[0], value


def made(clause: Clause, factor: float) -> Callable[[int], Values]:
    """Return the values of ill rows, by their place: the deciding comparison by a factor, the others well beyond."""
    chosen = clause.any[0] if clause.any else ()
    values: Values = {}
    for comparison in reversed((*clause.when, *chosen)):
        if not comparison.side or comparison.transform in AUTOMATIC or comparison.measure in COMPUTED:
            continue
        wanted = reached(comparison, factor if comparison is clause.decisive else FAR)
        name = comparison.signals[0]
        known = values.get(name)
        if known is not None and factor > 1.0:
            wanted = max(wanted, known) if comparison.is_upper else min(wanted, known)
        values[name] = wanted
    logged = dict(source_value(name, value) for name, value in values.items())
    return lambda row: {name: value * (1.0 + 1e-3 * (wobble(row) - 1.0)) for name, value in logged.items()}


STEADY_SLOPES = {
    "mismatch_logp_slope_q": 0.02,
    "mismatch_logp_slope_p": 0.025,
    "mismatch_logp_corr_q": 0.5,
    "mismatch_ratio_mean": 1.0,
}
COUNTS = {"n_unlikely": 5_000.0, "n_prob_diff_half": 120.0, "n_mu_zero_unlikely": 100.0}
TAIL = {"n_zero_tail": 5_000.0, "n_mu_zero": 5_500.0}
NO_GAPS = {"n_unlikely": 5_000.0, "n_prob_diff_half": 0.0, "n_mu_zero_unlikely": 0.0}
SHIFTED = {
    "mismatch_prob_pearson": 0.1,
    "mismatch_abs_log_ratio_mean": 0.8,
    "mismatch_kl_k1": 0.01,
    "mismatch_drift_spread": 0.02,
    "mismatch_kl_k2": 0.5,
}
FALLEN = {"reward_mean": 0.0}
"""A reward that has fallen to its lowest."""
STEPPED, LEAPT = (STEADY_SLOPES | {"mismatch_logp_corr_q": corr} for corr in (0.95, 0.6))
LATE = HEALTHY_ROWS + 5
SPECIAL: Mapping[str, tuple[Ill, Ill]] = {
    "stale_rollouts.no_sync": (lambda row: {"engine_lag": float(row)}, lambda row: {"engine_lag": float(row % 5)}),
    "corrupt_logprobs.unit": tuple({"logp_unit": unit, "logp_unit_residual": 0.1} for unit in (0.69, 0.75)),
    "corrupt_logprobs.sign": tuple({"positive_fraction": 0.3, "mu_logprob_mean": mean} for mean in (-0.0002, -0.3)),
    "corrupt_logprobs.probabilities": tuple(
        {"positive_fraction": 0.99, "mu_logprob_mean": 0.0, "positive_max": most} for most in (0.9, 7.0)
    ),
    "corrupt_logprobs.shifted": (SHIFTED, SHIFTED | {"mismatch_drift_spread": 0.4}),
    "corrupt_logprobs.order": (SHIFTED | {"mismatch_drift_spread": 0.4}, SHIFTED),
    "corrupt_logprobs.end_dropped": (COUNTS | TAIL, COUNTS | TAIL | {"n_zero_tail": 500.0}),
    "corrupt_logprobs.padding": (NO_GAPS | TAIL, COUNTS | TAIL),
    "corrupt_logprobs.zeros": (COUNTS, COUNTS | {"n_mu_zero_unlikely": 0.9}),
    "moe_routing.replayed": ({"router_flip_rate": 0.0015}, {"router_flip_rate": 0.0009}),
    "wrong_policy.pearson": tuple(
        {"mismatch_prob_pearson": 0.3, "mismatch_kl_k1": k1, "mismatch_abs_log_ratio_mean": 0.9} for k1 in (0.6, 0.4)
    ),
    "temperature.slopes": (
        STEADY_SLOPES,
        lambda row: STEADY_SLOPES | {"mismatch_logp_slope_p": 0.025 if row % 2 else -0.025},
    ),
    "temperature.step": (STEPPED, STEADY_SLOPES),
    "temperature.leap": (LEAPT, LEAPT | {"mismatch_logp_corr_q": 0.3}),
    "support_shift.ratio": ({"mismatch_ratio_mean": 0.99}, {"mismatch_ratio_mean": 0.997}),
    "engine_mismatch.gaps": (NO_GAPS | {"n_prob_diff_half": 100.0}, NO_GAPS | {"n_prob_diff_half": 40.0}),
    "cut_at_limit.constant": ({"response_length_mean": 300.0}, lambda row: {"response_length_mean": 300.0 + row}),
    "no_learning_signal.advantages": tuple({"advantage_max": 0.0, "advantage_min": least} for least in (0.0, -0.5)),
    "no_learning_signal.reward": ({"reward_mean": 0.0}, {"reward_mean": 0.02}),
    "no_learning_signal.mask": ({"n_tokens": 0.0}, {"n_tokens": 5.0}),
    **{
        f"entropy_explosion.{name}": ({"sampled_entropy": entropy} | FALLEN, {"sampled_entropy": entropy})
        for name, entropy in (("beside_fall", 1.4), ("growing", 0.9), ("leap", 1.2))
    },
    "overoptimisation.evaluation": tuple({"eval_reward": -0.5, "reward_mean": mean} for mean in (0.9, 0.4)),
    "reward_collapse.fall": (FALLEN, {"reward_mean": 0.35}),
    "reward_decline.fall": (FALLEN, {"reward_mean": 0.35}),
    "reward_decline.evaluation": ({"eval_reward": 0.0}, {"eval_reward": 0.38}),
    "not_learning.floor": (
        lambda row: {"reward_mean": -0.09 + 0.05 * (-1) ** row},
        lambda row: {"reward_mean": 0.3 * (row % 2)},
    ),
    "collapse_risk.risk": ({"collapse_risk": 0.7}, {"collapse_risk": 0.45}),
    "gradient_spike.spike": (
        lambda row: {"grad_norm": 6.0 if row == LATE else 0.3},
        lambda row: {"grad_norm": 2.0 if row == LATE else 0.3},
    ),
    "step_too_large.spikes": (
        lambda row: {"grad_norm": 6.0 if row % 3 else 0.3} | FALLEN,
        lambda row: {"grad_norm": 6.0 if row % 3 else 0.3},
    ),
    "length_hacking.growth": tuple({"response_length_mean": 450.0, "reward_length_corr": corr} for corr in (0.7, 0.3)),
}
"""Clauses whose rows cannot be made from their limits: values that fire, and values that do not."""
FROM_THE_START = {
    "no_learning_signal.reward": {"reward_mean": 0.4},
    "overoptimisation.evaluation": {"eval_reward": 0.7},
    "reward_decline.evaluation": {"eval_reward": 0.4},
    "not_learning.floor": {"reward_mean": 0.0},
}
"""What healthy rows of a clause have besides."""


@dataclass(frozen=True)
class Logged:
    """What a clause's rows log: the signals that it reads, those that stay unknown, and what healthy rows also have."""

    read: frozenset[str]
    unknown: frozenset[str]
    from_start: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, clause: Clause) -> Logged:
        parts = (*clause.when, *(clause.any[0] if clause.any else ()))
        read = {sources_of(name)[0] for part in parts for name in part.signals if name not in (*VIEWS, SETTLED)}
        unknown = {name for part in parts if not part.side for name in sources_of(part.measure)}
        return cls(frozenset(read - HEALTHY.keys()), frozenset(unknown), (*FROM_THE_START.get(clause.key, {}).items(),))

    def judged(self, state: JudgeState, row: int, ill: Values) -> JudgeState:
        """Return the state after one more row."""
        values = dict.fromkeys(self.read, LITTLE * wobble(row)) | healthy(row)
        values |= {name: value + 0.15 * math.sin(2.4 * row) for name, value in self.from_start}
        values = {name: value for name, value in (values | ill).items() if name not in self.unknown}
        return JUDGE.fold(state, Row(place=Place(0, row), values=values, facts={"replay_declared": 1.0}))


@cache
def healthy_states(logged: Logged) -> list[JudgeState]:
    """Return the states after each healthy row, which clauses that log the same share."""
    return list(accumulate(range(HEALTHY_ROWS), lambda state, row: logged.judged(state, row, {}), initial=JudgeState()))


def stands(key: str, *, is_far: bool) -> bool:
    """Whether a clause stood at some row of healthy rows and ill ones of it."""
    clause = CATALOGUE.by_key[key]
    ill = SPECIAL[key][0 if is_far else 1] if key in SPECIAL else made(clause, FAR if is_far else NEAR)
    logged = Logged.of(clause)
    *before, state = healthy_states(logged)
    if any(key in one.clauses and one.clauses[key].stands for one in (*before, state)):
        return True
    for row in range(HEALTHY_ROWS, HEALTHY_ROWS + ILL_ROWS):
        state = logged.judged(state, row, ill(row) if callable(ill) else ill)
        if key in state.clauses and state.clauses[key].stands:
            return True
    return False


JUDGED = [clause.key for clause in CATALOGUE.clauses if clause.decisive.transform not in (LOST, NONFINITE)]


@pytest.mark.parametrize("key", JUDGED)
def test_a_clause_holds_beyond_its_limit(key: str) -> None:
    assert stands(key, is_far=True)


@pytest.mark.parametrize("key", JUDGED)
def test_a_clause_does_not_hold_inside_its_limit(key: str) -> None:
    assert not stands(key, is_far=False)
