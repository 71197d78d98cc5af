"""The clauses about the update, the rollouts and the reward, written literally, in the order of the table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.domain.findings.clause import (
    DEAD_HOLD,
    SELF_HELD,
    Clause,
    Test,
    above,
    below,
    either,
    every,
    level,
    value_above,
)
from tests.domain.findings.clauses_of_engines import still_whole
from tests.domain.findings.measures import ALPHA20, MEMORY, Moment, mean, median, usual_values

# step_too_large -----------------------------------------------------------------------------------------------------


def staleness_jump(m: Moment) -> bool | None:
    """staleness kl_k3 > 20 x the median of the 50 known rows that end 5 rows back (from row 55) and > 3e-4."""
    values = m.all("staleness_kl_k3")
    if len(values) < 55:
        return None
    return bool(values[-1] > max(m.upper(20) * median(values[-55:-5]), m.upper(3e-4)))


def settled(m: Moment) -> list[float]:
    """Return staleness kl_k3 without the rows in which lr rises (rows before lr stopped rising left out)."""
    key = ("settled", m.run.baseline_starts[m.i])
    if key not in m.run.memory:
        m.run.memory[key] = {}
    kept = m.run.memory[key]
    for row in m.rows("staleness_kl_k3"):
        if row not in kept:
            lr = m.run.moments[row].last("lr", 2) if row >= m.run.baseline_starts[m.i] else np.array([])
            kept[row] = len(lr) < 2 or lr[1] <= lr[0]
    return [value for row, value in zip(m.rows("staleness_kl_k3"), m.all("staleness_kl_k3"), strict=True) if kept[row]]


def is_settled(m: Moment) -> bool:
    """Whether lr does not rise in this row."""
    lr = m.last("lr", 2)
    return len(lr) < 2 or bool(lr[1] <= lr[0])


def staleness_growth(m: Moment) -> bool | None:
    """or > 50 x the median of rows 21 to 120 (from row 41; rows before lr stopped rising left out) and > 1e-3."""
    values = settled(m)
    usual = usual_values(values[20:120]) if is_settled(m) else []
    return bool(values[-1] > max(m.upper(50) * median(usual), m.upper(1e-3))) if len(usual) > 20 else None


def spike(m: Moment) -> bool | None:
    """grad_norm > 10 x the median of the last 50 rows with signal (> 1e-3 of its peak, 20 of them at least)."""
    values = m.last("grad_norm", MEMORY)
    usual = float(np.quantile(values, 0.9, method="higher"))
    before = values[:-1][values[:-1] > 1e-3 * usual][-50:]
    return bool(values[-1] > m.upper(10) * median(before)) if len(before) >= 20 else None


def harm(m: Moment) -> bool:
    """the spikes only with fall >= 0.3 within 20 rows, or entropy off by x1.5."""
    # median of the newest 5 against the 5 that are 20 rows older
    off = False
    if m.count("entropy*") >= 25:
        new, old, beyond = m.median_change("entropy*", m.last("entropy*", 25)[:5])
        off = beyond and min(new, old) > 0 and max(new, old) > 1.5 * min(new, old)
    return m.greatest_fall() >= 0.3 or off


def step_too_large() -> Iterator[Clause]:
    """Yield the clauses of step_too_large; hold 3 of 5, or 3 of 20 where the table says so."""
    clause, k3, k1, of = partial(Clause, finding="step_too_large"), "staleness_kl_k3", "staleness_kl_k1", "grad_norm"
    late = value_above("staleness_lag", 0)  # Staleness kl_k3 at lag 0.
    yield clause(name="kl_k3", of=k3, condition=level(k3, 0.05), hold=(3, 20), guard=late)
    yield clause(name="ppo_kl", of=k1, condition=level(k1, 0.1), hold=(3, 5))
    yield clause(name=of, of=of, condition=level(of, 1e4), hold=(3, 5))
    yield clause(name="kl_k3_jump", of=k3, condition=staleness_jump, hold=(3, 5), change=1)
    yield clause(name="kl_k3_growth", of=k3, condition=staleness_growth, hold=(3, 5), change=1)
    yield clause(name="spikes", of=of, condition=spike, hold=(3, 20), only_if=harm, change=1)
    # one gradient spike (info)
    yield Clause(finding="gradient_spike", name="spike", of=of, condition=spike, hold=SELF_HELD, change=1)


# reference_kl, cut_at_limit, no_learning_signal ---------------------------------------------------------------------


def mean_above(quantity: str, limit: float) -> Test:
    """Return the test of the mean of 20 rows (10 at the start) above a limit."""
    return lambda m: above(m.mean20(quantity), m.upper(limit))


def far_from_reference(m: Moment) -> bool | None:
    """mean of 20 rows (10 at the start) without the largest > 3 nats a token."""
    values = m.last("reference*", 20)
    return above(float(np.sort(values)[:-1].mean()), m.upper(3.0)) if len(values) >= 10 else None


def cut(m: Moment) -> bool | None:
    """mean truncated share of 20 rows (10 at the start) > 0.5; not of responses shorter than 32."""
    size = m.now("response_length_mean")
    return every(mean_above("length_limit_share", 0.5)(m), size is None or size >= m.upper(32))


def no_end_tokens(m: Moment) -> bool | None:
    """no end tokens at all (`val/num_eos_tokens` = 0), over 20 rows (10 at the start)."""
    mean = m.mean20("eos_tokens")
    return None if mean is None else mean == 0


def same_length(m: Moment) -> bool | None:
    """without a share: the same mean length (>= 32) in 18 of 20 rows while loss or grad_norm has > 10 values."""
    lengths = m.last("response_length_mean", 20)
    if m.count("length_limit_share") or m.count("eos_tokens"):
        return False
    if len(lengths) < 20:
        return None
    same = bool(max(np.unique(lengths, return_counts=True)[1]) >= m.upper(18))
    varied = [
        above(len(np.unique(values)), m.upper(10)) if len(values := m.last(name, 20)) else None
        for name in ("loss", "grad_norm")
    ]
    return every(same, bool(lengths[-1] >= m.upper(32)), either(*varied))


def repeated(m: Moment) -> bool:
    """Whether the row has the length of the row before or after, for the onset."""
    at, values = m.count("response_length_mean") - 1, m.run.series("response_length_mean").values
    return any(
        0 <= other < len(values) and values[other] == m.now("response_length_mean") for other in (at - 1, at + 1)
    )


def cut_more(m: Moment) -> bool | None:
    """mean truncated share > 0.2, > 2 b and rising beyond noise."""
    of = "length_limit_share"
    mean, b, rise = m.mean20(of), m.b(of), m.ema_beyond_noise(of)
    return every(above(mean, m.upper(0.2)), above(mean, None if b is None else m.upper(2) * b), above(rise, 0))


def no_advantages(m: Moment) -> bool | None:
    """all advantages 0."""
    return m.now("advantage_max") == 0 and m.now("advantage_min") in (0, None)


def no_gradient(m: Moment) -> bool | None:
    """grad_norm exactly 0 or <= 1e-4 x the 90% quantile of its last 200."""
    values = m.last("grad_norm", MEMORY)
    return bool(values[-1] == 0 or values[-1] <= m.lower(1e-4) * np.quantile(values, 0.9, method="higher"))


def at_floor(m: Moment) -> bool | None:
    """or r <= min(r_lo, 0)."""
    value = m.now("reward_mean")
    return None if value is None else value <= min(m.quantiles()[0], 0) + 1e-9


def equal_rewards(m: Moment) -> bool | None:
    """reward_std <= 1e-6: in float32 equal rewards deviate by 6e-8 of their size."""
    value = m.now("reward_std")
    return None if value is None else value <= m.lower(1e-6)


def limits() -> Iterator[Clause]:
    """Yield the clauses of reference_kl, cut_at_limit and no_learning_signal."""
    # mean of 20 rows without the largest (10 at the start) > 3 nats a token; not for sums over answers
    for find, name, of, condition, limit in (
        ("reference_kl", "level", "reference*", far_from_reference, 3.0),
        # share of groups of equal reward: mean of 20 rows (10 at the start) > 0.9
        ("no_learning_signal", "groups", "zero_variance_groups", mean_above("zero_variance_groups", 0.9), 0.9),
    ):
        outside = value_above(of, limit)
        yield Clause(finding=find, name=name, of=of, condition=condition, hold=SELF_HELD, outside=outside)
    clause = partial(Clause, finding="cut_at_limit", hold=SELF_HELD)
    cut_share, ends = "length_limit_share", "eos_tokens"
    outside = value_above(cut_share, 0.5)
    yield clause(name="share", of=cut_share, condition=cut, only_if=still_whole, outside=outside)
    yield clause(name="no_end", of=ends, condition=no_end_tokens, outside=lambda m: m.now(ends) == 0)
    yield clause(name="constant", of="response_length_mean", condition=same_length, outside=repeated)
    yield clause(name="growth", of=cut_share, condition=cut_more, only_if=still_whole, change=1)
    clause, tokens = partial(Clause, finding="no_learning_signal", hold=DEAD_HOLD), "n_tokens"
    yield clause(name="reward_std", of="reward_std", condition=equal_rewards)
    yield clause(name="advantages", of="advantage_max", condition=no_advantages)
    yield clause(name="gradient", of="grad_norm", condition=no_gradient)
    yield clause(name="reward", of="reward_mean", condition=at_floor)
    # nothing trains
    yield clause(name="mask", of=tokens, condition=lambda m: m.now(tokens) <= 0, hold=(20, 20))


# lengths and entropy ------------------------------------------------------------------------------------------------


def grew(m: Moment, quantity: str, factor: float) -> bool | None:
    """Return whether the median of 5 is beyond noise a multiple of the older one; None if too few are known."""
    found = m.growth(quantity)
    return None if found is None else found[2] and found[0] > 0 and found[0] > m.upper(factor) * found[1]


def hacking(m: Moment) -> bool | None:
    """corr(reward, length) > 0.5 and growth > 1.2."""
    return every(above(m.now("reward_length_corr"), m.upper(0.5)), grew(m, "response_length_mean", 1.2))


KLS = ("gap_k3", "gap_k1", "gap_log_ratio", "staleness_kl_k1", "staleness_kl_k3")


def surge(m: Moment) -> bool | None:
    """growth > 1.2, and one of ..."""
    cut = m.growth("length_limit_share")
    companion = either(
        *(grew(m, name, 2) for name in KLS),  # KL of a pair x2
        every(grew(m, "reference*", 2), above(m.now("reference*"), m.upper(0.1))),  # to the reference x2 and > 0.1
        every(grew(m, "clip_fraction", 2), above(m.now("clip_fraction"), m.upper(0.1))),  # clip_fraction x2 and > 0.1
        None if cut is None else cut[2] and cut[0] - cut[1] > m.upper(0.2),  # truncated share + 0.2
        grew(m, "engine:drift_spread", 2),  # drift_spread doubled
    )
    return every(grew(m, "response_length_mean", 1.2), companion)


def times_b(quantity: str, factor: float, least: float = 0.0) -> Test:
    """Return the test of a value above a multiple of b and above a limit."""

    def test(m: Moment) -> bool | None:
        b, value = m.b(quantity), m.now(quantity)
        return every(above(value, None if b is None else m.upper(factor) * b), above(value, m.upper(least)))

    return test


def ema_times_b(quantity: str, factor: float, least: float = 0.0) -> Test:
    """Return the test of an EMA above a multiple of b, above a limit and beyond noise."""

    def test(m: Moment) -> bool | None:
        b, ema, rise = m.b(quantity), m.ema(quantity), m.ema_beyond_noise(quantity)
        far = above(ema, None if b is None else m.upper(factor) * b)
        return every(far, above(rise, 0), above(ema, m.upper(least)))

    return test


def ema_below_b(quantity: str, factor: float) -> Test:
    """Return the test of an EMA below a share of b and beyond noise."""

    def test(m: Moment) -> bool | None:
        b, ema, rise = m.b(quantity), m.ema(quantity), m.ema_beyond_noise(quantity)
        return every(below(ema, None if b is None else m.lower(factor) * b), below(rise, 0))

    return test


def fallen(least: float, of: str = "reward_mean") -> Test:
    """Return the test of fall at or above a limit."""

    def test(m: Moment) -> bool | None:
        fall = m.fall(of)
        return None if fall is None else fall >= m.upper(least)

    return test


def five_nats(m: Moment) -> bool | None:
    """> 5 nats a token (a logged value above 15 is a sum over an answer: no such level)."""
    value = m.now("entropy*")
    return None if value is None else m.upper(5) < value <= m.lower(15)


def far_below_b(m: Moment) -> bool | None:
    """< 0.02 b, the average of 20 rows."""
    b = m.b("entropy*")
    return below(m.ema("entropy*"), None if b is None else m.lower(0.02) * b)


def low(m: Moment) -> bool | None:
    """Whether the row itself is < 0.02 b, for the onset."""
    return below_b(m, "entropy*", 0.02)


def entropy_fell(m: Moment) -> bool | None:
    """EMA < 0.2 b, and the mean of 20 rows < 0.8 x that of 50 rows before or fall >= 0.5."""
    values = m.all("entropy*")
    sinks = None
    if len(values) >= 70:
        sinks = mean(values[-20:]) < m.lower(0.8) * mean(values[-70:-50])
    return every(ema_below_b("entropy*", 0.2)(m), either(sinks, fallen(0.5)(m)))


def doubled_beside_fall(m: Moment) -> bool | None:
    """Return whether the entropy doubled and the reward fell by half."""
    return every(ema_times_b("entropy*", 2)(m), fallen(0.5)(m))


def entropy_grows(m: Moment) -> bool | None:
    """EMA > 1.25 b beyond noise, and the mean of 20 rows > 1.25 x that of 50 rows before, with fall >= 0.5."""
    values = m.all("entropy*")
    rises = None
    if len(values) >= 70:
        rises = mean(values[-20:]) > m.upper(1.25) * mean(values[-70:-50])
    return every(ema_times_b("entropy*", 1.25)(m), rises, fallen(0.5)(m))


def entropy_leaps(m: Moment) -> bool | None:
    """Entropy up by x1.5 (the median of the newest 5 against the 5 that are 20 rows older), > 1.25 b, fall >= 0.5."""
    b, up = m.b("entropy*"), None
    if m.count("entropy*") >= 25:
        new, old, _ = m.median_change("entropy*", m.last("entropy*", 25)[:5])
        beyond = abs(new - old) > 4 * m.noise("entropy*") * 1.2533 * math.sqrt(2 / 5)  # what it is, not a limit
        factor = (max(new, old) / min(new, old) if min(new, old) > 0 else None) if beyond else 1.0
        up = above(factor, m.upper(1.5))
    high = above(m.now("entropy*"), None if b is None else m.upper(1.25) * b)
    return every(up, high, fallen(0.5)(m))


def excused(m: Moment) -> bool:
    """not rising, not at top (an unknown top guards nothing)."""
    return m.rising() or m.at_top() is True


def not_above_start(m: Moment) -> bool:
    """The reward's average is not above b beyond noise, as far as known; or it has fallen, by 0.5."""
    rise, fall = m.ema_beyond_noise("reward_mean"), m.fall()
    return rise is None or rise <= 1e-12 or (fall is not None and fall >= 0.5)


