"""The clauses about log-probs and engines, written literally, in the order of the table of findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.domain.findings.measures import MEMORY, Moment

Test = Callable[[Moment], bool | None]
"""Whether a condition is true at a row; None where the row is not known for it."""
Hold = tuple[int, int]
SELF_HELD: Hold = (1, 1)
"""A condition on a mean or EMA of rows has no hold unless the table says one."""
DEFAULT_HOLD: Hold = (5, 10)
DEAD_HOLD: Hold = (18, 20)
"""In 18 of the first 20 rows, later 45 of 50."""


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One condition of a finding.

    guard: not judged while it is true, and the onset is never before the last row at which it held.
    gate: "only if", for tripping and for standing; evidence: for tripping alone.
    outside: for the onset of a level on means and sums: whether the row itself is outside it.
    change: the quantity and the side of a change (+1 up, -1 down) for its onset; split: the reward that is split.
    """

    finding: str
    name: str
    condition: Test
    hold: Hold = DEFAULT_HOLD
    guard: Test | None = None
    gate: Test | None = None
    evidence: Test | None = None
    outside: Test | None = None
    change: tuple[str, int] | None = None
    split: str | None = None


def above(value: float | None, limit: float | None) -> bool | None:
    """Return value > limit; None if one is unknown."""
    return None if value is None or limit is None else bool(value > limit)


def every(*tests: bool | None) -> bool | None:
    """Return whether all are true; None if one is unknown."""
    return None if None in tests else all(tests)


def lagging(m: Moment) -> bool:
    """lag 0 or unknown: not judged while a lag above 0 is known."""
    lag = m.now("lag*")
    return lag is not None and lag > 0


def rising_or_at_top(m: Moment) -> bool:
    """not rising, not at top (an unknown top guards nothing)."""
    return m.rising() or m.at_top() is True


def at_top(m: Moment) -> bool:
    """not at its top."""
    return m.at_top() is True


def level(quantity: str, limit: float) -> Test:
    """Return the test of a row's value above a limit."""
    return lambda m: above(m.now(quantity), m.upper(limit))


# not_a_number -------------------------------------------------------------------------------------------------------

NO_HISTORY = ("loss", "grad_norm")
HALF_FINITE = ("reward_mean", "entropy", "advantage_max", "advantage_min")


def not_finite(name: str) -> Test:
    """loss, grad_norm; reward, `rewards=`, `advantages=`, entropy, the trainer's log-probs not finite."""

    def test(m: Moment) -> bool | None:
        value = m.run.logged(name, m.i)
        if value is None:
            return None
        if math.isfinite(value):
            return False
        # loss and grad_norm need no history; the others were finite in half of their rows before the first NaN
        if name in NO_HISTORY:
            return True
        found = [m.run.logged(name, row) for row in range(m.i + 1)]
        first = next(row for row, logged in enumerate(found) if logged is not None and not math.isfinite(logged))
        finite = sum(logged is not None for logged in found[:first])
        return first > 0 and finite >= first / 2

    return test


def at_once(name: str) -> Test:
    """1 with invalid log-probs, or in the last row of a run."""

    def test(m: Moment) -> bool | None:
        invalid = m.now("invalid_fraction")
        last = bool(m.run.config.get("ended")) and m.i == len(m.run.rows) - 1
        bad = not_finite(name)(m)
        return None if bad is None else bad and ((invalid is not None and invalid > 0) or last)

    return test


def not_a_number() -> Iterator[Clause]:
    """Yield the clauses of each name; hold 2 of 3 of the newest rows that logged the name."""
    for name in (*NO_HISTORY, *HALF_FINITE):
        yield Clause(finding="not_a_number", name=name, condition=not_finite(name), hold=(2, 3))
        yield Clause(finding="not_a_number", name=f"{name} at once", condition=at_once(name), hold=(1, 1))


# corrupt_logprobs (table and section 2b) ----------------------------------------------------------------------------


