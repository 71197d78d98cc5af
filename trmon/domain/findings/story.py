"""The story of an illness: the signals, limits and steps that show where a run broke."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from trmon.domain.findings.verdict import Found, Judgement
from trmon.domain.severity import Severity

REWARD = "reward_mean"
LOG_FROM_RATIO = 100.0


def spans_decades(least: float, most: float) -> bool:
    """Whether a chart of values from one to the other has a logarithmic scale: all positive, over two decades."""
    return least > 0 and most / least > LOG_FROM_RATIO


class Strip(msgspec.Struct, frozen=True, array_like=True):
    """A signal of a story, and the limits that it crossed."""

    signal: str
    limits: tuple[float, ...]


class Story(msgspec.Struct, frozen=True, array_like=True):
    """What a picture of an illness shows: `interval` are the steps in which it began, `step` the newest one."""

    run_id: int
    attempt_id: int
    title: str
    severity: Severity
    strips: tuple[Strip, ...]
    interval: tuple[int, int]
    began: int
    step: int


def story_of(judgement: Judgement, *, run_id: int, title: str, signals: Collection[str]) -> Story | None:
    """Return the story of the finding that leads: the reward, and the signal to look at, of those that the run has.

    None without a finding, where one only predicts, and without a signal.
    """
    lead, since, interval = judgement.lead, judgement.since, judgement.interval
    if lead is None or since is None or interval is None:
        return None
    named = (lead.chart, *(one.signal for one in lead.evidence))
    evidence = next((name for name in named if name in signals and name != REWARD), None)
    shown = [name for name in (REWARD, evidence) if name is not None and name in signals]
    if not shown:
        return None
    return Story(
        run_id=run_id,
        attempt_id=judgement.place.attempt,
        title=title,
        severity=lead.severity,
        strips=tuple(Strip(name, _limits(lead, name)) for name in shown),
        interval=interval,
        began=since.step,
        step=judgement.place.step,
    )


def _limits(found: Found, signal: str) -> tuple[float, ...]:
    return tuple(dict.fromkeys(one.limit for one in found.evidence if one.signal == signal and one.is_on_scale))