def course() -> Iterator[Clause]:
    """Yield the clauses of the length and entropy findings and of clip_saturation."""
    of = "response_length_mean"
    yield Clause(finding="length_hacking", name="growth", of=of, condition=hacking, hold=(10, 20), change=1)
    # growth > 4 needs none
    for name, growth in (("beside_drift", surge), ("fast", lambda m: grew(m, "response_length_mean", 4))):
        yield Clause(finding="length_surge", name=name, of=of, condition=growth, guard=lambda m: m.rising(), change=1)
    find, of, hold = "entropy_explosion", "entropy*", (3, 5)
    yield Clause(finding=find, name="level", of=of, condition=five_nats, hold=hold)
    # against the run's own start, and so with the onset of a change
    for name, condition in (("far", times_b(of, 20)), ("high", times_b(of, 5, 3.0))):
        yield Clause(finding=find, name=name, of=of, condition=condition, hold=hold, change=1)
    rising = {
        "growth": ema_times_b(of, 3),
        "beside_fall": doubled_beside_fall,
        "growing": entropy_grows,
        "leap": entropy_leaps,
    }
    for name, condition in rising.items():
        yield Clause(finding=find, name=name, of=of, condition=condition, hold=hold, guard=excused, change=1)
    find = "entropy_collapse"
    yield Clause(finding=find, name="level", of=of, condition=far_below_b, hold=hold, guard=excused, outside=low)
    yield Clause(finding=find, name="fall", of=of, condition=entropy_fell, hold=hold, guard=excused, change=-1)
    find, of = "length_collapse", "response_length_mean"
    shorter = ema_below_b(of, 0.5)
    begins = not_above_start
    yield Clause(finding=find, name="fall", of=of, condition=shorter, guard=excused, only_if=begins, change=-1)
    # clip_fraction > 0.2 and up by half
    find, of = "clip_saturation", "clip_fraction"
    yield Clause(finding=find, name="growth", of=of, condition=times_b(of, 1.5, 0.2), hold=(10, 20), change=1)


