"""The clauses about the update, the rollouts and the reward, written literally, in the order of the table."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tests.domain.findings.clauses_of_engines import (
    DEAD_HOLD,
    SELF_HELD,
    Clause,
    Test,
    above,
    at_top,
    every,
    level,
    rising_or_at_top,
)
from tests.domain.findings.measures import ALPHA20, MEMORY, Moment

# step_too_large -----------------------------------------------------------------------------------------------------


def staleness_level(m: Moment) -> bool | None:
    """staleness kl_k3 at lag 0 > 0.05."""
    if m.now("lag*") != 0:
        return None
    return above(m.now("staleness_kl_k3"), m.upper(0.05))


def staleness_jump(m: Moment) -> bool | None:
    """staleness kl_k3 > 20 x the median of the 50 known rows that end 5 rows back (from row 55) and > 3e-4."""
    values = m.all("staleness_kl_k3")
    if m.now("staleness_kl_k3") is None or len(values) < 55:
        return None
    usual = float(np.median(values[-55:-5]))
    return bool(values[-1] > max(m.upper(20) * usual, m.upper(3e-4)))


def staleness_growth(m: Moment) -> bool | None:
    """or > 50 x the median of rows 21 to 120 (from row 41; rows before lr stopped rising left out) and > 1e-3."""
    series, n = m.run.series("staleness_kl_k3"), m.count("staleness_kl_k3")
    if m.now("staleness_kl_k3") is None or n < 41:
        return None
    lr, rows = m.all("lr"), m.run.series("lr").rows
    warm = next((rows[k - 1] for k in range(1, len(lr)) if lr[k] <= lr[k - 1]), m.i + 1 if len(lr) > 1 else 0)
    usual = [series.values[k] for k in range(20, min(n, 120)) if series.rows[k] >= warm]
    if not usual:
        return None
    return bool(series.values[n - 1] > max(m.upper(50) * float(np.median(usual)), m.upper(1e-3)))


def spike(m: Moment) -> bool | None:
    """grad_norm > 10 x the median of the last 50 rows with signal (> 1e-3 of its peak, 20 of them at least)."""
    value, before = m.now("grad_norm"), m.all("grad_norm")[:-1]
    if value is None or len(before) < 20:
        return None
    with_signal = before[before > 1e-3 * np.maximum.accumulate(before)][-50:]
    return bool(value > m.upper(10) * np.median(with_signal)) if len(with_signal) >= 20 else None


def harm(m: Moment) -> bool:
    """the spikes only with fall >= 0.3 within 20 rows, or entropy off by x1.5."""
    # median of the newest 5 against the 5 that are 20 rows older
    medians = m.median_change("entropy*", m.last("entropy*", 25)[:5] if m.count("entropy*") >= 25 else np.array([]))
    off = medians is not None and max(medians) > 1.5 * min(medians)
    return m.greatest_fall(20) >= 0.3 or off


def step_too_large() -> Iterator[Clause]:
    """Yield the clauses of step_too_large; hold 3 of 5, or 3 of 20 where the table says so."""
    find = "step_too_large"
    yield Clause(finding=find, name="staleness level", condition=staleness_level, hold=(3, 20))
    yield Clause(finding=find, name="ppo_kl", condition=level("staleness_kl_k1", 0.1), hold=(3, 5))
    yield Clause(finding=find, name="grad_norm", condition=level("grad_norm", 1e4), hold=(3, 5))
    change = ("staleness_kl_k3", 1)
    yield Clause(finding=find, name="staleness jump", condition=staleness_jump, hold=(3, 5), change=change)
    yield Clause(finding=find, name="staleness growth", condition=staleness_growth, hold=(3, 5), change=change)
    yield Clause(finding=find, name="spikes", condition=spike, hold=(3, 20), evidence=harm, change=("grad_norm", 1))
    # one gradient spike (info)
    yield Clause(finding="gradient_spike", name="spike", condition=spike, hold=SELF_HELD, change=("grad_norm", 1))


# reference_kl, cut_at_limit, no_learning_signal ---------------------------------------------------------------------


def mean_above(quantity: str, limit: float) -> Test:
    """Return the test of the mean of 20 rows (10 at the start) above a limit."""
    return lambda m: None if m.now(quantity) is None else above(m.mean20(quantity), m.upper(limit))


def no_end_tokens(m: Moment) -> bool | None:
    """no end tokens at all (`val/num_eos_tokens` = 0), over 20 rows (10 at the start)."""
    mean = m.mean20("eos_tokens")
    return None if m.now("eos_tokens") is None or mean is None else mean == 0


def same_length(m: Moment) -> bool | None:
    """without a share: the same mean length (>= 32) in 18 of 20 rows while loss or grad_norm has > 10 values."""
    lengths = m.last("response_length_mean", 20)
    if m.count("length_limit_share") or m.now("response_length_mean") is None or len(lengths) < 20:
        return None
    values, counts = np.unique(lengths, return_counts=True)
    varied = max(len(np.unique(m.last(name, 20))) for name in ("loss", "grad_norm")) > 10
    return bool(np.max(counts) >= 18 and values[np.argmax(counts)] >= 32 and varied)


def cut_more(m: Moment) -> bool | None:
    """mean truncated share > 0.2, > 2 b and rising beyond noise."""
    mean, b, rise = m.mean20("length_limit_share"), m.b("length_limit_share"), m.ema_beyond_noise("length_limit_share")
    if m.now("length_limit_share") is None or mean is None or b is None or rise is None:
        return None
    return mean > m.upper(0.2) and mean > m.upper(2) * b and rise > 0


def no_advantages(m: Moment) -> bool | None:
    """all advantages 0."""
    most, least = m.now("advantage_max"), m.now("advantage_min")
    return None if most is None or least is None else most == 0 and least == 0


def no_gradient(m: Moment) -> bool | None:
    """grad_norm exactly 0 or <= 1e-4 x the 90% quantile of its last 200."""
    value = m.now("grad_norm")
    if value is None:
        return None
    return bool(value == 0 or value <= m.lower(1e-4) * np.quantile(m.last("grad_norm", MEMORY), 0.9))


def at_floor(m: Moment) -> bool | None:
    """or r <= min(r_lo, 0)."""
    value = m.now("reward_mean")
    return None if value is None else value <= min(m.quantiles()[0], 0)


def equal_rewards(m: Moment) -> bool | None:
    """reward_std <= 1e-9."""
    value = m.now("reward_std")
    return None if value is None else value <= m.lower(1e-9)


def dead() -> Iterator[Clause]:
    """Yield the clauses of no_learning_signal, not at its top, and the same at the top: `solved` (info)."""
    signs: list[tuple[str, Test]] = [
        ("reward_std", equal_rewards),
        ("advantages", no_advantages),
        ("grad_norm", no_gradient),
        ("floor", at_floor),
    ]
    for find, gate in (("no_learning_signal", lambda m: not at_top(m)), ("solved", at_top)):
        # share of groups of equal reward: mean of 20 rows (10 at the start) > 0.9
        yield Clause(
            finding=find,
            name="equal groups",
            condition=mean_above("zero_variance_groups", 0.9),
            hold=SELF_HELD,
            gate=gate,
            outside=lambda m: above(m.now("zero_variance_groups"), 0.9),
        )
        for name, test in signs:
            yield Clause(finding=find, name=name, condition=test, hold=DEAD_HOLD, gate=gate)


def limits() -> Iterator[Clause]:
    """Yield the clauses of reference_kl, cut_at_limit and no_learning_signal."""
    # mean of 20 rows (10 at the start) > 3 nats a token; not for sums over answers
    yield Clause(
        finding="reference_kl",
        name="level",
        condition=mean_above("reference*", 3),
        hold=SELF_HELD,
        outside=lambda m: above(m.now("reference*"), 3),
    )
    cut, share = "cut_at_limit", "length_limit_share"
    yield Clause(
        finding=cut,
        name="level",
        condition=mean_above(share, 0.5),
        hold=SELF_HELD,
        outside=lambda m: above(m.now(share), 0.5),
    )
    yield Clause(
        finding=cut,
        name="no end tokens",
        condition=no_end_tokens,
        hold=SELF_HELD,
        outside=lambda m: None if (value := m.now("eos_tokens")) is None else value == 0,
    )
    yield Clause(finding=cut, name="same length", condition=same_length, hold=SELF_HELD, outside=of_same_length)
    yield Clause(finding=cut, name="change", condition=cut_more, hold=SELF_HELD, change=(share, 1))
    yield from dead()


def of_same_length(m: Moment) -> bool | None:
    """Return whether the row has the length of the row before, for the onset."""
    value, newest = m.now("response_length_mean"), m.last("response_length_mean", 2)
    return None if value is None else len(newest) == 2 and newest[0] == value


# lengths and entropy ------------------------------------------------------------------------------------------------


def ratio(pair: tuple[float, float] | None) -> float | None:
    """Return new over old; None if unknown or over 0."""
    return None if pair is None or pair[1] <= 0 else pair[0] / pair[1]


def hacking(m: Moment) -> bool | None:
    """corr(reward, length) > 0.5 and growth > 1.2."""
    corr, growth = m.now("reward_length_corr"), ratio(m.growth("length*"))
    return every(above(corr, m.upper(0.5)), above(growth, m.upper(1.2)))


SPREADS = tuple(f"{pair}_drift_spread" for pair in ("mismatch", "total", "staleness"))
KLS = tuple(f"{pair}_kl_k3" for pair in ("mismatch", "total", "staleness"))


def more(m: Moment, quantity: str, least: float = 0.0) -> bool:
    """Return whether a quantity doubled (over the same rows as the growth of lengths) and is above a limit."""
    pair = m.growth(quantity)
    return pair is not None and pair[0] > m.upper(2) * pair[1] and pair[0] > m.upper(least)


def surge(m: Moment) -> bool | None:
    """growth > 1.2, and one of ...; growth > 4 needs none."""
    growth = ratio(m.growth("length*"))
    if m.now("length*") is None or growth is None:
        return None
    cut = m.growth("length_limit_share")
    companion = (
        any(more(m, name) for name in KLS)  # KL of a pair x2
        or more(m, "reference*", 0.1)  # KL to the reference x2 and > 0.1
        or more(m, "clip_fraction", 0.1)  # clip_fraction x2 and > 0.1
        or (cut is not None and cut[0] - cut[1] > m.upper(0.2))  # truncated share + 0.2
        or any(more(m, name) for name in SPREADS)  # drift_spread doubled
    )
    return growth > m.upper(1.2) and (companion or growth > m.upper(4))


def times_b(quantity: str, factor: float, least: float = 0.0) -> Test:
    """Return the test of a row's value above a multiple of b and above a limit."""

    def test(m: Moment) -> bool | None:
        b = m.b(quantity)
        return None if b is None else above(m.now(quantity), max(m.upper(factor) * b, m.upper(least)))

    return test


