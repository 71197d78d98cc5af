"""The clauses about log-probs and engines, written literally, in the order of the table of findings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.domain.findings.clause import SELF_HELD, Clause, Test, above, below, every, lagging, level, value_above
from tests.domain.findings.measures import ALPHA20, MEMORY, Moment, mean, median

# not_a_number -------------------------------------------------------------------------------------------------------

NO_HISTORY = ("loss", "grad_norm")
NAMES = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "reward": "reward_mean",
    "entropy": "entropy",
    "old_logprobs": "ppl_old",
}


def not_finite(name: str) -> Test:
    """loss, grad_norm; reward, entropy, the trainer's log-probs not finite."""

    def test(m: Moment) -> bool | None:
        value = m.run.logged(name, m.i)
        if value is None or math.isfinite(value):
            return False
        # loss and grad_norm need no history; the others were numbers in five rows before the first NaN
        found = [logged for row in range(m.i + 1) if (logged := m.run.logged(name, row)) is not None]
        first = next(at for at, logged in enumerate(found) if not math.isfinite(logged))
        has_tokens = above(m.now("n_tokens"), 0) if name == "ppl_old" else True
        return every(name in NO_HISTORY or first >= 5, has_tokens)

    return test


def at_once(name: str) -> Test:
    """1 with invalid log-probs."""
    return lambda m: every(not_finite(name)(m), above(m.now("invalid_fraction"), 0))


def not_a_number() -> Iterator[Clause]:
    """Yield the clauses of each name; hold 2 of 3 of the newest rows that logged the name."""
    clause = partial(Clause, finding="not_a_number", hold=(2, 3))
    for id_, name in NAMES.items():
        yield clause(name=id_, of=name, condition=not_finite(name))
        yield clause(name=f"{id_}_beside_invalid", of=name, condition=at_once(name), hold=SELF_HELD)
    for of in ("reward", "advantage"):  # `rewards=`, `advantages=`
        share = f"{of}_invalid_share"
        yield clause(name=f"{of}s", of=share, condition=lambda m, share=share: m.now(share) >= m.upper(1))


# corrupt_logprobs (table and section 2b) ----------------------------------------------------------------------------


def share(m: Moment, count: str) -> float | None:
    """Return a count over the counted tokens."""
    n, tokens = m.now(count), m.now("n_tokens")
    return None if n is None or not tokens else n / tokens


def impossible_k3(m: Moment) -> bool | None:
    """k3_excess with the e-value (limits of the rule of before: 1, and ln 10^6)."""
    return every(above(m.now("engine:k3_excess"), m.upper(1)), above(m.now("engine:ln_e_value"), m.upper(13.8)))


def zeros(m: Moment) -> bool | None:
    """Over the newest 10 rows: Z >= 5 from 2 rows or more, Z > 0.002 U and Z >= 0.6 H."""
    z, u, h = (m.last(name, 10) for name in ("n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half"))
    if not len(z):
        return None
    total, rows = float(np.sum(z)), np.count_nonzero(z)
    many = bool(total >= m.upper(5) and rows >= m.upper(2))
    return every(
        many,
        total > m.upper(0.002) * float(np.sum(u)) if len(u) else None,
        total >= m.upper(0.6) * float(np.sum(h)) if len(h) else None,
    )


def share_of_zeros(m: Moment) -> float | None:
    """Z/U is the share of dropped log-probs."""
    z, u = (float(np.sum(m.last(name, 10))) for name in ("n_mu_zero_unlikely", "n_unlikely"))
    return z / u if u > 0 else None


def has_zeros(m: Moment) -> bool | None:
    """Z > 0.002 U."""
    return above(share_of_zeros(m), 0.002)


def sign(m: Moment) -> bool | None:
    """sign: n_positive > 0.1 of counted tokens and mean log mu of the valid ones > -0.001; or > 0.9, one above 1."""
    share, is_of_all = m.now("positive_fraction"), above(m.now("positive_max"), 1.0)
    names = [above(m.now("mu_logprob_mean"), m.lower(-0.001)), every(above(share, m.upper(0.9)), is_of_all)]
    return every(above(share, m.upper(0.1)), None if names == [None, None] else any(names))


