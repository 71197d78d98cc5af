"""Features of a run: signals that need its history, advanced by one step at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median

import msgspec
from msgspec import structs

from trmon.domain.collapse_risk.risk_inputs import InputHistory, Values, read_inputs, read_updates, scaled
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import RISK, RISK_SIGNALS, risk_signals
from trmon.domain.signals.reward_history import EMA_STEPS, FIRST_STEPS, RewardHistory, SmoothedSignal, moving_average
from trmon.domain.signals.windows import LARGEST, is_number


class GradientNoise(msgspec.Struct, frozen=True):
    """proxy1 and the bounds of proxy3 at the newest step; None where an input is missing."""

    signal_strength: float | None = None
    pure_noise_low: float | None = None
    pure_noise_high: float | None = None


def gradient_noise(numbers: Mapping[str, float], *, grad_norm: float) -> GradientNoise:
    """Return the noise of a step.

    Args: numbers: the bounds of proxy2, and `n_sequences`, N; grad_norm: before clipping.
    Source: [DRIFT]; verl's variance proxies; formulas, section 5.
    """
    if math.isnan(grad_norm):
        return GradientNoise()
    signal, others = grad_norm * grad_norm, numbers.get("n_sequences", 0.0) - 1.0
    powers = (numbers.get(f"proxy2_total_power_{end}", math.nan) for end in ("low", "high"))
    low, high = (None if math.isnan(power) or others <= 0 else max(0.0, power - signal) / others for power in powers)
    return GradientNoise(signal, low, high)


MIN_TOKENS = 2_000
DECAY = 0.9
"""The weight of a step falls by a tenth with each step after it; by less where batches are too small for that."""


class TemperatureSlope(msgspec.Struct, frozen=True, kw_only=True):
    """The token-weighted means of the two slopes and the correlation of the newest steps.

    Source: formulas, section 9, T.
    """

    tokens: float = 0.0
    slope_q: float = 0.0
    slope_p: float = 0.0
    corr: float = 0.0

    def with_step(self, *, n_tokens: float, slope_q: float, slope_p: float, corr: float) -> TemperatureSlope:
        """Return the means after a step; a step with a missing value is skipped."""
        if not all(map(is_number, (n_tokens, slope_q, slope_p, corr))) or n_tokens <= 0:
            return self
        tokens = max(DECAY * self.tokens, min(self.tokens, MIN_TOKENS)) + n_tokens
        new = n_tokens / tokens
        return TemperatureSlope(
            tokens=tokens,
            slope_q=self.slope_q + new * (slope_q - self.slope_q),
            slope_p=self.slope_p + new * (slope_p - self.slope_p),
            corr=self.corr + new * (corr - self.corr),
        )

    @property
    def slope(self) -> float:
        """The smaller slope, with its sign; 0 if the two disagree in sign, NaN with fewer than 2,000 tokens."""
        if self.tokens < MIN_TOKENS:
            return math.nan
        smaller = min(self.slope_q, self.slope_p, key=abs)
        return smaller if self.slope_q * self.slope_p > 0 else 0.0

    @property
    def correlation(self) -> float:
        """The correlation of the log-ratio with log q; NaN with fewer than 2,000 tokens."""
        return self.corr if self.tokens >= MIN_TOKENS else math.nan


BASELINE_STEPS = 60


class DriftGrowth(msgspec.Struct, frozen=True):
    """The moving average of kl_k3 over 20 steps, and its first 60 values. Source: formulas, sections 9 and 10."""

    average: float = 0.0
    first: tuple[float, ...] = ()

    def with_value(self, kl_k3: float) -> DriftGrowth:
        """Return the growth after one more step; NaN and infinity are skipped."""
        if not math.isfinite(kl_k3):
            return self
        kl_k3 = min(kl_k3, LARGEST)
        average = kl_k3 if not self.first else moving_average(self.average, kl_k3, steps=EMA_STEPS)
        return DriftGrowth(average, self.first if len(self.first) >= BASELINE_STEPS else (*self.first, kl_k3))

    @property
    def relative(self) -> float:
        """The moving average over the median of the first 60 values; NaN with fewer than 20, infinite over 0."""
        if len(self.first) < EMA_STEPS:
            return math.nan
        baseline = median(self.first)
        return self.average / baseline if baseline > 0 else math.inf


RECENT_STEPS = 20
MAX_NAMES = 256
ALWAYS_FINITE = frozenset(("loss", "grad_norm", "reward_mean"))
"""Scalars that are a number in every working step; others count once they have been finite."""


class NonFiniteSteps(msgspec.Struct, frozen=True):
    """Whether each of the newest 20 steps had a value that is not a number; `finite` names scalars that once were.

    A scalar that was never finite is a metric that the trainer does not measure.
    """

    recent: tuple[bool, ...] = ()
    finite: tuple[str, ...] = ()

    def with_step(self, scalars: Mapping[str, float], *, reward: float) -> NonFiniteSteps:
        """Return the record after a step."""
        bad = [name for name, value in scalars.items() if not is_number(value)]
        known = set(self.finite)
        is_bad = abs(reward) > LARGEST or any(name in ALWAYS_FINITE or name in known for name in bad)
        new = {name for name, value in scalars.items() if is_number(value)} - known
        finite = tuple(sorted(known | new)[:MAX_NAMES]) if new else self.finite
        return NonFiniteSteps((*self.recent, is_bad)[-RECENT_STEPS:], finite)

    @property
    def count(self) -> int:
        """The number of such steps among the newest 20."""
        return sum(self.recent)


ENGINE_PREFIXES = ("mismatch_", "total_")


class RunFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a run that its findings need; a step's numbers are its signals and the trainer's scalars.

    Source: formulas, sections 9 and 10.
    """

    reward: RewardHistory = RewardHistory()
    entropy: SmoothedSignal = SmoothedSignal()
    trainer_entropy: SmoothedSignal = SmoothedSignal()
    length: SmoothedSignal = SmoothedSignal()
    length_limit: SmoothedSignal = SmoothedSignal()
    reward_length: SmoothedSignal = SmoothedSignal()
    effective_signal: SmoothedSignal = SmoothedSignal()
    version_span: SmoothedSignal = SmoothedSignal()
    router_flips: SmoothedSignal = SmoothedSignal()
    drift: DriftGrowth = DriftGrowth()
    temperature: TemperatureSlope = TemperatureSlope()
    nonfinite: NonFiniteSteps = NonFiniteSteps()
    gradient: GradientNoise = GradientNoise()
    risk_inputs: InputHistory = InputHistory()

    def with_step(
        self, numbers: Mapping[str, float], *, scalars: Mapping[str, float], of_updates: tuple[float, ...] | None = ()
    ) -> RunFeatures:
        """Return the features after one more step.

        Args: numbers: the signals and scalars of the step by name; scalars: what the trainer sent, also under trmon's
        names; of_updates: what the updates of the step before say of the risk, in place of the step's own.
        """
        reward = _sent("reward_mean", signals=numbers, scalars=scalars)
        return RunFeatures(
            reward=self.reward.with_step(reward, numbers),
            entropy=self.entropy.with_value(numbers.get("sampled_entropy", math.nan)),
            trainer_entropy=self.trainer_entropy.with_value(_first_finite(numbers, scalars, "entropy")),
            length=self.length.with_value(
                _first_finite(numbers, scalars, "response_length_median", "response_length_mean")
            ),
            length_limit=self.length_limit.with_value(numbers.get("length_limit_share", math.nan)),
            reward_length=self.reward_length.with_value(numbers.get("reward_length_corr", math.nan)),
            effective_signal=self.effective_signal.with_value(numbers.get("effective_signal", math.nan)),
            version_span=self.version_span.with_value(numbers.get("version_span_max", math.nan)),
            router_flips=self.router_flips.with_value(numbers.get("router_flip_rate", math.nan)),
            drift=self.drift.with_value(_of_engines(numbers, "kl_k3")),
            temperature=_with_slopes(self.temperature, numbers),
            nonfinite=self.nonfinite.with_step(scalars, reward=reward),
            gradient=gradient_noise(numbers, grad_norm=_sent("grad_norm", signals=numbers, scalars=scalars)),
            risk_inputs=self.risk_inputs.with_step(_risk_values(numbers, scalars, of_updates)),
        )

    def signals(self) -> dict[str, float]:
        """Return the features of the newest step as signals; those that are not known are left out."""
        known = {name: value for name, value in self._named() if not math.isnan(value)}
        return known | risk_signals(self.risk_inputs, shipped_model())

    def _named(self) -> Iterator[tuple[str, float]]:
        reward, temperature = self.reward, self.temperature
        entropy = _telling(self.entropy, self.trainer_entropy)
        yield "reward_ema", reward.average if reward.n else math.nan
        yield "reward_peak", reward.peak if reward.n >= FIRST_STEPS else math.nan
        yield from zip(("reward_collapse", "reward_decline"), reward.falls, strict=True)
        yield "entropy_relative", entropy.relative
        yield "entropy_rise", entropy.rise
        yield "response_length_relative", self.length.relative
        yield "length_limit_ema", self.length_limit.average
        yield "length_limit_rise", self.length_limit.rise
        yield "reward_length_corr_ema", self.reward_length.average
        yield "effective_signal_relative", self.effective_signal.relative
        yield "version_span_rise", self.version_span.rise
        yield "router_flip_relative", self.router_flips.relative
        yield "kl_k3_ema", self.drift.average if self.drift.first else math.nan
        yield "kl_k3_relative", self.drift.relative
        yield "temperature_slope", temperature.slope
        yield "temperature_corr", temperature.correlation
        yield "nonfinite_steps", float(self.nonfinite.count)
        yield "proxy1_signal_strength", _or_nan(self.gradient.signal_strength)
        yield "proxy3_pure_noise_low", _or_nan(self.gradient.pure_noise_low)
        yield "proxy3_pure_noise_high", _or_nan(self.gradient.pure_noise_high)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


