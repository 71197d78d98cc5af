"""Random series of rows for comparing two evaluators: healthy runs, and every illness of the table in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.domain.findings.healthy_run import Row, healthy

SEED, COUNT = 4, 309
NAN = math.nan


@dataclass
class Draft:
    """A series in the making: its rows, the row at which an illness begins, and how far beyond a limit it goes."""

    rng: np.random.Generator
    rows: list[Row]
    start: int = 0
    strength: float = 1.0
    config: dict[str, object] = field(default_factory=dict)
    attempts: list[int] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)

    def put(self, name: str, value: float, *, noise: float = 0.02, first: int | None = None, end: int = 999) -> None:
        """Set a signal from the illness's start (or `first`) on, to a noisy value."""
        for i in range(self.start if first is None else first, min(end, len(self.rows))):
            self.rows[i][name] = value * (1 + noise * float(self.rng.standard_normal()))

    def hold(self, **values: float) -> None:
        """Set signals to the same noisy values in all rows from the start on."""
        for name, value in values.items():
            self.put(name, value)

    def drop(self, *stems: str) -> None:
        """Log none of the signals whose names have one of the stems."""
        for row in self.rows:
            for name in [name for name in row if any(stem in name for stem in stems)]:
                del row[name]


@dataclass(frozen=True)
class Case:
    """A series: its rows, the attempt of each row, the rows with a new configuration, and its illnesses by name."""

    rows: list[Row]
    attempts: list[int]
    fresh: list[int]
    config: dict[str, object]
    illnesses: tuple[str, ...]


Illness = Callable[[Draft], None]


def _not_finite(name: str) -> Illness:
    def illness(d: Draft) -> None:
        bad = NAN if d.rng.random() < 0.7 else math.inf
        for i in range(d.start, min(d.start + int(d.rng.integers(1, 6)), len(d.rows))):
            d.rows[i][name] = bad
            if d.rng.random() < 0.5:
                d.rows[i]["invalid_fraction"] = 1e-4
        if d.rng.random() < 0.5:
            d.rows[-1][name] = bad
            d.config["ended"] = True

    return illness


def _set(**limits: float) -> Illness:
    """Return an illness that takes each signal to its limit times the strength."""

    def illness(d: Draft) -> None:
        for name, limit in limits.items():
            d.put(name, limit * d.strength)

    return illness


def _fixed(**values: float) -> Illness:
    return lambda d: d.hold(**values)


def _times(name: str, factor: float, *, least: int = 22) -> Illness:
    """Return an illness that multiplies a signal, after its first 20 rows."""

    def illness(d: Draft) -> None:
        for row in d.rows[max(d.start, least) :]:
            if name in row:
                row[name] *= factor * d.strength

    return illness


def _fall(d: Draft, *, to: float | None = None) -> None:
    """Let the reward fall from the start on, with the evaluations."""
    floor = float(d.rng.uniform(0, 0.4)) if to is None else to
    for row in d.rows[max(d.start, 22) :]:
        for name in ("reward_mean", "eval_reward"):
            if name in row:
                row[name] = round(float(np.clip(row[name] * floor + 0.01 * d.rng.standard_normal(), 0, 1)), 2)


def _top(d: Draft) -> None:
    """Put the rewards at their top from the first row on."""
    for row in d.rows:
        row["reward_mean"] = round(float(np.clip(0.97 + 0.01 * d.rng.standard_normal(), 0, 1)), 2)


def _at_top(of: Illness) -> Illness:
    def illness(d: Draft) -> None:
        _top(d)
        d.start = 0
        of(d)

    return illness


def _with_fall(of: Illness) -> Illness:
    def illness(d: Draft) -> None:
        d.start = max(d.start, 30)
        of(d)
        _fall(d, to=0.1)

    return illness


def _zeros(d: Draft) -> None:
    for row in d.rows[d.start :]:
        row["n_mu_zero_unlikely"] = float(d.rng.poisson(0.002 * d.strength * row["n_unlikely"]))
        row["n_prob_diff_half"] = float(round(row["n_mu_zero_unlikely"] * d.rng.uniform(0.9, 1.5)))


def _of_tokens(name: str, share: float) -> Illness:
    def illness(d: Draft) -> None:
        for row in d.rows[d.start :]:
            row[name] = float(round(min(1.0, share * d.strength) * row["n_tokens"]))

    return illness