def ema_times_b(quantity: str, factor: float, least: float = 0.0) -> Test:
    """Return the test of an EMA above a multiple of b, above a limit and beyond noise."""

    def test(m: Moment) -> bool | None:
        b, ema, rise = m.b(quantity), m.ema(quantity), m.ema_beyond_noise(quantity)
        if m.now(quantity) is None or b is None or ema is None or rise is None:
            return None
        return rise > 0 and ema > max(m.upper(factor) * b, m.upper(least))

    return test


def ema_below_b(quantity: str, factor: float) -> Test:
    """Return the test of an EMA below a share of b and beyond noise."""

    def test(m: Moment) -> bool | None:
        b, ema, rise = m.b(quantity), m.ema(quantity), m.ema_beyond_noise(quantity)
        if m.now(quantity) is None or b is None or ema is None or rise is None:
            return None
        return rise < 0 and ema < m.lower(factor) * b

    return test


def falling(m: Moment, least: float) -> bool:
    """Return whether fall is at least a limit; an unknown fall is none."""
    fall = m.fall()
    return fall is not None and fall >= m.upper(least)


def five_nats(m: Moment) -> bool | None:
    """> 5 nats a token (a logged value above 15 is a sum over an answer: no such level)."""
    value = m.now("entropy*")
    return None if value is None or value > 15 else value > m.upper(5)