class FeatureState(msgspec.Struct, frozen=True, kw_only=True):
    """The features before and after the newest step, so that a later row or scalar of the step replaces its numbers.

    `updates` holds what the optimizer steps of the newest step say of the risk of collapse, empty if it had none, and
    `updates_before` that of the step before, which the rollout of the newest step is read with.
    """

    before: RunFeatures = RunFeatures()
    after: RunFeatures = RunFeatures()
    updates: tuple[float, ...] | None = None
    updates_before: tuple[float, ...] | None = None

    def with_row(
        self, numbers: Mapping[str, float], scalars: Mapping[str, float], *, begins_step: bool, is_rollout: bool
    ) -> FeatureState:
        """Return the state after a row of a new step, or of the newest one, that gauges show."""
        begun = (
            structs.replace(self, before=self.after, updates=(), updates_before=self.updates) if begins_step else self
        )
        of_updates = begun.updates_before if is_rollout else ()
        after = begun.before.with_step(numbers, scalars=scalars, of_updates=of_updates)
        return structs.replace(begun, after=after)

    def with_update(self, numbers: Mapping[str, float]) -> FeatureState:
        """Return the state after a row of an optimizer step that gauges do not show."""
        return structs.replace(self, updates=read_updates(numbers))


ENTROPY_FALL, ENTROPY_RISE = 0.2, 3.0
"""The limits of a fallen and of a risen entropy against its start. Source: formulas, section 10, S."""