def _end_dropped(d: Draft) -> None:
    for row in d.rows[d.start :]:
        row["n_zero_tail"] = float(round(0.05 * d.strength * row["n_tokens"]))
        row["n_mu_zero"] = row["n_zero_tail"] + float(round(0.1 * row["n_tokens"]))


def _unit(d: Draft) -> None:
    value = float(d.rng.choice([0.693, 1.443, 2.303, 0.434])) * (1 + 0.02 * (d.strength - 1))
    d.put("logp_unit", value, noise=0.003)
    d.put("logp_unit_residual", 0.15)


def _displaced(share: float) -> Illness:
    return _fixed(
        mismatch_prob_pearson=0.2,
        mismatch_abs_log_ratio_mean=0.6,
        mismatch_kl_k1=0.01,
        seq_shift_share=share,
        mismatch_kl_k3=0.4,
    )


def _alone(keep: str, of: Illness) -> Illness:
    """Return the illness in a log that has of a pair of engines only one signal."""
    stems = ("kl_k1", "kl_k2", "kl_k3", "prob_pearson", "ppl_ratio", "abs_log_ratio")
    return _both(of, lambda d: d.drop(*(f"mismatch_{stem}" for stem in stems if stem != keep)))


def _step(name: str, before: float, after: float, *, at: int, noise: float = 0.1) -> Illness:
    """Return an illness of a signal with a level of its own before the change."""

    def illness(d: Draft) -> None:
        change = max(d.start, at)
        d.put(name, before, noise=noise, first=0, end=change)
        d.put(name, before + (after - before) * d.strength, noise=noise, first=change)

    return illness


def _both(*illnesses: Illness) -> Illness:
    def illness(d: Draft) -> None:
        for one in illnesses:
            one(d)

    return illness


def _replay(d: Draft) -> None:
    d.config["router_replay"] = True
    d.put("router_flip_rate", 1e-3 * d.strength, first=0)
    d.put("mismatch_kl_k3", 0.2)


def _slope(d: Draft) -> None:
    value = float(d.rng.choice([-1, 1])) * 0.015 * d.strength
    for name in ("mismatch_logp_slope_q", "mismatch_logp_slope_p"):
        d.put(name, value, noise=0.05)
    d.put("mismatch_logp_corr_q", math.copysign(0.96 if d.start % 2 else 0.5, value))


def _leap(d: Draft) -> None:
    """Slopes that leave a quiet past at once, by 11 to 20 times its largest mean of 5 rows."""
    d.start = max(d.start, 26)
    value = 0.02 * d.strength
    for name in ("mismatch_logp_slope_q", "mismatch_logp_slope_p"):
        d.put(name, value, noise=0.05)
    d.put("mismatch_logp_corr_q", 0.65 * d.strength)


def _support(d: Draft) -> None:
    _step("mismatch_ratio_mean", 1.0, 0.993 if d.start % 2 else 1.007, at=5, noise=1e-4)(d)


def _nothing_synced(d: Draft) -> None:
    for k, row in enumerate(d.rows[d.start :]):
        row["version_lag_mean"] = float(min(k, 4 + int(3 * d.strength)))


def _later_lag(d: Draft) -> None:
    d.start = max(d.start, 45)
    d.put("version_lag_mean", 1.0, noise=0, first=0)
    d.put("version_lag_mean", 3.0, noise=0)
    d.put("mismatch_kl_k3", 1e-3, first=0, end=d.start)
    d.put("mismatch_kl_k3", 0.012 * d.strength)


def _spikes(harm: Illness) -> Illness:
    def illness(d: Draft) -> None:
        d.start = max(d.start, 26)
        for i in range(d.start, min(d.start + 15, len(d.rows)), 3):
            d.rows[i]["grad_norm"] = 4.0 * d.strength + 1.5
        harm(d)

    return illness


def _same_length(d: Draft) -> None:
    d.drop("length_limit_share", "eos_tokens")
    d.put("response_length_mean", 256.0, noise=0)


def _overoptimised(d: Draft) -> None:
    d.start = max(d.start, 30)
    for k, row in enumerate(d.rows):
        row["reward_mean"] = round(min(0.95, 0.1 + 0.8 * k / len(d.rows) + 0.01 * float(d.rng.standard_normal())), 2)
        if "eval_reward" in row:
            row["eval_reward"] = round(0.2 + 0.005 * k if k < d.start else 0.25 - 0.05 * d.strength, 2)