def far_below_b(m: Moment) -> bool | None:
    """< 0.02 b."""
    value, b = m.now("entropy*"), m.b("entropy*")
    return None if value is None or b is None else value < m.lower(0.02) * b


def entropy_fell(m: Moment) -> bool | None:
    """EMA < 0.2 b, and the mean of 20 rows < 0.8 x that of 50 rows before or fall >= 0.5."""
    low, values = ema_below_b("entropy*", 0.2)(m), m.all("entropy*")
    before = float(np.mean(values[-70:-50])) if len(values) >= 70 else None
    sinks = before is not None and float(np.mean(values[-20:])) < m.lower(0.8) * before
    return None if low is None else low and (sinks or falling(m, 0.5))


def course() -> Iterator[Clause]:
    """Yield the clauses of the length and entropy findings and of clip_saturation."""
    yield Clause(finding="length_hacking", name="change", condition=hacking, hold=(10, 20), change=("length*", 1))
    yield Clause(
        finding="length_surge",
        name="growth",
        condition=surge,
        guard=lambda m: m.rising(),
        change=("length*", 1),
    )
    find, hold, up, guard = "entropy_explosion", (3, 5), ("entropy*", 1), rising_or_at_top
    yield Clause(finding=find, name="5 nats", condition=five_nats, hold=hold)
    yield Clause(finding=find, name="20 b", condition=times_b("entropy*", 20), hold=hold)
    yield Clause(finding=find, name="5 b", condition=times_b("entropy*", 5, 3.0), hold=hold)
    change = ema_times_b("entropy*", 3)
    yield Clause(finding=find, name="change", condition=change, hold=hold, guard=guard, change=up)
    with_fall: Test = lambda m: every(ema_times_b("entropy*", 2)(m), falling(m, 0.5))  # noqa: E731
    yield Clause(finding=find, name="change with fall", condition=with_fall, hold=hold, guard=guard, change=up)
    find, down = "entropy_collapse", ("entropy*", -1)
    yield Clause(finding=find, name="level", condition=far_below_b, hold=hold, guard=guard)
    yield Clause(finding=find, name="change", condition=entropy_fell, hold=hold, guard=guard, change=down)
    yield Clause(
        finding="length_collapse",
        name="change",
        condition=ema_below_b("length*", 0.5),
        guard=guard,
        change=("length*", -1),
    )
    # clip_fraction > 0.2 and up by half
    yield Clause(
        finding="clip_saturation",
        name="change",
        condition=clipped_more,
        hold=(10, 20),
        change=("clip_fraction", 1),
    )