# variance and drift -------------------------------------------------------------------------------------------------


def engine_spread(m: Moment) -> bool | None:
    """its EMA over 20 rows > 3 x the median of its first 20 rows, 32 sequences or more, ...

    ... and kl_k3 above 1/5 of its level.
    """
    first, ema = m.all("engine:drift_spread")[:20], m.ema("engine:drift_spread")
    usual = m.upper(3) * median(first) if len(first) == 20 else None
    return every(above(ema, usual), above(m.now("engine:kl_k3"), m.upper(0.05 / 5)), many_sequences(m))


def staleness_spread(m: Moment) -> bool | None:
    """... (staleness: rows 21 to 120), ... (staleness: > 3e-4)."""
    usual, ema = m.rows21to120("staleness_drift_spread"), m.ema("staleness_drift_spread")
    wide = above(ema, None if usual is None else m.upper(3) * usual)
    return every(wide, above(m.now("staleness_kl_k3"), m.upper(3e-4)), many_sequences(m))


def many_sequences(m: Moment) -> bool | None:
    """32 sequences or more; not asked where their number is not known."""
    n = m.now("n_sequences")
    return n is None or n >= m.upper(32)


def drift() -> Iterator[Clause]:
    """Yield the clauses of variance_blowup and moderate_drift; hold 5 of 10."""
    find, chi2, ess = "variance_blowup", "any:chi2_token", "any:ess_token"
    # ess_token < 0.5 or chi2_token > 1
    yield Clause(finding=find, name="ess", of=ess, condition=lambda m: below(m.now(ess), m.lower(0.5)))
    yield Clause(finding=find, name="chi2", of=chi2, condition=level(chi2, 1))
    yield Clause(finding="moderate_drift", name="chi2", of=chi2, condition=level(chi2, 0.3))
    yield Clause(finding=find, name="spread", of="engine:drift_spread", condition=engine_spread, change=1)
    yield Clause(finding=find, name="update_spread", of="staleness_drift_spread", condition=staleness_spread, change=1)
    of, k3 = "grad_variance", "engine:kl_k3"
    yield Clause(finding=find, name="gradient", of=of, condition=ema_times_b(of, 2), change=1)
    # k3 EMA > 20 b and > 0.05 (*drift growing*)
    yield Clause(finding=find, name="drift_growing", of=k3, condition=ema_times_b(k3, 20, 0.05), change=1)