def _telling(sampled: SmoothedSignal, sent: SmoothedSignal) -> SmoothedSignal:
    """Return the entropy that is nearer to a limit: that of the sampled log-probs, or the trainer's own.

    One that moves away from its start comes before one that does not, so that either alone can be a finding.
    """
    return sent if _nearness(sent) > _nearness(sampled) else sampled


def _nearness(entropy: SmoothedSignal) -> float:
    """Return how near an entropy is to its limit, 1 at it; below 0 if it does not move there, -1 if it has no ratio."""
    relative = entropy.relative
    if not 0.0 < relative < math.inf:
        return -1.0
    nearness = math.log(relative) / math.log(ENTROPY_FALL if relative < 1.0 else ENTROPY_RISE)
    moves_there = entropy.rise * math.log(relative) > 0.0
    return nearness if moves_there else -1.0 / (2.0 + nearness)


FEATURE_SIGNALS: tuple[str, ...] = (*(name for name, _ in RunFeatures()._named()), *RISK_SIGNALS)
"""The names of the features."""

SCALAR_FEATURES = frozenset(
    {
        *("reward_ema", "reward_peak", "reward_collapse", "reward_decline", "entropy_relative", "entropy_rise"),
        *("response_length_relative", "router_flip_relative", "nonfinite_steps", RISK),
        *("proxy1_signal_strength", "proxy3_pure_noise_low", "proxy3_pure_noise_high"),
    }
)
"""The features that may be computed from scalars of the trainer."""


RISK_SCALARS = ("reward_mean", "response_length_mean", "grad_norm", "lr")
"""Inputs of the risk that a trainer may send under another name."""


def _risk_values(
    numbers: Mapping[str, float], scalars: Mapping[str, float], of_updates: tuple[float, ...] | None
) -> Values:
    """Return the values of a step for the risk; the trainer's entropy stands in for that of the sampled log-probs."""
    named = {name: _sent(name, signals=numbers, scalars=scalars) for name in RISK_SCALARS}
    if "sampled_entropy" not in numbers:
        named["sampled_entropy"] = _first_finite(numbers, scalars, "entropy")
    return scaled(read_inputs({**numbers, **named}, of_updates=of_updates))


def _with_slopes(temperature: TemperatureSlope, numbers: Mapping[str, float]) -> TemperatureSlope:
    """Return the slopes after a step; engines that agree exactly have no slope, which counts as 0."""
    slopes = [_of_engines(numbers, name) for name in ("logp_slope_q", "logp_slope_p", "logp_corr_q")]
    slope_q, slope_p, corr = [0.0] * 3 if _of_engines(numbers, "kl_k2") == 0.0 else slopes
    n_tokens = numbers.get("n_tokens", math.nan)
    return temperature.with_step(n_tokens=n_tokens, slope_q=slope_q, slope_p=slope_p, corr=corr)


def _sent(name: str, *, signals: Mapping[str, float], scalars: Mapping[str, float]) -> float:
    measured = signals.get(name, math.nan)
    return scalars.get(name, math.nan) if math.isnan(measured) else measured


def _first_finite(numbers: Mapping[str, float], scalars: Mapping[str, float], *names: str) -> float:
    values = (_sent(name, signals=numbers, scalars=scalars) for name in names)
    return next((value for value in values if is_number(value)), math.nan)


def _of_engines(numbers: Mapping[str, float], stem: str) -> float:
    """Return a signal of the pair that compares the engines: mismatch, else total, else the staleness pair."""
    for prefix in (*ENGINE_PREFIXES, "staleness_"):
        if f"{prefix}kl_k3" in numbers:
            return numbers.get(prefix + stem, math.nan)
    return numbers.get(stem, math.nan)