def clipped_more(m: Moment) -> bool | None:
    """clip_fraction > 0.2 and up by half."""
    return times_b("clip_fraction", 1.5, 0.2)(m)


# variance and drift -------------------------------------------------------------------------------------------------


def wide_weights(m: Moment) -> bool | None:
    """ess_token < 0.5 or chi2_token > 1."""
    ess, chi2 = m.now("any:ess_token"), m.now("any:chi2_token")
    known = [*([] if ess is None else [ess < m.lower(0.5)]), *([] if chi2 is None else [chi2 > m.upper(1)])]
    return any(known) if known else None


def spread(pair: str) -> Test:
    """its EMA over 20 rows > 3 x the median of its first 20 rows (staleness: rows 21 to 120), 32 sequences or more.

    and kl_k3 above 1/5 of its level (staleness: > 3e-4).
    """
    quantity = "staleness_drift_spread" if pair == "staleness" else "engine:drift_spread"

    def test(m: Moment) -> bool | None:
        first, ema, n = m.all(quantity)[:20], m.ema(quantity), m.now("n_sequences")
        usual = (
            m.rows21to120(quantity) if pair == "staleness" else float(np.median(first)) if len(first) == 20 else None
        )
        k3 = m.now("staleness_kl_k3" if pair == "staleness" else "engine:kl_k3")
        if m.now(quantity) is None or usual is None or ema is None or n is None or k3 is None:
            return None
        least = 3e-4 if pair == "staleness" else 0.05 / 5
        return ema > m.upper(3) * usual and n >= 32 and k3 > m.upper(least)

    return test


