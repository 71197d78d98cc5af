"""Reference implementations by definition: the columns one token at a time, in Python floats, and the signals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trmon_client.core.column_schema import HISTOGRAM_EDGES, N_BINS

NAMES = {"rollout_logprobs": "sum_logp_rollout", "old_logprobs": "sum_logp_old", "logprobs": "sum_logp"}
PAIRS = {
    "mismatch": ("old_logprobs", "rollout_logprobs"),
    "staleness": ("logprobs", "old_logprobs"),
    "total": ("logprobs", "rollout_logprobs"),
}


def columns(given: dict[str, Any], mask: Any, advantages: Any = None) -> dict[str, list[float]]:
    """Return every column as a list of B numbers; advantages are [B][T] or None."""
    sequences = [
        _sequence(
            {name: [float(x) for x in rows[i]] for name, rows in given.items()},
            [bool(x) for x in mask[i]],
            None if advantages is None else [float(x) for x in advantages[i]],
        )
        for i in range(len(mask))
    ]
    return {name: [sequence[name] for sequence in sequences] for name in sequences[0]}


def histogram(given: dict[str, Any], mask: Any, pair: str) -> list[int]:
    """Return the histogram of d of one pair, by comparing with each edge."""
    counts = [0] * N_BINS
    above, below = PAIRS[pair]
    for i, row in enumerate(mask):
        for t, counting in enumerate(row):
            if counting and all(_is_sound(float(rows[i][t])) for rows in given.values()):
                d = float(given[above][i][t]) - float(given[below][i][t])
                counts[sum(edge <= d for edge in HISTOGRAM_EDGES)] += 1
    return counts


def _is_sound(logp: float) -> bool:
    return math.isfinite(logp) and -1000.0 < logp <= 1e-4


def _is_dual_clipped(ratio: float, advantage: float) -> bool:
    """Return whether the loss of dual-clip PPO is that of the bound 3, from its three branches."""
    ppo = max(-ratio * advantage, -min(max(ratio, 0.8), 1.2) * advantage)
    return advantage < 0 and ppo > -3.0 * advantage


def _sequence(logp: dict[str, list[float]], mask: list[bool], advantages: list[float] | None) -> dict[str, float]:
    counting = [t for t, counts in enumerate(mask) if counts]
    valid = [t for t in counting if all(_is_sound(row[t]) for row in logp.values())]
    found: dict[str, float] = {"n_tokens": len(valid), "n_invalid": len(counting) - len(valid)}
    pairs = [pair for pair, names in PAIRS.items() if set(names) <= set(logp)]
    primary = next(pair for pair in ("total", "mismatch", "staleness") if pair in pairs)
    for name, row in logp.items():
        found[NAMES[name]] = math.fsum(row[t] for t in valid)
        found[NAMES[name].replace("sum_", "sum_sq_")] = math.fsum(row[t] ** 2 for t in valid)
    if "rollout_logprobs" in logp:
        trained = logp.get("old_logprobs", logp.get("logprobs", []))
        found["n_mu_zero"] = sum(logp["rollout_logprobs"][t] == 0 for t in valid)
        found["n_saturated"] = sum(logp["rollout_logprobs"][t] == 0 and math.exp(trained[t]) < 0.99 for t in valid)
        found |= _against_the_trainer(logp["rollout_logprobs"], trained, counting=counting, valid=valid)
        found["n_positive"] = sum(any(row[t] > 1e-4 for row in logp.values()) for t in counting)
        positive = [row[t] for row in logp.values() for t in counting if row[t] > 1e-4]
        found["max_positive"] = max(positive, default=-math.inf)
    d = {pair: {t: logp[PAIRS[pair][0]][t] - logp[PAIRS[pair][1]][t] for t in valid} for pair in pairs}
    size = {t: abs(x) for t, x in d[primary].items()}
    found["n_clamped"] = sum(x > 20 for x in size.values())
    found["argmax_abs_d"] = max(size, key=lambda t: (size[t], -t)) if size else -1
    for pair in pairs:
        found |= _pair(pair, d[pair], [logp[name] for name in PAIRS[pair]])
    if len(pairs) == 3:
        found["sum_abs_is_dev"] = math.fsum(abs(_dev(d["total"][t]) - _dev(d["mismatch"][t])) for t in valid)
    if advantages is not None:
        clipped = d["staleness" if "staleness" in pairs else primary]
        high = [t for t in valid if _dev(clipped[t]) > 0.2]
        low = [t for t in valid if _dev(clipped[t]) < -0.2]
        found["n_clipped"] = sum(advantages[t] > 0 for t in high) + sum(advantages[t] < 0 for t in low)
        found["n_leaked_high"] = sum(advantages[t] < 0 for t in high)
        found["n_leaked"] = found["n_leaked_high"] + sum(advantages[t] > 0 for t in low)
        found["n_clipped_high"] = sum(advantages[t] > 0 for t in high)
        found["n_dual_clipped"] = sum(_is_dual_clipped(_dev(clipped[t]) + 1, advantages[t]) for t in valid)
        found["n_positive_advantage"] = sum(advantages[t] > 0 for t in valid)
        found["n_negative_advantage"] = sum(advantages[t] < 0 for t in valid)
    return found


def _against_the_trainer(
    mu: list[float], trained: list[float], *, counting: list[int], valid: list[int]
) -> dict[str, float]:
    unlikely = [t for t in valid if math.exp(trained[t]) < 0.5]
    others = [t for t in counting if t not in valid or mu[t] != 0]
    half = [abs(math.exp(min(trained[t], 0.0)) - math.exp(min(mu[t], 0.0))) > 0.5 for t in valid]
    return {
        "n_unlikely": len(unlikely),
        "n_mu_zero_unlikely": sum(mu[t] == 0 for t in unlikely),
        "n_prob_diff_half": sum(half),
        "n_zero_tail": sum(t > max(others, default=-1) for t in counting),
    }


def _pair(pair: str, d: dict[int, float], rows: list[list[float]]) -> dict[str, float]:
    p = [math.exp(min(rows[0][t], 0.0)) for t in d]
    q = [math.exp(min(rows[1][t], 0.0)) for t in d]
    dev = [_dev(x) for x in d.values()]
    k3 = [_k3(x) for x in d.values()]
    truncated = [min(1 + x, 2.0) for x in dev]
    diff = [abs(a - b) for a, b in zip(p, q, strict=True)]
    kl = [_binary_kl(min(rows[0][t], 0.0), min(rows[1][t], 0.0)) for t in d]
    running = [math.fsum(list(d.values())[: i + 1]) for i in range(len(d))]
    terms = {
        "d": list(d.values()),
        "abs_d": [abs(x) for x in d.values()],
        "sq_d": [x * x for x in d.values()],
        "ratio_dev": dev,
        "sq_ratio_dev": [x * x for x in dev],
        "ratio_deficit": [max(0.0, -x) for x in dev],
        "k3": k3,
        "trunc_ratio": truncated,
        "sq_trunc_ratio": [x * x for x in truncated],
        "prob_diff": diff,
        "sq_prob_diff": [x * x for x in diff],
        "p": p,
        "q": q,
        "pp": [x * x for x in p],
        "qq": [x * x for x in q],
        "pq": [a * b for a, b in zip(p, q, strict=True)],
        "binary_kl": kl,
    }
    found = {f"sum_{name}": math.fsum(values) for name, values in terms.items()}
    for name in ("d", "k3", "prob_diff", "binary_kl"):
        found[f"max_{name}"] = max(terms[name], default=-math.inf)
    found["min_d"] = min(d.values(), default=math.inf)
    found["prefix_min_d"], found["prefix_max_d"] = min(running, default=math.inf), max(running, default=-math.inf)
    found["n_band_low"], found["n_band_high"] = sum(x < -0.5 for x in dev), sum(x > 4 for x in dev)
    found["n_trunc"] = sum(x > 1 for x in dev)
    return {f"{pair}_{stem}": value for stem, value in found.items()}


def _dev(d: float) -> float:
    return math.expm1(max(-20.0, min(20.0, d)))


def _k3(d: float) -> float:
    if abs(d) > 0.5:
        return _dev(d) - d
    return math.fsum(d**n / math.factorial(n) for n in range(2, 20))


def _binary_kl(above: float, below: float) -> float:
    p, rest_p, rest_q = math.exp(below), -math.expm1(below), max(-math.expm1(above), 1e-7)
    tail = rest_p * math.log(rest_p / rest_q) if rest_p > 1e-5 else -rest_q
    return max(0.0, p * (below - above) + tail)


Rows = list[np.ndarray]
"""The valid tokens of each sequence that has tokens."""


def signals(given: dict[str, Any], mask: np.ndarray) -> dict[str, float]:
    """Return the signals that need only log-probs [B, T], which must be valid under the mask."""
    logp = {name: [row[on] for row, on in zip(rows, mask, strict=True) if on.any()] for name, rows in given.items()}
    found = {f"{pair}_{stem}": x for pair in PAIRS for stem, x in _signals_of_pair(logp, pair).items()}
    names = {"ppl_rollout": "rollout_logprobs", "ppl_old": "old_logprobs", "ppl": "logprobs"}
    found |= {signal: np.mean([np.exp(-row.mean()) for row in logp[name]]) for signal, name in names.items()}
    lengths = [len(row) for row in logp["logprobs"]]
    found |= {
        "response_length_mean": np.mean(lengths),
        "response_length_median": np.median(lengths),
        "length_limit_share": 0.0,
        "response_length_p95": np.quantile(lengths, 0.95),
        "response_length_max": np.max(lengths),
    }
    d = {pair: np.concatenate(_log_ratios(logp, pair)) for pair in PAIRS}
    found["staleness_tv_is"] = np.abs(np.exp(d["total"]) - np.exp(d["mismatch"])).mean() / 2
    found["clamped_fraction"] = np.mean(np.abs(d["total"]) > 20)
    mu, old = np.concatenate(logp["rollout_logprobs"]), np.concatenate(logp["old_logprobs"])
    found["saturated_fraction"] = np.mean((mu == 0) & (np.exp(old) < 0.99))
    found["mu_zero_saturated_share"] = np.mean(np.exp(old[mu == 0]) < 0.99) if (mu == 0).any() else np.nan
    found["sampled_entropy"] = -mu.mean()
    found |= _of_the_sampler(logp)
    return {name: float(x) for name, x in found.items()}


def _of_the_sampler(logp: dict[str, Rows]) -> dict[str, Any]:
    """Return what is said of mu beside the trainer at its weights, whose log-probs are pi_old's."""
    mu, old = np.concatenate(logp["rollout_logprobs"]), np.concatenate(logp["old_logprobs"])
    p, d = np.exp(old), old - mu
    slope = (d @ mu) / (mu @ mu)
    return {
        "n_mu_zero": (mu == 0).sum(),
        "n_mu_zero_unlikely": ((mu == 0) & (p < 0.5)).sum(),
        "n_unlikely": (p < 0.5).sum(),
        "n_prob_diff_half": (np.abs(p - np.exp(mu)) > 0.5).sum(),
        "n_zero_tail": 0,
        "n_positive": 0,
        "positive_fraction": 0,
        "positive_max": np.nan,
        "mu_logprob_mean": mu.mean(),
        "logp_unit": 1 + slope,
        "logp_unit_residual": np.sum((d - slope * mu) ** 2) / np.sum(d**2),
        "seq_shift_share": sum(abs(row.sum()) for row in _log_ratios(logp, "mismatch")) / np.abs(d).sum(),
    }


