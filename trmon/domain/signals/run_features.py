"""Features: of the drift in one batch, and of a run, whose history they need."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np
from msgspec import structs

from trmon.domain.collapse_risk.risk_inputs import InputHistory, read_inputs, read_updates, scaled
from trmon.domain.collapse_risk.risk_model import model_in_use
from trmon.domain.collapse_risk.risk_reading import RISK, RISK_SIGNALS, risk_signals
from trmon.domain.signals.windows import is_number
from trmon_client.core.bounds import engine_lag
from trmon_client.core.column_schema import Pair
from trmon_client.core.columns import Columns, SequenceMatrix
from trmon_client.core.signals import batch_signals

K3_FLOOR = 1e-6
K3_FACTOR = 10.0
STANDARD_ERRORS = 3.0


def k3_excess(sequences: SequenceMatrix, pair: Pair) -> float:
    """Return kl_k3 over the largest value that valid log-probs can show; above 1 they look corrupt.

    Returns: kl_k3 / (10 max(|kl_k1|, 3 sd(d)/sqrt(n), 1e-6)); NaN without a valid token.
    Source: formulas, section 9, A'.
    """
    sums = sequences.sums
    n = sums["n_tokens"]
    mean = sums[f"{pair}_sum_d"] / n
    standard_error = math.sqrt(_variance(sums, f"{pair}_sum_d", f"{pair}_sum_sq_d") / n)
    largest_valid = max(abs(mean), STANDARD_ERRORS * standard_error, K3_FLOOR)
    return sums[f"{pair}_sum_k3"] / n / (K3_FACTOR * largest_valid)


def staleness_lag(columns: Columns, *, version_lag: float) -> float:
    """Return the lag in weight versions between pi and pi_old: the whole lag minus the lag between the engines.

    Returns: versions, 0 if the trainer states none; NaN without a staleness pair.
    Source: formulas, section 9, B and G.
    """
    if "staleness" not in columns.pairs:
        return math.nan
    lag = version_lag - engine_lag(columns)
    return 0.0 if math.isnan(lag) else lag


def _variance(sums: Mapping[str, float], of: str, squares: str) -> float:
    n = sums["n_tokens"]
    mean = sums[of] / n
    return max(sums[squares] / n - mean * mean, 0.0)


@np.errstate(all="ignore")
def columns_signals(columns: Columns) -> dict[str, float]:
    """Return the batch signals and the drift features by name. Source: formulas, sections 5 and 9."""
    sequences = SequenceMatrix.of(columns)
    found = batch_signals.compute_of_sequences(sequences)
    return found | {f"{pair}_k3_excess": k3_excess(sequences, pair) for pair in columns.pairs}


LAGS: Mapping[Pair, str] = {"mismatch": "engine_lag", "staleness": "staleness_lag", "total": "version_lag_max"}
"""The signal that holds the lag of a pair, in weight versions."""


def describe_drift(signals: Mapping[str, float]) -> str:
    """Return the dominant pair with its kl_k3 and its lag, such as "mismatch dominates (kl_k3 0.031, lag 0)".

    It is the part of the drift with the largest kl_k3: mismatch or staleness, else total.
    """
    known = {pair: kl for pair in LAGS if not math.isnan(kl := signals.get(f"{pair}_kl_k3", math.nan))}
    if not known:
        return "no pair is known"
    pair = max(known, key=lambda one: (one != "total", known[one]))
    lag = signals.get(LAGS[pair], math.nan)
    said = "lag unknown" if math.isnan(lag) else f"lag {lag:g}"
    verb = "is the only pair" if pair == "total" else "dominates"
    return f"{pair} {verb} (kl_k3 {known[pair]:.3g}, {said})"


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


class RunFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a run that its findings need. Source: formulas, sections 9 and 10."""

    gradient: GradientNoise = GradientNoise()
    risk_inputs: InputHistory = InputHistory()

    def with_step(
        self, numbers: Mapping[str, float], *, scalars: Mapping[str, float], of_updates: tuple[float, ...] | None = ()
    ) -> RunFeatures:
        """Return the features after one more step.

        Args: numbers: the signals and scalars of the step by name; scalars: what the trainer sent, also under trmon's
        names; of_updates: what the updates of the step before say of the risk, in place of the step's own.
        """
        named = {name: _sent(name, signals=numbers, scalars=scalars) for name in RISK_SCALARS}
        if "sampled_entropy" not in numbers:  # The trainer's entropy stands in for that of the sampled log-probs.
            entropy = _sent("entropy", signals=numbers, scalars=scalars)
            named["sampled_entropy"] = entropy if is_number(entropy) else math.nan
        return RunFeatures(
            gradient=gradient_noise(numbers, grad_norm=named["grad_norm"]),
            risk_inputs=self.risk_inputs.with_step(scaled(read_inputs({**numbers, **named}, of_updates=of_updates))),
        )

    def signals(self) -> dict[str, float]:
        """Return the features of the newest step as signals; those that are not known are left out."""
        named = zip(GRADIENT_SIGNALS, structs.astuple(self.gradient), strict=True)
        known = {name: value for name, value in named if value is not None and not math.isnan(value)}
        return known | risk_signals(self.risk_inputs, model_in_use())


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


GRADIENT_SIGNALS = ("proxy1_signal_strength", "proxy3_pure_noise_low", "proxy3_pure_noise_high")
"""The noise of the gradient, in the order of its fields."""
FEATURE_SIGNALS: tuple[str, ...] = (*GRADIENT_SIGNALS, *RISK_SIGNALS)
SCALAR_FEATURES = frozenset((RISK, *GRADIENT_SIGNALS))
"""The features that may be computed from scalars of the trainer."""


RISK_SCALARS = ("reward_mean", "response_length_mean", "grad_norm", "lr")
"""Inputs of the risk that a trainer may send under another name."""


def _sent(name: str, *, signals: Mapping[str, float], scalars: Mapping[str, float]) -> float:
    measured = signals.get(name, math.nan)
    return scalars.get(name, math.nan) if math.isnan(measured) else measured