def negatives(m: Moment) -> bool | None:
    """given as negatives: Pearson < -0.9."""
    return below(m.now("engine:prob_pearson"), -m.upper(0.9))


def unit(m: Moment) -> bool | None:
    """1 + a within 3% of 0.693, 1.443, 2.303, 0.434, and 1 - (sum d log q)^2/(sum log^2 q sum d^2) < 0.25."""
    slope = m.now("logp_unit")
    units = (math.log(2), 1 / math.log(2), math.log(10), 1 / math.log(10))
    off = None if slope is None else min(abs(slope / unit - 1) for unit in units)
    return every(below(off, m.lower(0.03)), below(m.now("logp_unit_residual"), m.lower(0.25)))


def displaced(m: Moment) -> bool | None:
    """Pearson < 0.5, mean abs d > 0.1, abs(kl_k1) < max(0.1 mean abs d, 3 se)."""
    size, k1, k2, n = (
        m.now(name) for name in ("engine:abs_log_ratio_mean", "engine:kl_k1", "engine:kl_k2", "n_tokens")
    )
    near = None
    if size is not None and k1 is not None:
        deviation = size if k2 is None else math.sqrt(max(2 * k2 - k1**2, 0.0))
        se = deviation / math.sqrt(n) if n else 0.0
        near = abs(k1) < max(m.lower(0.1) * size, 3 * se)
    return every(below(m.now("engine:prob_pearson"), m.lower(0.5)), above(size, m.upper(0.1)), near)


def shifted(m: Moment) -> bool | None:
    """Shifted: ..., the sums over sequences stay: drift_spread < 0.4 kl_k2, else sum abs(S_i) < 0.1 sum abs d."""
    spread = spread_share(m)
    if spread is None:
        return every(displaced(m), below(m.now("seq_shift_share"), m.lower(0.1)))
    return every(displaced(m), spread < m.lower(0.4))


def other_order(m: Moment) -> bool | None:
    """Other order or other sequences: the same with sums over sequences that move."""
    spread, part = spread_share(m), m.now("seq_shift_share")
    if spread is None:
        return every(displaced(m), None if part is None else part >= m.upper(0.1))
    return every(displaced(m), spread >= m.upper(0.4))


def uncorrelated(m: Moment) -> bool | None:
    """Return whether the row itself has Pearson < 0.5, for the onset."""
    return below(m.now("engine:prob_pearson"), 0.5)


def spread_share(m: Moment) -> float | None:
    """Return drift_spread over kl_k2."""
    spread, k2 = m.now("engine:drift_spread"), m.now("engine:kl_k2")
    return None if spread is None or not k2 else spread / k2


def cut_support(m: Moment) -> bool | None:
    """No padding: a nucleus of one token has log mu 0.0, text ends with many of them, and the mean ratio is below 1."""
    return below(m.ema("engine:ratio_mean"), 0.995)


def long_tails(m: Moment) -> bool | None:
    """End dropped: sum n_zero_tail > 5% of tokens and > 3 N/(1 - P0) (P0: share of zeros before the tails)."""
    tail, zero, tokens, n = (m.now(name) for name in ("n_zero_tail", "n_mu_zero", "n_tokens", "n_sequences"))
    if tail is None or zero is None or tokens is None or n is None:
        return None
    before = tokens - tail
    p0 = (zero - tail) / before if before > 0 else 0.0
    return tail > m.upper(0.05) * tokens and tail * (1 - p0) > m.upper(3) * n


def still_whole(m: Moment) -> bool:
    """The reward has not fallen by half, as far as it is known."""
    fall = m.fall()
    return fall is None or fall < 0.5


def in_doubt(m: Moment) -> bool:
    """Still whole, and entropy > 0.1 b, as far as known: a policy without doubt gives log-probs of 0."""
    b, entropy = m.b("entropy*"), m.now("entropy*")
    return still_whole(m) and (b is None or entropy is None or entropy > 0.1 * b)