def _floor(d: Draft) -> None:
    level = float(d.rng.choice([0.0, -0.1]))
    for row in d.rows:
        row["reward_mean"] = level
        row["reward_min"] = level


def _cut_more(d: Draft) -> None:
    d.start = max(d.start, 22)
    for k, row in enumerate(d.rows[d.start :]):
        row["length_limit_share"] = min(0.45, 0.05 + 0.02 * k * d.strength)


def _surge(*companions: Illness) -> Illness:
    def illness(d: Draft) -> None:
        d.start = max(d.start, 20)
        for row in d.rows:
            row["reward_mean"] = 0.5
        factor = 1 + 0.4 * d.strength if companions else 4.5 * d.strength
        _times("response_length_mean", factor / d.strength)(d)
        for one in companions:
            one(d)

    return illness


def _quantiles(d: Draft) -> None:
    """Add the quantiles of the sequences' rewards, in steps of 0.1."""
    for row in d.rows:
        mean = row["reward_mean"]
        for name, shift in (("q01", -0.6), ("q05", -0.5), ("q25", -0.2), ("median", 0), ("q75", 0.2), ("q95", 0.5)):
            row[f"reward_{name}"] = round(float(np.clip(mean + shift, 0, 1)), 1)
        row["reward_q99"] = round(float(np.clip(mean + 0.6, 0, 1)), 1)


def _in_last_rows(name: str, value: float) -> Illness:
    def illness(d: Draft) -> None:
        d.start = min(d.start, max(0, len(d.rows) - 55))
        d.put(name, value, noise=0)

    return illness


