"""The rows of a plausible run that learns, with every signal that a finding reads."""

from __future__ import annotations

import math

import numpy as np

Row = dict[str, float]


def healthy(rng: np.random.Generator, n: int) -> list[Row]:
    """Return the rows of a run that learns, with all signals."""
    rows: list[Row] = []
    lengths, entropy, drop = rng.uniform(80, 900), rng.uniform(0.2, 1.5), rng.uniform(0, 0.4)
    low, high, sigma = rng.uniform(0.05, 0.4), rng.uniform(0.5, 0.85), rng.uniform(0.01, 0.08)
    k3 = 10 ** rng.uniform(-4.5, -2.5)
    for i in range(n):
        z = rng.standard_normal(32)
        mean = round(float(np.clip(low + (high - low) * min(1, i / (0.7 * n)) + sigma * z[0], 0, 1)), 2)
        tokens, sequences = 20_000 + 100 * int(10 * z[1]), 64
        rows.append(
            {
                "loss": float(0.1 * z[2]),
                "grad_norm": float(0.4 * math.exp(0.2 * z[3])),
                "lr": 1e-6 * min(1, (i + 1) / 10),
                "reward_mean": mean,
                "reward_std": float(0.3 * math.exp(0.05 * z[4])),
                "reward_min": 0.0,
                "reward_max": 1.0,
                "entropy": float(entropy * (1 - drop * i / n) * math.exp(0.05 * z[5])),
                "response_length_mean": float(lengths * (1 + 0.1 * i / n) * math.exp(0.04 * z[6])),
                "length_limit_share": float(0.05 * math.exp(0.2 * z[8])),
                "zero_variance_groups": float(np.clip(0.3 + 0.1 * z[9], 0, 1)),
                "effective_signal": float(0.1 * math.exp(0.1 * z[10])),
                "reference_kl": float(0.05 * (i + 1) / n * math.exp(0.1 * z[11])),
                "clip_fraction": float(0.02 * math.exp(0.2 * z[12])),
                "advantage_max": float(2 * math.exp(0.1 * z[13])),
                "advantage_min": float(-2 * math.exp(0.1 * z[14])),
                "invalid_fraction": 0.0,
                "n_tokens": float(tokens),
                "n_sequences": float(sequences),
                "eos_tokens": float(sequences - 3),
                "reward_length_corr": float(0.1 * z[15]),
                "router_flip_rate": float(0.01 * math.exp(0.1 * z[16])),
                "version_lag_mean": 0.0,
                "step_seconds": float(60 * math.exp(0.1 * z[17])),
                "mismatch_kl_k1": float(0.3 * k3 * z[18]),
                "mismatch_kl_k2": float(k3 * math.exp(0.1 * z[19])),
                "mismatch_kl_k3": float(k3 * math.exp(0.1 * z[19])),
                "mismatch_prob_pearson": float(1 - 0.002 * math.exp(0.2 * z[20])),
                "mismatch_ppl_ratio": float(1 + 5e-4 * z[21]),
                "mismatch_abs_log_ratio_mean": float(0.012 * math.exp(0.05 * z[22])),
                "mismatch_ratio_mean": float(1 + 3e-4 * z[23]),
                "mismatch_chi2_token": float(0.02 * math.exp(0.2 * z[24])),
                "mismatch_ess_token": float(0.97 + 0.005 * z[25]),
                "mismatch_ln_e_value": float(-1 + z[26]),
                "mismatch_k3_excess": float(0.1 * math.exp(0.3 * z[27])),
                "mismatch_drift_spread": float(1e-3 * math.exp(0.1 * z[28])),
                "mismatch_logp_slope_q": float(0.001 * z[29]),
                "mismatch_logp_slope_p": float(0.001 * z[30]),
                "mismatch_logp_corr_q": float(0.05 * z[31]),
                "logp_unit": float(1 + 0.001 * z[0]),
                "logp_unit_residual": float(0.99 + 0.002 * z[1]),
                "seq_shift_share": float(0.2 + 0.02 * z[2]),
                "staleness_kl_k1": float(1e-3 + 2e-4 * z[3]),
                "staleness_kl_k3": float(2e-5 * math.exp(0.2 * z[4])),
                "staleness_drift_spread": float(1e-4 * math.exp(0.1 * z[5])),
                "grad_variance": float(0.02 * math.exp(0.2 * z[6])),
                "mu_logprob_mean": float(-0.4 + 0.01 * z[7]),
                "n_mu_zero": float(round(0.1 * tokens)),
                "n_mu_zero_unlikely": 0.0,
                "n_unlikely": float(round(0.2 * tokens)),
                "n_prob_diff_half": float(rng.poisson(0.5)),
                "n_zero_tail": float(rng.poisson(20)),
                "positive_fraction": 0.0,
                "ppl_old": float(1.5 + 0.01 * z[8]),
                "reward_invalid_share": 0.0,
                "advantage_invalid_share": 0.0,
            }
        )
        if i % 4 == 3:
            rows[-1]["eval_reward"] = round(float(mean + 0.02 * z[8]), 2)
    return rows
