"""What lists of runs show of each: the recent course of its reward and its KL, its mask rate and its risk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trmon.domain.collapse_risk.risk_model import model_in_use
from trmon.domain.collapse_risk.risk_reading import RiskReading, read_risk
from trmon.domain.findings.judge import JudgeState
from trmon.domain.findings.memory import SignalMemory
from trmon_client.core.column_schema import PRIMARY_ORDER
from trmon_client.core.wire.messages import decodable

POINTS = 48
DIGITS = 4
"""Significant digits: enough for such a small chart, and 500 sparklines are sent in one response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A signal from its first to its last step in at most 48 points, None if unknown."""

    first_step: int
    last_step: int
    values: tuple[float | None, ...]


@decodable
@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The newest values of a run, each None while it is unknown; the lines are of the judged rows of its attempt."""

    reward: Sparkline | None = None
    kl: Sparkline | None = None
    mask_rate: float | None = None
    collapse_risk: RiskReading | None = None


def summary_of(signals: Mapping[str, float], judged: JudgeState) -> RunSummary:
    """Return the summary of a run. Args: signals: of its newest gauge row; judged: its rows so far."""
    kl = (judged.signals[name] for pair in PRIMARY_ORDER if (name := f"{pair}_kl_k3") in judged.signals)
    mask_rate = signals.get("mask_rate")
    return RunSummary(
        reward=sparkline_of(judged.reward.signal, judged),
        kl=sparkline_of(next(kl, SignalMemory()), judged),
        mask_rate=mask_rate if mask_rate == mask_rate else None,
        collapse_risk=read_risk(signals, model_in_use()),
    )


def sparkline_of(memory: SignalMemory, judged: JudgeState) -> Sparkline | None:
    """Return means of equally many of the newest 200 rows of the newest attempt; None if the signal has no value."""
    places = [place for place in judged.places if place.attempt == judged.places[-1].attempt]
    rows, values = np.asarray(memory.rows) - (judged.rows - len(places)), memory.array()
    rows, values = rows[rows >= 0], values[rows >= 0]
    if not len(rows):
        return None
    points = min(POINTS, len(places))
    at = rows * points // len(places)
    sums = np.bincount(at, weights=values, minlength=points).tolist()
    counts = np.bincount(at, minlength=points).tolist()
    means = (float(f"{total / n:.{DIGITS}g}") if n else None for total, n in zip(sums, counts, strict=True))
    return Sparkline(first_step=places[0].step, last_step=places[-1].step, values=tuple(means))