def clip_fractions(given: dict[str, Any], mask: np.ndarray, advantages: np.ndarray) -> dict[str, float]:
    """Return what PPO's clip at 0.2 does, from its two branches; advantages [B, T]."""
    ratio = np.exp(given["logprobs"] - given["old_logprobs"])[mask]
    gain = advantages[mask]
    clipped = np.clip(ratio, 0.8, 1.2)
    beyond = ratio != clipped
    takes_clipped = beyond & (clipped * gain < ratio * gain)
    leaks = beyond & (ratio * gain < clipped * gain)
    ppo = np.maximum(-ratio * gain, -clipped * gain)
    signs = {"positive": gain > 0, "negative": gain < 0}
    return {
        **{f"clip_fraction_{name}": float(takes_clipped[on].mean()) for name, on in signs.items()},
        **{f"leak_fraction_{name}": float(leaks[on].mean()) for name, on in signs.items()},
        "dual_clip_fraction": float(((gain < 0) & (ppo > -3.0 * gain)).mean()),
        "clip_fraction": float(takes_clipped.mean()),
        "leak_fraction": float(leaks.mean()),
        "leak_high_fraction": float((leaks & (ratio > 1.2)).mean()),
        "leak_share": float(leaks.sum() / beyond.sum()) if beyond.any() else np.nan,
    }