ENTROPY_OFF = _times("entropy", 2.5)
ILLNESSES: dict[str, Illness] = {
    **{f"{name} not finite": _not_finite(name) for name in ("loss", "grad_norm", "reward_mean", "entropy")},
    "ppl_old not finite": _not_finite("ppl_old"),
    "rewards not finite": _fixed(reward_invalid_share=1.0 + 1e-9),
    "advantages not finite": _fixed(advantage_invalid_share=1.0 + 1e-9),
    "sign": _both(_set(positive_fraction=0.1), _fixed(mu_logprob_mean=-1e-4)),
    "probabilities": _both(_set(positive_fraction=0.9), _fixed(mu_logprob_mean=-0.5)),
    "negatives": _fixed(mismatch_prob_pearson=-0.95),
    "unit": _unit,
    "shifted": _displaced(0.05),
    "order": _displaced(0.3),
    "padding": _end_dropped,
    "end dropped": _both(_end_dropped, _zeros),
    "impossible k3": _set(mismatch_k3_excess=1.2, mismatch_ln_e_value=15),
    "invalid": _set(invalid_fraction=0.01),
    "zeros": _zeros,
    "other weights": _fixed(mismatch_prob_pearson=0.3, mismatch_kl_k1=0.8, mismatch_abs_log_ratio_mean=1.0),
    "far weights": _alone("kl_k1", _set(mismatch_kl_k1=1.25)),
    "far log-ratio": _alone("abs_log_ratio", _set(mismatch_abs_log_ratio_mean=1.15)),
    "replay": _replay,
    "flips": _both(_times("router_flip_rate", 3), _fixed(mismatch_kl_k3=0.2)),
    "support": _support,
    "temperature": _slope,
    "stale": _both(_fixed(version_lag_mean=3.0), _set(mismatch_kl_k3=0.15)),
    "stale ppl": _both(_fixed(version_lag_mean=3.0), _set(mismatch_ppl_ratio=1.04)),
    "stale k1": _both(_fixed(version_lag_mean=3.0), _set(mismatch_kl_k1=0.15)),
    "stale log-ratio": _alone(
        "abs_log_ratio", _both(_fixed(version_lag_mean=3.0), _set(mismatch_abs_log_ratio_mean=0.45))
    ),
    "nothing synced": _nothing_synced,
    "later lag": _later_lag,
    "pearson": _step("mismatch_prob_pearson", 0.995, 0.94, at=3, noise=1e-4),
    "pearson change": _step("mismatch_prob_pearson", 0.9997, 0.985, at=25, noise=1e-5),
    "ppl": _step("mismatch_ppl_ratio", 1.0, 1.026, at=3, noise=1e-4),
    "ppl change": _step("mismatch_ppl_ratio", 1.0, 1.006, at=25, noise=1e-5),
    "k1": _set(mismatch_kl_k1=0.05),
    "k1 change": _step("mismatch_kl_k1", 2e-4, 0.013, at=25),
    "k3": _set(mismatch_kl_k3=0.05),
    "k3 change": _step("mismatch_kl_k3", 3e-4, 0.013, at=25),
    "log-ratio": _alone("abs_log_ratio", _set(mismatch_abs_log_ratio_mean=0.15)),
    "log-ratio change": _step("mismatch_abs_log_ratio_mean", 1.5e-3, 0.035, at=25),
    "large gaps": _of_tokens("n_prob_diff_half", 1.1e-3),
    "staleness": _set(staleness_kl_k3=0.05),
    "stale updates": _both(_fixed(staleness_lag=1.0), _set(staleness_kl_k3=0.15)),
    "ppo_kl": _set(staleness_kl_k1=0.1),
    "huge gradient": _set(grad_norm=1e4),
    "staleness jump": _times("staleness_kl_k3", 22, least=58),
    "staleness growth": _times("staleness_kl_k3", 55, least=62),
    "spikes and fall": _spikes(_fall),
    "spikes and entropy": _spikes(ENTROPY_OFF),
    "one spike": lambda d: d.put("grad_norm", 4.5 * d.strength, first=max(d.start, 25), end=max(d.start, 25) + 1),
    "reference": _set(reference_kl=3),
    "reference of a client": _both(lambda d: d.drop("reference_kl"), _set(ref_kl_k3=3)),
    "cut": _set(length_limit_share=0.5),
    "no end tokens": _fixed(eos_tokens=0.0),
    "same length": _same_length,
    "cut more": _cut_more,
    "equal groups": _set(zero_variance_groups=0.9),
    "reward_std": _in_last_rows("reward_std", 6e-8),
    "no advantages": _both(_in_last_rows("advantage_max", 0.0), _in_last_rows("advantage_min", 0.0)),
    "no gradient": _in_last_rows("grad_norm", 0.0),
    "floor": _floor,
    "no tokens": _in_last_rows("n_tokens", 0.0),
    "solved groups": _at_top(_fixed(zero_variance_groups=0.95)),
    "solved std": _at_top(_in_last_rows("reward_std", 0.0)),
    "solved advantages": _at_top(_both(_in_last_rows("advantage_max", 0.0), _in_last_rows("advantage_min", 0.0))),
    "solved gradient": _at_top(_in_last_rows("grad_norm", 0.0)),
    "hacking": _both(_set(reward_length_corr=0.5), _times("response_length_mean", 1.25)),
    "surge alone": _surge(),
    "surge with kl": _surge(_times("mismatch_kl_k3", 3)),
    "surge with reference": _surge(_step("reference_kl", 0.1, 0.3, at=22)),
    "surge with clipping": _surge(_step("clip_fraction", 0.06, 0.2, at=22)),
    "surge with cut": _surge(_step("length_limit_share", 0.05, 0.3, at=22)),
    "surge with spread": _surge(_times("mismatch_drift_spread", 2.5)),
    "5 nats": _set(entropy=5),
    "a sum over answers": _fixed(entropy=60),
    "20 b": _both(lambda d: d.put("entropy", 0.1, first=0), _times("entropy", 21)),
    "5 b": _both(lambda d: d.put("entropy", 0.6, first=0), _times("entropy", 5.3)),
    "entropy up": _both(_times("entropy", 3.5), lambda d: d.put("reward_mean", 0.4, first=0)),
    "entropy up with fall": _with_fall(_times("entropy", 2.6)),
    "entropy at 0": _both(_times("entropy", 0.015), lambda d: d.put("reward_mean", 0.4, first=0)),
    "entropy down": _with_fall(_times("entropy", 0.12)),
    "length down": _both(_times("response_length_mean", 0.25), lambda d: d.put("reward_mean", 0.4, first=0)),
    "clipped": _step("clip_fraction", 0.1, 0.21, at=22),
    "wide weights": _set(mismatch_chi2_token=1.0),
    "few effective tokens": _fixed(mismatch_ess_token=0.4),
    "moderate": _set(mismatch_chi2_token=0.3),
    "spread": _both(_times("mismatch_drift_spread", 3.5), _fixed(mismatch_kl_k3=0.02)),
    "spread of staleness": _both(
        _times("staleness_drift_spread", 3.5, least=42), _times("staleness_kl_k3", 20, least=45)
    ),
    "gradient variance": _times("grad_variance", 2.3),
    "drift growing": _step("mismatch_kl_k3", 1e-3, 0.07, at=25),
    "overoptimised": _overoptimised,
    "fall": _fall,
    "weaker signal": _times("effective_signal", 0.25),
    "slow steps": _times("step_seconds", 3.2),
}
"""Each changes the rows of a draft; the strength puts its values on both sides of the limits."""