def share_above(count: str, limit: float) -> Test:
    """Return the test of a share of the tokens above a limit in the row itself, for the onset."""
    return lambda m: above(share(m, count), limit)


def dropped_ends(m: Moment) -> bool | None:
    """Return whether log-probs at the ends are 0 where the trainer's are not."""
    return every(long_tails(m), above(share_of_zeros(m), m.upper(0.002)))


def no_padding(m: Moment) -> bool | None:
    """Return whether zeros at the ends have another cause than padding."""
    return has_zeros(m) or cut_support(m)


def late_or_zeros(m: Moment) -> bool:
    """Return whether the lag is known and above 0, or log-probs are missing."""
    return lagging(m) or bool(has_zeros(m))


def ratio_off_one(m: Moment) -> bool | None:
    """Return whether the mean ratio is off 1 in this row."""
    return above(abs((m.now("engine:ratio_mean") or 1.0) - 1), 0.005)


def corrupt() -> Iterator[Clause]:
    """Yield the names of corruption; hold 3 of 5."""
    clause = partial(Clause, finding="corrupt_logprobs", hold=(3, 5))
    positive, pearson, tail = "positive_fraction", "engine:prob_pearson", "n_zero_tail"
    yield clause(name="sign", of=positive, condition=sign)
    guard = value_above("positive_max", 1.0)
    yield clause(name="probabilities", of=positive, condition=level(positive, 0.9), guard=guard)
    yield clause(name="negative_probabilities", of=pearson, condition=negatives)
    yield clause(name="unit", of="logp_unit", condition=unit)
    yield clause(name="shifted", of=pearson, condition=shifted, outside=uncorrelated)
    yield clause(name="order", of=pearson, condition=other_order, outside=uncorrelated)
    # with zeros: the log-probs at the end are dropped; without: padding is under the mask
    long = share_above(tail, 0.05)
    yield clause(name="end_dropped", of=tail, condition=dropped_ends, outside=long)
    yield clause(name="padding", of=tail, condition=long_tails, guard=no_padding, only_if=in_doubt, outside=long)
    yield clause(name="evidence", of="engine:ln_e_value", condition=impossible_k3)
    yield clause(name="invalid", of="invalid_fraction", condition=level("invalid_fraction", 0.01))
    of = "n_mu_zero_unlikely"
    yield clause(name="zeros", of=of, condition=zeros, outside=value_above(of, 0))


# the engines' agreement ---------------------------------------------------------------------------------------------

GAPS = {
    "pearson": ("gap_pearson", 0.05),
    "ppl_ratio": ("gap_ppl", 0.02),
    "kl_k1": ("gap_k1", 0.05),
    "kl_k3": ("gap_k3", 0.05),
    "abs_log_ratio": ("gap_log_ratio", 0.15),
}
"""The distances with their levels, by clause."""
FLOORS = {"gap_k1": 0.01, "gap_k3": 0.01, "gap_log_ratio": 0.03}


def unknown(*stems: str) -> Test:
    """Return the test that the engines' pair has none of some signals."""
    return lambda m: all(m.now(f"engine:{stem}") is None for stem in stems)


def other_weights(m: Moment) -> bool | None:
    """Pearson < 0.5 with kl_k1 > 0.5 x mean abs log-ratio."""
    k1, size = m.now("engine:kl_k1"), m.now("engine:abs_log_ratio_mean")
    far = above(k1, None if size is None else m.upper(0.5) * size)
    return every(below(m.now("engine:prob_pearson"), m.lower(0.5)), far)


def far_weights(m: Moment) -> bool | None:
    """kl_k1 > 1 with Pearson < 0.6 or unknown."""
    pearson = m.now("engine:prob_pearson")
    return every(above(m.now("engine:kl_k1"), m.upper(1)), pearson is None or pearson < m.lower(0.6))


def far_log_ratio(m: Moment) -> bool | None:
    """mean abs log-ratio > 1 where nothing else is known."""
    others = ("prob_pearson", "kl_k1", "kl_k3", "ppl_ratio")
    return every(above(m.now("gap_log_ratio"), m.upper(1)), unknown(*others)(m))