def share(m: Moment, count: str) -> float | None:
    """Return a count over the counted tokens of the row."""
    n, tokens = m.now(count), m.now("n_tokens")
    return None if n is None or not tokens else n / tokens


def impossible_k3(m: Moment) -> bool | None:
    """k3_excess with the e-value (limits of the rule of before: 1, and ln 10^6)."""
    return every(
        above(m.now("engine:k3_excess"), m.upper(1)), above(m.now("engine:ln_e_value"), m.upper(math.log(1e6)))
    )


def zeros(m: Moment) -> bool | None:
    """Over the newest 10 rows: Z >= 5 from 2 rows or more, Z > 0.002 U and Z >= 0.6 H."""
    names = ("n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half")
    if any(m.now(name) is None for name in names):
        return None
    z, u, h = (m.last(name, 10) for name in names)
    total = float(np.sum(z))
    return bool(
        total >= m.upper(5)
        and np.count_nonzero(z) >= 2
        and total > m.upper(0.002) * np.sum(u)
        and total >= m.upper(0.6) * np.sum(h)
    )


def zeros_of_row(m: Moment) -> bool | None:
    """Return whether the row itself has such zeros, for the onset."""
    z, u, h = m.now("n_mu_zero_unlikely"), m.now("n_unlikely"), m.now("n_prob_diff_half")
    return None if z is None or u is None or h is None else z > 0 and z > 0.002 * u and z >= 0.6 * h


def sign(m: Moment) -> bool | None:
    """sign: n_positive > 0.1 of counted tokens and mean log mu of the valid ones > -0.001."""
    mean = m.now("mu_logprob_mean")
    return every(above(share(m, "n_positive"), m.upper(0.1)), None if mean is None else mean > m.lower(-0.001))


def probabilities(m: Moment) -> bool | None:
    """Probabilities: n_positive > 0.9; given as negatives: Pearson < -0.9."""
    pearson = m.now("engine:prob_pearson")
    tests = [above(share(m, "n_positive"), m.upper(0.9)), None if pearson is None else -pearson > m.upper(0.9)]
    return None if tests == [None, None] else any(tests)


def unit(m: Moment) -> bool | None:
    """1 + a within 3% of 0.693, 1.443, 2.303, 0.434, and 1 - (sum d log q)^2/(sum log^2 q sum d^2) < 0.25."""
    slope, residual = m.now("engine:logp_unit"), m.now("engine:logp_unit_residual")
    if slope is None or residual is None:
        return None
    within = 0.03 / 0.8 if m.relaxed else 0.03
    units = (math.log(2), 1 / math.log(2), math.log(10), 1 / math.log(10))
    near = any(abs(slope / unit - 1) < within for unit in units)
    return near and residual < m.lower(0.25)


def displaced(m: Moment) -> bool | None:
    """Pearson < 0.5, mean abs d > 0.1, abs(kl_k1) < max(0.1 mean abs d, 3 se)."""
    pearson, size, k1, k2 = (
        m.now(f"engine:{name}") for name in ("prob_pearson", "abs_log_ratio_mean", "kl_k1", "kl_k2")
    )
    tokens = m.now("n_tokens")
    if pearson is None or size is None or k1 is None:
        return None
    se = 0.0 if k2 is None or not tokens else math.sqrt(max(2 * k2 - k1**2, 0.0) / tokens)
    return pearson < m.lower(0.5) and size > m.upper(0.1) and abs(k1) < m.lower(max(0.1 * size, 3 * se))


def shifted(m: Moment) -> bool | None:
    """Shifted: ..., sum abs(S_i) < 0.1 sum abs d."""
    moved, part = displaced(m), m.now("engine:seq_shift_share")
    return None if moved is None or part is None else moved and part < m.lower(0.1)


def other_order(m: Moment) -> bool | None:
    """Other order or other sequences: the same with sum abs(S_i) >= 0.1 sum abs d."""
    moved, part = displaced(m), m.now("engine:seq_shift_share")
    return None if moved is None or part is None else moved and part >= m.upper(0.1)