# evaluations and the reward -----------------------------------------------------------------------------------------


def overoptimised(m: Moment) -> bool | None:
    """evaluation 20% (of its range so far) below its peak in 2 running, while e20 is 2 se above that at the peak.

    And by more than 4 s of the evaluations.
    """
    evaluations = m.last("eval_reward", MEMORY)
    peak, top, low = int(np.argmax(evaluations)), float(np.max(evaluations)), float(np.min(evaluations))
    row = m.rows("eval_reward")[-len(evaluations) :][peak]
    down, reward, before = top - evaluations[-1], m.ema("reward_mean"), m.run.moments[row].ema("reward_mean")
    above_peak = None if before is None else before + m.upper(2) * m.se(ALPHA20)
    lower = top > low and down >= m.upper(0.2) * (top - low) and down > m.upper(4) * m.noise("eval_reward")
    return every(bool(lower), above(reward, above_peak))


def learnt_nothing(m: Moment) -> bool | None:
    """r at r_lo within noise for 50 rows, and not fallen there."""
    values, fall = m.last("reward_mean", 50), m.fall("reward_mean")
    if fall is not None and fall >= 0.5:
        return False
    if len(values) < 50:
        return None
    return math.fsum(values) / 50 - m.quantiles()[0] <= m.lower(4) * m.noise("reward_mean") / math.sqrt(50)