def late_or_flipping(m: Moment) -> bool:
    """not while a known lag exceeds its usual, nor while router flips are known and high."""
    lags = m.last("lag*", MEMORY)
    late = len(lags) > 0 and lags[-1] > median(lags)
    return bool(late or flips_with_replay(m) or flips_grew(m))


def flips_with_replay(m: Moment) -> bool | None:
    """`router_flip_rate` > 1e-3 where replay is declared."""
    return above(m.now("router_flip_rate"), m.upper(1e-3)) if m.run.config.get("router_replay") else None


def flips_grew(m: Moment) -> bool | None:
    """flips > 3 b."""
    b = m.b("router_flip_rate")
    return None if b is None else above(m.now("router_flip_rate"), m.upper(3) * b)


def support(m: Moment, side: int = -1) -> bool | None:
    """ratio_mean over 20 rows off 1 by > 0.005 and 4 se, to a side; Pearson over the same rows >= 0.95 (section 2b)."""
    ratio, pearson = m.mean20("engine:ratio_mean", at_least=20), m.mean20("engine:prob_pearson")
    if ratio is None:
        return None
    off, se = abs(ratio - 1), m.noise("engine:ratio_mean") / math.sqrt(20)
    correlated = None if pearson is None else pearson >= m.upper(0.95)
    on_side = ratio > m.upper(1) if side > 0 else ratio < m.lower(1)
    return every(off > m.upper(0.005), off > m.upper(4) * se, on_side, correlated)


def temperature(m: Moment) -> bool | None:
    """Over 20 rows the means of s1, s2: same sign, both >= 0.012, within a factor of 2; ... (section 2b)."""
    stems = ("logp_slope_q", "logp_slope_p", "logp_corr_q", "ratio_mean")
    s1, s2, corr, ratio = (m.mean20(f"engine:{stem}", at_least=20) for stem in stems)
    pearson = m.mean20("engine:prob_pearson")
    if s1 is None or s2 is None:
        return None
    small, large = sorted((abs(s1), abs(s2)))
    if not (s1 * s2 > 0 and small >= m.upper(0.012) and large <= m.lower(2) * small):
        return False
    # abs mean corr(d, log q) >= 0.3; Pearson >= 0.95; abs(ratio_mean - 1) < max(0.005, 4 se)
    se = m.noise("engine:ratio_mean") / math.sqrt(20)
    honest = every(
        None if corr is None else abs(corr) >= m.upper(0.3),
        None if pearson is None else pearson >= m.upper(0.95),
        None if ratio is None else abs(ratio - 1) < max(m.lower(0.005), m.lower(4) * se),
    )
    n = min(len(m.last("engine:logp_slope_q", MEMORY)), len(m.last("engine:logp_slope_p", MEMORY)))
    slope = (m.last("engine:logp_slope_q", n) + m.last("engine:logp_slope_p", n)) / 2
    # the four 5-row means of (s1 + s2)/2 within a factor of 1.3
    four = [abs(mean(slope[n - 5 * k - 5 : n - 5 * k])) for k in range(4)]
    steady = max(four) <= m.lower(1.3) * min(four)
    # and of the newest 100 rows at most 10 whose 5-row mean lies between 1/4 and 3/4 of the present value
    present = mean(slope[n - 5 :])
    means5 = [mean(slope[t - 5 : t]) / present for t in range(5, n + 1)][-100:]
    return every(honest, steady, sum(1 / 4 < part < 3 / 4 for part in means5) <= m.lower(10))