def end_dropped(m: Moment) -> bool | None:
    """End dropped: sum n_zero_tail > 5% of tokens and > 3 N/(1 - P0) (P0: share of zeros before the tails)."""
    tail, zero, tokens, n = (m.now(name) for name in ("n_zero_tail", "n_mu_zero", "n_tokens", "n_sequences"))
    if tail is None or zero is None or tokens is None or n is None:
        return None
    before = tokens - tail
    p0 = (zero - tail) / before if before > 0 else 0.0
    return tail > m.upper(0.05) * tokens and tail * (1 - p0) > m.upper(3) * n


def corrupt() -> Iterator[Clause]:
    """Yield the names of corruption, the first that holds, before zeros; hold 3 of 5."""
    named: list[tuple[str, Test]] = [
        ("sign", sign),
        ("probabilities", probabilities),
        ("unit", unit),
        ("shifted", shifted),
        ("order", other_order),
        ("end dropped", end_dropped),
        ("k3_excess", impossible_k3),
        ("invalid_fraction", level("invalid_fraction", 0.01)),
    ]
    for name, test in named:
        yield Clause(finding="corrupt_logprobs", name=name, condition=test, hold=(3, 5))
    yield Clause(finding="corrupt_logprobs", name="zeros", condition=zeros, hold=(3, 5), outside=zeros_of_row)


# the engines' agreement ---------------------------------------------------------------------------------------------

LEVELS = {"gap_pearson": 0.05, "gap_ppl": 0.01, "gap_k1": 0.05, "gap_k3": 0.05, "gap_log_ratio": 0.15}
FLOORS = {"gap_k1": 0.01, "gap_k3": 0.01, "gap_log_ratio": 0.03}


def other_weights(m: Moment) -> bool | None:
    """Pearson < 0.5 with kl_k1 > 0.5 x mean abs log-ratio."""
    pearson, k1, size = (m.now(f"engine:{name}") for name in ("prob_pearson", "kl_k1", "abs_log_ratio_mean"))
    if pearson is None or k1 is None or size is None:
        return None
    return pearson < m.lower(0.5) and k1 > m.upper(0.5) * size


def far_weights(m: Moment) -> bool | None:
    """kl_k1 > 1 with Pearson < 0.6 or unknown."""
    k1, pearson = m.now("engine:kl_k1"), m.now("engine:prob_pearson")
    return None if k1 is None else k1 > m.upper(1) and (pearson is None or pearson < m.lower(0.6))


def far_log_ratio(m: Moment) -> bool | None:
    """mean abs log-ratio > 1 where nothing else is known."""
    others = ("prob_pearson", "kl_k1", "kl_k3", "ppl_ratio")
    if any(m.now(f"engine:{name}") is not None for name in others):
        return None
    return above(m.now("gap_log_ratio"), m.upper(1))


def late_or_flipping(m: Moment) -> bool:
    """not while a known lag exceeds its usual, nor while router flips are known and high."""
    lag = m.now("lag*")
    usual = m.rows21to120("lag*", at_least=1)
    usual = float(np.median(m.all("lag*"))) if usual is None and lag is not None else usual
    flipping = bool(flips_with_replay(m) or flips_grew(m))
    return (lag is not None and usual is not None and lag > usual) or flipping


def flips_with_replay(m: Moment) -> bool | None:
    """`router_flip_rate` > 1e-3 where replay is declared."""
    if not m.run.config.get("router_replay"):
        return None
    return above(m.now("router_flip_rate"), m.upper(1e-3))


def flips_grew(m: Moment) -> bool | None:
    """flips > 3 b."""
    b = m.b("router_flip_rate")
    return None if b is None else above(m.now("router_flip_rate"), m.upper(3) * b)