RARE: dict[str, Illness] = {
    "repeated prompts": _step("distinct_prompt_share", 0.125, 0.05, at=22),
    "temperature from a step on": _both(_slope, _fixed(mismatch_logp_corr_q=0.96)),
    "short steps": _step("step_seconds", 0.2, 0.95, at=22),
    "temperature that leaps": _leap,
}
"""Illnesses of the last series, three of each."""
OFTEN = (
    "replay",
    "flips",
    "support",
    "grad_norm not finite",
    "later lag",
    "spread of staleness",
    "fall",
    "far weights",
    "far log-ratio",
    "entropy up with fall",
    "solved groups",
    "length down",
    "entropy not finite",
    "floor",
)
"""Illnesses that restarts, gaps and other illnesses hide more often than the rest; chosen twice as often."""


def series(seed: int = SEED, count: int = COUNT) -> Iterator[Case]:
    """Return random series of 30 to 260 rows with one to three illnesses each, or none, that repeat with the seed."""
    return (one_of_series(seed, k, count) for k in range(count))


def one_of_series(seed: int, k: int, count: int = COUNT) -> Case:
    """Return the series of a place."""
    names = [*ILLNESSES, *OFTEN]
    firsts = [*(names[k % len(names)] for k in range(count - 3 * len(RARE))), *RARE, *RARE, *RARE]
    rng = np.random.default_rng((seed, k))
    n = int(rng.choice([30, 60, 75, 100, 130, 260], p=[0.1, 0.15, 0.3, 0.25, 0.15, 0.05])) + int(rng.integers(0, 30))
    draft = Draft(rng, healthy(rng, min(n, 260)), attempts=[0] * min(n, 260))
    if rng.random() < 0.3:
        _quantiles(draft)
    chosen = [firsts[k], *rng.choice(names, size=int(rng.integers(0, 4)))] if k % 25 != 24 else []
    for name in chosen:
        draft.start = int(rng.integers(0, n // 2))
        near = rng.random() < 0.25
        draft.strength = float(rng.uniform(0.75, 1.2) if near else rng.uniform(1.05, 1.6))
        (ILLNESSES | RARE)[name](draft)
    _disturb(draft)
    return Case(draft.rows, draft.attempts, draft.fresh, draft.config, tuple(chosen))


def _disturb(d: Draft) -> None:
    """Log signals every few rows, leave names out, put NaN where correlations have it, and restart the run."""
    rng, n = d.rng, len(d.rows)
    names = sorted({name for row in d.rows for name in row})
    if rng.random() < 0.25:
        every, kept = int(rng.integers(2, 4)), rng.random(len(names)) < 0.6
        for i, row in enumerate(d.rows):
            if i % every:
                for name, keep in zip(names, kept, strict=True):
                    if not keep:
                        row.pop(name, None)
    if rng.random() < 0.2:
        for name in rng.choice(names, size=6):
            d.drop(str(name))
    if rng.random() < 0.5:
        d.drop("eval_reward")
    if rng.random() < 0.2:
        for i in rng.integers(0, n, size=3):
            for name in ("mismatch_prob_pearson", "mismatch_logp_corr_q"):
                if name in d.rows[i]:
                    d.rows[i][name] = NAN
    if rng.random() < 0.15:
        for row in d.rows:
            for name in [name for name in row if name.startswith("mismatch_")]:
                row[name.replace("mismatch_", "total_")] = row.pop(name)
    if rng.random() < 0.2:
        at = int(rng.integers(n // 3, n))
        d.attempts = [int(i >= at) for i in range(n)]
        d.fresh = [at] if rng.random() < 0.3 else []
    if rng.random() < 0.1:
        for row in d.rows[n // 4 :]:
            if "entropy" in row:
                row["sampled_entropy"] = 1.1 * row["entropy"]