def gradient_signals(given: dict[str, Any], mask: np.ndarray, advantages: np.ndarray) -> dict[str, float]:
    """Return what the log-probs of pi say of the gradient; the advantage of a sequence is the mean of [B, T]."""
    rows = [
        (row[on], gain[on].mean())
        for row, gain, on in zip(given["logprobs"], advantages, mask, strict=True)
        if on.any()
    ]
    low = [gain**2 * ((1 - np.exp(row)) ** 2).sum() for row, gain in rows]
    logp = np.concatenate([row for row, _ in rows])
    gains = np.concatenate([np.full(len(row), gain) for row, gain in rows])
    return {
        "proxy2_total_power_low": float(np.mean(low)),
        "proxy2_total_power_high": 2 * float(np.mean(low)),
        "logp_advantage_cov": float(np.cov(logp, gains, ddof=0)[0, 1]),
    }


def _ln_e_value(d: np.ndarray) -> float:
    """Return the log of the mean over the bets of their products, each d taken at the lower edge of its bin."""
    lower_edges = np.array([-np.inf, *HISTOGRAM_EDGES])
    ratio = np.exp(lower_edges[np.searchsorted(HISTOGRAM_EDGES, d, side="right")])
    return float(
        np.logaddexp.reduce([np.log1p(bet * (ratio - 1)).sum() for bet in (0.01, 0.03, 0.1, 0.3, 0.9)]) - np.log(5)
    )