def drift() -> Iterator[Clause]:
    """Yield the clauses of variance_blowup and moderate_drift; hold 5 of 10."""
    yield Clause(finding="variance_blowup", name="level", condition=wide_weights)
    yield Clause(finding="moderate_drift", name="level", condition=level("any:chi2_token", 0.3))
    for pair, quantity in (("engine", "engine:drift_spread"), ("staleness", "staleness_drift_spread")):
        yield Clause(finding="moderate_drift", name=f"{pair} spread", condition=spread(pair), change=(quantity, 1))
    yield Clause(
        finding="variance_blowup",
        name="grad_variance",
        condition=ema_times_b("grad_variance", 2),
        change=("grad_variance", 1),
    )
    # k3 EMA > 20 b and > 0.05 (*drift growing*)
    yield Clause(
        finding="moderate_drift",
        name="drift growing",
        condition=ema_times_b("any:kl_k3", 20, 0.05),
        change=("any:kl_k3", 1),
    )


# evaluations and the reward -----------------------------------------------------------------------------------------


def overoptimised(m: Moment) -> bool | None:
    """evaluation 20% (of its range so far) below its peak in 2 running, while e20 is 2 se above that at the peak."""
    evaluations, series = m.all("eval_reward"), m.run.series("eval_reward")
    if m.now("eval_reward") is None or len(evaluations) < 3:
        return None
    peak, top = int(np.argmax(evaluations)), float(np.max(evaluations))
    limit = top - m.upper(0.2) * (top - float(np.min(evaluations)))
    e20, before = m.ema("reward_mean"), Moment(m.run, series.rows[peak]).ema("reward_mean")
    if e20 is None or before is None:
        return None
    lower = top > float(np.min(evaluations)) and bool(np.all(evaluations[-2:] <= limit))
    return lower and e20 > before + 2 * m.se(ALPHA20)


def fallen(least: float, of: str) -> Test:
    """Return the test of fall at or above a limit."""

    def test(m: Moment) -> bool | None:
        fall = m.fall(of)
        return None if m.now(of) is None or fall is None else fall >= m.upper(least)

    return test


def learnt_nothing(m: Moment) -> bool | None:
    """r at r_lo within noise for 50 rows."""
    values = m.last("reward_mean", 50)
    if m.now("reward_mean") is None or len(values) < 50:
        return None
    return float(np.mean(values)) - m.quantiles()[0] <= 4 * m.noise("reward_mean") / math.sqrt(50)


def reward() -> Iterator[Clause]:
    """Yield the clauses of overoptimisation, of the reward findings and of what is only info."""
    yield Clause(
        finding="overoptimisation",
        name="evaluation",
        condition=overoptimised,
        hold=SELF_HELD,
        change=("eval_reward", -1),
    )
    for find, least, hold in (("reward_collapse", 0.85, (3, 3)), ("reward_decline", 0.5, (20, 20))):
        # fall >= 0.85, 3 rows; fall >= 0.5, 20 rows
        yield Clause(finding=find, name="fall", condition=fallen(least, "reward_mean"), hold=hold, split="reward_mean")
        # on the main evaluation: 3 running
        yield Clause(
            finding=find, name="evaluation", condition=fallen(least, "eval_reward"), hold=(3, 3), split="eval_reward"
        )
    yield Clause(finding="not_learning", name="floor", condition=learnt_nothing, hold=SELF_HELD)
    # info only: weaker signal (`effective_signal` < 0.5 b), step time > 3 b
    yield Clause(
        finding="weaker_signal",
        name="effective_signal",
        condition=lambda m: below_b(m, "effective_signal", 0.5),
        change=("effective_signal", -1),
    )
    yield Clause(
        finding="step_time", name="step_seconds", condition=times_b("step_seconds", 3), change=("step_seconds", 1)
    )


def below_b(m: Moment, quantity: str, factor: float) -> bool | None:
    """Return whether the row's value is below a share of b."""
    value, b = m.now(quantity), m.b(quantity)
    return None if value is None or b is None else value < m.lower(factor) * b


def training() -> Iterator[Clause]:
    """Yield the clauses from step_too_large on, in the order of section 2."""
    yield from step_too_large()
    yield from limits()
    yield from course()
    yield from drift()
    yield from reward()