def support(m: Moment) -> bool | None:
    """ratio_mean over 20 rows off 1 by > 0.005 and 4 se; Pearson >= 0.95, no zeros (section 2b)."""
    ratio, pearson = m.mean20("engine:ratio_mean", at_least=20), m.now("engine:prob_pearson")
    if ratio is None or pearson is None or m.now("engine:ratio_mean") is None:
        return None
    off, se = abs(ratio - 1), m.noise("engine:ratio_mean") / math.sqrt(20)
    return off > m.upper(0.005) and off > 4 * se and pearson >= 0.95 and not zeros(Moment(m.run, m.i))


def temperature(m: Moment) -> bool | None:
    """Over 20 rows the means of s1, s2: same sign, both >= 0.012, within a factor of 2; ... (section 2b)."""
    stems = ("logp_slope_q", "logp_slope_p", "logp_corr_q", "prob_pearson", "ratio_mean")
    means = [m.mean20(f"engine:{stem}", at_least=20) for stem in stems]
    if any(mean is None for mean in means) or any(m.now(f"engine:{stem}") is None for stem in stems):
        return None
    s1, s2, corr, pearson, ratio = (float(mean) for mean in means if mean is not None)
    same_sign = s1 * s2 > 0
    # both >= 0.012, within a factor of 2; abs mean corr(d, log q) >= 0.3; Pearson >= 0.95
    small, large = sorted((abs(s1), abs(s2)))
    slopes = same_sign and small >= m.upper(0.012) and large <= 2 * small
    # abs(ratio_mean - 1) < max(0.005, 4 se)
    se = m.noise("engine:ratio_mean") / math.sqrt(20)
    honest = abs(corr) >= m.upper(0.3) and pearson >= 0.95 and abs(ratio - 1) < max(0.005, 4 * se)
    if not (slopes and honest):
        return False
    n = min(len(m.last("engine:logp_slope_q", MEMORY)), len(m.last("engine:logp_slope_p", MEMORY)))
    slope = (m.last("engine:logp_slope_q", n) + m.last("engine:logp_slope_p", n)) / 2
    # the four 5-row means of (s1 + s2)/2 within a factor of 1.3
    four = [abs(float(np.mean(slope[n - 5 * k - 5 : n - 5 * k]))) for k in range(4)]
    steady = max(four) <= 1.3 * min(four)
    # and of the newest 100 rows at most 10 whose 5-row mean lies between 1/4 and 3/4 of the present value
    means5 = [float(np.mean(slope[t - 5 : t])) / float(np.mean(slope[n - 5 :])) for t in range(5, n + 1)][-100:]
    return steady and sum(1 / 4 < part < 3 / 4 for part in means5) <= 10


def steep(m: Moment) -> bool | None:
    """Return whether the slopes of the row itself are outside, for the onset."""
    s1, s2 = m.now("engine:logp_slope_q"), m.now("engine:logp_slope_p")
    return None if s1 is None or s2 is None else s1 * s2 > 0 and min(abs(s1), abs(s2)) >= 0.012


def beside_mismatch(m: Moment) -> bool:
    """Return whether `engine_mismatch` stands after the row."""
    return m.i in m.run.memory.get(("standing", "engine_mismatch"), ())


def known_gaps(m: Moment) -> dict[str, float]:
    """Return the distances of the row; the mean abs log-ratio only where k3 is unknown."""
    found = {name: value for name in LEVELS if (value := m.now(name)) is not None}
    if "gap_k3" in found:
        found.pop("gap_log_ratio", None)
    return found


def stale(m: Moment) -> bool | None:
    """lag > 0 and a distance above 3 x A's level."""
    lag, gaps = m.now("lag*"), known_gaps(m)
    if lag is None or not gaps:
        return None
    return lag > 0 and any(value > m.upper(3 * LEVELS[name]) for name, value in gaps.items())


def nothing_synced(m: Moment) -> bool | None:
    """or the lag grew by one in 5 rows running (nothing is synced)."""
    if m.now("lag*") is None:
        return None
    steps = np.diff(m.last("lag*", 6))
    return len(steps) == 5 and bool(np.all(np.abs(steps - 1) < 1e-9))


