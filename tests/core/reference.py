"""A reference implementation of the columns in Python floats, one token at a time, from the formulas."""

from __future__ import annotations

import math
from typing import Any

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