def one_step(m: Moment, least: float = 0.9) -> bool | None:
    """In 5 rows both slopes have one sign, >= 0.012, within a factor of 2, corr(d, log q) >= 0.9; no ramp; ratio 1."""
    s1, s2, corr = (m.last(f"engine:{stem}", 5) for stem in ("logp_slope_q", "logp_slope_p", "logp_corr_q"))
    if min(len(s1), len(s2), len(corr)) < 5:
        return None
    slopes = np.concatenate([s1, s2])
    small, large = float(np.abs(slopes).min()), float(np.abs(slopes).max())
    alike = bool(slopes.min() * slopes.max() > 0 and small >= 0.012 and large <= 2 * small)
    if not (alike and np.abs(corr).min() >= m.upper(least)):
        return False
    n = min(len(m.last("engine:logp_slope_q", MEMORY)), len(m.last("engine:logp_slope_p", MEMORY)))
    slope = (m.last("engine:logp_slope_q", n) + m.last("engine:logp_slope_p", n)) / 2
    present = mean(slope[n - 5 :])
    means5 = [mean(slope[t - 5 : t]) / present for t in range(5, n + 1)][-100:] if present else []
    ramp = sum(1 / 4 < part < 3 / 4 for part in means5) <= m.lower(3) if present else None
    ratio = m.mean20("engine:ratio_mean", at_least=20)
    honest = None
    if ratio is not None:
        se = m.noise("engine:ratio_mean") / math.sqrt(20)
        honest = abs(ratio - 1) < max(m.lower(0.005), m.lower(4) * se)
    pearson = m.now("engine:prob_pearson")
    return every(ramp, None if pearson is None else pearson >= m.upper(0.95), honest)


def leap(m: Moment) -> bool | None:
    """The same with corr >= 0.5, where the slope of 5 rows is ten times that of any 5 rows before, of 20 at least."""
    if (step := one_step(m, 0.5)) is False:
        return False
    pairs = zip(m.all("engine:logp_slope_q")[::-1], m.all("engine:logp_slope_p")[::-1], strict=False)
    slope = [(s1 + s2) / 2 for s1, s2 in pairs][::-1]
    means = [abs(sum(slope[t : t + 5]) / 5) for t in range(len(slope) - 4)][-100:]
    quiet = means[-1] > m.upper(10) * max(means[:-5]) if len(means) > 20 else None
    return every(step, quiet)


def size_above(quantity: str, limit: float) -> Test:
    """Return the test of a size above a limit in the row itself, for the onset."""
    return lambda m: above(abs(m.now(quantity) or 0.0), limit)


def steep(m: Moment) -> bool | None:
    """Return whether the slope of the row itself is outside, for the onset."""
    slope = m.now("engine:logp_slope_q")
    return None if slope is None else abs(slope) >= 0.012


def staler(m: Moment) -> bool | None:
    """lag > its median of rows 21 to 120, and kl_k3 > 10 x its median over the same rows and > 0.002."""
    k3, usual = m.now("engine:kl_k3"), m.rows21to120("engine:kl_k3")
    return every(
        above(k3, None if usual is None else m.upper(10) * usual),
        above(k3, m.upper(0.002)),
        above(m.now("lag*"), m.rows21to120("lag*")),
    )


def nothing_synced(m: Moment) -> bool | None:
    """or the lag grew by one in 5 rows running (nothing is synced)."""
    steps = np.diff(m.last("lag*", 5 if m.relaxed else 6))
    return len(steps) == (4 if m.relaxed else 5) and bool(np.all(steps >= 1 - 1e-9))


def off_one(m: Moment) -> bool | None:
    """abs(ppl_ratio - 1) > 0.02 beyond noise: its average by 4 s sqrt(alpha/(2 - alpha))."""
    ema = m.ema("engine:ppl_ratio")
    if ema is None:
        return None
    least = m.upper(4) * m.noise("engine:ppl_ratio") * math.sqrt(ALPHA20 / (2 - ALPHA20))
    return abs(ema - 1) > m.upper(0.02) and abs(ema - 1) > least


def gap_above(quantity: str, limit: float) -> Test:
    """Return the test of a distance above a level; the mean abs log-ratio only where k3 is unknown."""

    def test(m: Moment) -> bool | None:
        needed = unknown("kl_k3")(m) if quantity == "gap_log_ratio" else True
        return every(above(m.now(quantity), m.upper(limit)), needed)

    return test


