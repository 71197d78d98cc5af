"""The demo's summary: what was detected, at which step, the alert's message, and how that compares with the reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trmon.lab.demo.calibration import CalibrationSummary, calibration_lines
from trmon.lab.demo.readings import RunReading
from trmon.lab.testbed.collapse import Collapse, find_collapse, smoothed


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStory:
    """The outcome of the demo.

    `first` is the first notification of the failing run's first alert; `onset` the collapse of its reward, None if
    the reward held; `false_alarms` the notifications of the healthy run.
    """

    ill: RunReading
    healthy: RunReading
    notes: tuple[dict[str, Any], ...]
    first: dict[str, Any] | None
    onset: Collapse | None
    false_alarms: tuple[dict[str, Any], ...]
    calibration: CalibrationSummary

    @property
    def went_well(self) -> bool:
        """Return True if the failing run raised an alert and the healthy one did not; the lead time is not judged."""
        return self.first is not None and not self.false_alarms


def tell_story(
    readings: dict[str, RunReading],
    notes: Sequence[dict[str, Any]],
    *,
    healthy: str,
    ill: str,
    calibration: CalibrationSummary,
) -> DemoStory:
    """Return the story of a healthy and a failing run from their last readings and the notifications received.

    Args: calibration: the calibration of the healthy run's bounds.
    """
    fired = [note for note in notes if note["status"] == "firing"]
    of_ill = sorted((note for note in fired if note["run"] == ill), key=lambda note: int(note["step"]))
    reading = readings[ill]
    return DemoStory(
        ill=reading,
        healthy=readings[healthy],
        notes=tuple(of_ill),
        first=of_ill[0] if of_ill else None,
        onset=find_collapse(reading.signals.get("reward_mean", ()), grad_norms=reading.signals.get("grad_norm", ())),
        false_alarms=tuple(note for note in fired if note["run"] == healthy),
        calibration=calibration,
    )


def story_lines(story: DemoStory, *, injection: str, onset_step: int) -> list[str]:
    """Return the story as lines of text."""
    return [
        f"What went wrong: from step {onset_step} on, the injection {injection!r} grew in the ill run.",
        *_detection(story),
        *_reward(story),
        _healthy(story),
        *calibration_lines(story.calibration, run="healthy"),
    ]


def _detection(story: DemoStory) -> list[str]:
    if story.first is None:
        return ["Detected: nothing. trmon raised no alert on the ill run."]
    lines = [f"Detected at step {story.first['step']}: {story.first['rule']} ({story.first['severity']})."]
    for note in story.notes:
        lines += [f"  step {note['step']:>3}  {note['summary']}", f"            do: {note['runbook']}"]
    return lines


def _reward(story: DemoStory) -> list[str]:
    averages = [value for value in smoothed(story.ill.signals.get("reward_mean", ())) if not math.isnan(value)]
    if not averages:
        return ["Reward of the ill run: too few steps to tell."]
    fall = f"from {max(averages):.2f} at its peak to {averages[-1]:.2f}"
    if story.onset is None:
        return [f"Its reward (EMA over 20 steps) went {fall}: no collapse within these steps."]
    collapsed = f"Its reward (EMA over 20 steps) collapsed at step {story.onset.step}, {fall}"
    if story.first is None:
        return [f"{collapsed}."]
    lead = story.onset.step - int(story.first["step"])
    return [f"{collapsed}: {abs(lead)} steps {'after' if lead > 0 else 'before'} the alert."]


def _healthy(story: DemoStory) -> str:
    if story.false_alarms:
        rules = ", ".join(sorted({note["rule"] for note in story.false_alarms}))
        return f"The healthy run was reported too, wrongly: {rules}."
    averages = smoothed(story.healthy.signals.get("reward_mean", ()))
    ending = f", its reward ended at {averages[-1]:.2f}" if averages else ""
    return f"The healthy run raised no alert{ending}."