def staler(m: Moment) -> bool | None:
    """lag > its median of rows 21 to 120, and kl_k3 > 10 x its median over the same rows and > 0.002."""
    usual, usual_k3 = m.rows21to120("lag*"), m.rows21to120("engine:kl_k3")
    if usual is None or usual_k3 is None:
        return None
    k3, limit = m.now("engine:kl_k3"), max(m.upper(10) * usual_k3, m.upper(0.002))
    return every(above(m.now("lag*"), usual), above(k3, limit))


def gap_level(name: str) -> Test:
    """1 - Pearson > 0.05; abs(ppl_ratio - 1) > 0.01 beyond noise; abs(kl_k1), kl_k3 > 0.05; ..."""

    def test(m: Moment) -> bool | None:
        value = m.now(name)
        # mean abs log-ratio > 0.15 (only where k3 is unknown)
        if value is None or (name == "gap_log_ratio" and m.now("gap_k3") is not None):
            return None
        beyond = name != "gap_ppl" or value > 4 * m.noise("engine:ppl_ratio")
        return value > m.upper(LEVELS[name]) and beyond

    return test


def gap_change(name: str) -> Test:
    """a distance > 20 x b and > 1/5 of its level and > floor (k3, k1 0.01; abs log-ratio 0.03)."""

    def test(m: Moment) -> bool | None:
        b = m.b(name)
        least = max(LEVELS[name] / 5, FLOORS.get(name, 0.0))
        return None if b is None else above(m.now(name), max(m.upper(20) * b, m.upper(least)))

    return test


def large_gaps(m: Moment) -> bool | None:
    """share of tokens with abs(p - q) > 0.5 above 1e-3 over the newest 20 rows, and at least 20 such tokens."""
    if m.now("n_prob_diff_half") is None or m.now("n_tokens") is None:
        return None
    large, tokens = np.sum(m.last("n_prob_diff_half", 20)), np.sum(m.last("n_tokens", 20))
    return bool(large > m.upper(1e-3) * tokens and large >= m.upper(20))


def agreement() -> Iterator[Clause]:
    """Yield the clauses of the findings about the engines, in the order of section 2."""
    for name, weights in (("other", other_weights), ("far", far_weights), ("log-ratio", far_log_ratio)):
        yield Clause(finding="wrong_policy", name=name, condition=weights, hold=(3, 5), guard=late_or_flipping)
    for name, flips in (("replay", flips_with_replay), ("change", flips_grew)):
        change = ("router_flip_rate", 1) if name == "change" else None
        # beside `engine_mismatch`, which it explains
        yield Clause(finding="moe_routing", name=name, condition=flips, gate=beside_mismatch, change=change)
    yield Clause(
        finding="support_shift",
        name="ratio_mean",
        condition=support,
        hold=SELF_HELD,
        guard=lagging,
        outside=lambda m: above(abs((m.now("engine:ratio_mean") or 1.0) - 1), 0.005),
    )
    yield Clause(
        finding="temperature",
        name="slopes",
        condition=temperature,
        hold=SELF_HELD,
        guard=lagging,
        outside=steep,
    )
    yield Clause(finding="stale_rollouts", name="level", condition=stale)
    yield Clause(finding="stale_rollouts", name="nothing synced", condition=nothing_synced, hold=SELF_HELD)
    yield Clause(finding="stale_rollouts", name="change", condition=staler, hold=(3, 5), change=("engine:kl_k3", 1))
    for gap in LEVELS:
        yield Clause(finding="engine_mismatch", name=f"{gap} level", condition=gap_level(gap), guard=lagging)
        yield Clause(
            finding="engine_mismatch", name=f"{gap} change", condition=gap_change(gap), guard=lagging, change=(gap, 1)
        )
    yield Clause(
        finding="engine_mismatch",
        name="large gaps",
        condition=large_gaps,
        guard=lagging,
        outside=lambda m: above(share(m, "n_prob_diff_half"), 1e-3),
    )