def reward() -> Iterator[Clause]:
    """Yield the clauses of overoptimisation, of the reward findings and of what is only info."""
    clause, of = partial(Clause, is_split=True), "eval_reward"
    yield clause(finding="overoptimisation", name="evaluation", of=of, condition=overoptimised, hold=(2, 2))
    # on the main evaluation: 3 running
    find = "reward_decline"
    yield clause(finding=find, name="evaluation", of=of, condition=fallen(0.5, of), hold=(3, 3))
    # fall >= 0.85, 3 rows; fall >= 0.5, 20 rows
    of = "reward_mean"
    yield clause(finding=find, name="fall", of=of, condition=fallen(0.5), hold=(20, 20))
    yield clause(finding="reward_collapse", name="fall", of=of, condition=fallen(0.85), hold=(3, 3))
    yield Clause(finding="not_learning", name="floor", of=of, condition=learnt_nothing, hold=SELF_HELD)
    # info only: weaker signal (`effective_signal` < 0.5 b), duplicate prompts (< 0.5 b), step time > 3 b and > 1 s
    for find, of in (("weak_learning_signal", "effective_signal"), ("duplicate_prompts", "distinct_prompt_share")):
        yield Clause(finding=find, name="fall", of=of, condition=partial(below_b, quantity=of, factor=0.5), change=-1)
    of = "step_seconds"
    yield Clause(finding="slow_steps", name="growth", of=of, condition=times_b(of, 3, 1.0), change=1)


def below_b(m: Moment, quantity: str, factor: float) -> bool | None:
    """Return whether a value is below a share of b."""
    b = m.b(quantity)
    return below(m.now(quantity), None if b is None else m.lower(factor) * b)


def training() -> Iterator[Clause]:
    """Yield the clauses from step_too_large on, in the order of section 2."""
    yield from step_too_large()
    yield from limits()
    yield from course()
    yield from drift()
    yield from reward()