def gap_change(quantity: str, limit: float) -> Test:
    """a distance > 20 x b and > 1/5 of its level and > floor (k3, k1 0.01; abs log-ratio 0.03)."""

    def test(m: Moment) -> bool | None:
        b, least = m.b(quantity), max(limit / 5, FLOORS.get(quantity, 0.0))
        return every(
            above(m.now(quantity), None if b is None else m.upper(20) * b), above(m.now(quantity), m.upper(least))
        )

    return test


def large_gaps(m: Moment) -> bool | None:
    """share of tokens with abs(p - q) > 0.5 above 1e-3 over the newest 20 rows, and at least 20 such tokens."""
    large, tokens = m.last("n_prob_diff_half", 20), m.last("n_tokens", 20)
    many = bool(np.sum(large) >= m.upper(20))
    return every(many, bool(np.sum(large) > m.upper(1e-3) * np.sum(tokens)) if len(tokens) else None)


def agreement() -> Iterator[Clause]:
    """Yield the clauses of the findings about the engines, in the order of section 2."""
    pearson, ratio = "engine:prob_pearson", "engine:ratio_mean"
    wrong = partial(Clause, finding="wrong_policy", hold=(3, 5), guard=late_or_flipping)
    yield wrong(name="pearson", of=pearson, condition=other_weights, outside=uncorrelated)
    yield wrong(name="kl_k1", of="engine:kl_k1", condition=far_weights)
    yield wrong(name="abs_log_ratio", of="gap_log_ratio", condition=far_log_ratio)
    routing = partial(Clause, finding="moe_routing", of="router_flip_rate")
    yield routing(name="replayed", condition=flips_with_replay)
    yield routing(name="growth", condition=flips_grew, change=1)
    shift = partial(Clause, finding="support_shift", of=ratio, guard=late_or_zeros, outside=ratio_off_one)
    yield shift(name="ratio", condition=support, hold=(2, 3))
    yield shift(name="returned", condition=lambda m: support(m, 1), hold=(3, 5))
    heat = partial(Clause, finding="temperature", hold=SELF_HELD, guard=lagging)
    yield heat(name="slopes", of="engine:logp_slope_q", condition=temperature, outside=steep)
    of = "engine:logp_corr_q"
    yield heat(name="step", of=of, condition=one_step, outside=size_above(of, 0.9))
    yield heat(name="leap", of=of, condition=leap, outside=size_above(of, 0.5))
    yield from stale()
    differ = partial(Clause, finding="engine_mismatch", guard=lagging)
    for name, (gap, limit) in GAPS.items():
        changed = {"ppl_ratio": "ppl", "abs_log_ratio": "abs"}.get(name, name)
        of, test = ("engine:ppl_ratio", off_one) if name == "ppl_ratio" else (gap, gap_above(gap, limit))
        row = level(gap, limit) if name == "ppl_ratio" else None
        yield differ(name=name, of=of, condition=test, outside=row)
        yield differ(name=f"{changed}_growth", of=gap, condition=gap_change(gap, limit), change=1)
    of = "n_prob_diff_half"
    yield differ(name="gaps", of=of, condition=large_gaps, outside=share_above(of, 1e-3))


def stale() -> Iterator[Clause]:
    """Yield the clauses of stale_rollouts."""
    clause, lag = partial(Clause, finding="stale_rollouts"), level("lag*", 0)
    for name, (gap, limit) in GAPS.items():
        # lag > 0 and a distance above 3 x A's level, 5 of 10
        far, row = gap_above(gap, 3 * limit), level(gap, 3 * limit)
        yield clause(name=name, of=gap, condition=lambda m, far=far: every(far(m), lag(m)), outside=row)
    of, k3, lags = "staleness_kl_k3", level("staleness_kl_k3", 0.15), "staleness_lag"
    yield clause(name="updates", of=of, condition=lambda m: every(k3(m), above(m.now(lags), 0)))
    yield clause(name="no_sync", of="lag*", condition=nothing_synced, hold=SELF_HELD)
    yield clause(name="growth", of="engine:kl_k3", condition=staler, hold=(3, 5), change=1)
