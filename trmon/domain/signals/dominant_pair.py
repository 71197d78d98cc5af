"""The pair with most of a batch's drift, and its lag, in words for an alert."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trmon_client.core.columns.schema import Pair

LAGS: Mapping[Pair, str] = {"mismatch": "engine_lag", "staleness": "staleness_lag", "total": "version_lag_max"}
"""The signal that holds the lag of a pair, in weight versions."""


def dominant_pair(signals: Mapping[str, float]) -> Pair | None:
    """Return the part of the drift with the largest kl_k3: mismatch or staleness, else total; None without a pair."""
    parts: tuple[Pair, ...] = ("mismatch", "staleness")
    known = {pair: signals.get(f"{pair}_kl_k3", math.nan) for pair in (*parts, "total")}
    found: list[Pair] = [pair for pair in parts if not math.isnan(known[pair])]
    if not found:
        return None if math.isnan(known["total"]) else "total"
    return max(found, key=lambda pair: known[pair])


def describe_drift(signals: Mapping[str, float]) -> str:
    """Return the dominant pair with its kl_k3 and its lag, such as "mismatch dominates (kl_k3 0.031, lag 0)"."""
    pair = dominant_pair(signals)
    if pair is None:
        return "no pair is known"
    lag = signals.get(LAGS[pair], math.nan)
    said = "lag unknown" if math.isnan(lag) else f"lag {lag:g}"
    verb = "is the only pair" if pair == "total" else "dominates"
    return f"{pair} {verb} (kl_k3 {signals[f'{pair}_kl_k3']:.3g}, {said})"