def _log_ratios(logp: dict[str, Rows], pair: str) -> Rows:
    above, below = PAIRS[pair]
    return [a - b for a, b in zip(logp[above], logp[below], strict=True)]


def _spread(sums: np.ndarray, lengths: np.ndarray) -> Any:
    rest = (sums - lengths * sums.sum() / lengths.sum()) / np.sqrt(lengths)
    low, high = np.quantile(rest, [0.16, 0.84])
    return ((high - low) / 2) ** 2


def _signals_of_pair(logp: dict[str, Rows], pair: str) -> dict[str, Any]:
    rows = _log_ratios(logp, pair)
    d = np.concatenate(rows)
    log_p, log_q = (np.concatenate(logp[name]) for name in PAIRS[pair])
    p, q = np.exp(log_p), np.exp(log_q)
    slope_q = np.cov(d, log_q)[0, 1] / np.var(log_q, ddof=1)
    rho, gap = np.exp(d), np.abs(p - q)
    sums, means = np.array([row.sum() for row in rows]), np.array([row.mean() for row in rows])
    weights = np.exp(sums)
    truncated = np.minimum(rho, 2)
    chi2 = np.mean(rho**2) - 1
    binary = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    return {
        "kl_k1": -d.mean(),
        "kl_k2": (d**2).mean() / 2,
        "kl_k3": (rho - 1 - d).mean(),
        "ratio_mean": rho.mean(),
        "k3_k1_ratio": (rho - 1 - d).mean() / -d.mean(),
        "abs_log_ratio_mean": np.abs(d).mean(),
        "abs_log_ratio_max": np.abs(d).max(),
        "abs_log_ratio_p99": np.quantile(np.abs(d), 0.99),
        "abs_log_ratio_p999": np.quantile(np.abs(d), 0.999),
        "chi2_token": chi2,
        "chi2_token_sn": len(d) * (rho**2).sum() / rho.sum() ** 2 - 1,
        "chi2_token_p95": np.quantile([np.mean(np.exp(2 * row)) - 1 for row in rows], 0.95),
        "chi2_seq_log1p": np.log(np.mean(weights**2)),
        "chi2_seq": np.mean(weights**2) - 1,
        "ess_token": rho.sum() ** 2 / (len(d) * (rho**2).sum()),
        "ess_seq": weights.sum() ** 2 / (len(rows) * (weights**2).sum()),
        "ess_truncated": truncated.sum() ** 2 / (len(d) * (truncated**2).sum()),
        "is_weight_std": rho.std(),
        "is_weight_min": rho.min(),
        "is_weight_max": rho.max(),
        "tv": np.maximum(0, 1 - rho).mean(),
        "tv_seq_max": max(np.maximum(0, 1 - np.exp(row)).mean() for row in rows),
        "geo_ratio_mean": np.exp(means).mean(),
        "geo_ratio_min": np.exp(means).min(),
        "geo_ratio_max": np.exp(means).max(),
        "drift_spread": np.nan if len(rows) < 32 else _spread(sums, np.array([len(row) for row in rows])),
        "seq_log_ratio_mean": sums.mean(),
        "seq_log_ratio_min": sums.min(),
        "seq_log_ratio_max": sums.max(),
        "band_fraction": np.mean((rho < 0.5) | (rho > 5)),
        "trunc_fraction": np.mean(rho > 2),
        "prob_pearson": np.corrcoef(p, q)[0, 1],
        "prob_diff_mean": gap.mean(),
        "prob_diff_std": gap.std(),
        "prob_diff_max": gap.max(),
        "ppl_ratio": np.exp(-means).mean(),
        "log_ppl_diff_mean": -means.mean(),
        "log_ppl_diff_abs_mean": np.abs(means).mean(),
        "log_ppl_diff_min": (-means).min(),
        "log_ppl_diff_max": (-means).max(),
        "binary_kl_mean": binary.mean(),
        "binary_kl_max": binary.max(),
        "logp_slope_q": slope_q,
        "logp_slope_p": np.cov(d, log_p)[0, 1] / np.var(log_p, ddof=1),
        "logp_corr_q": np.corrcoef(d, log_q)[0, 1],
        "temperature_near": 1 + slope_q,
        "temperature_far": 1 + np.var(d, ddof=1) / np.cov(d, log_q)[0, 1],
        "ln_e_value": _ln_e_value(d),
    }
