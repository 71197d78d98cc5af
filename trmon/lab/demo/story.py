"""The demo's summary: what was detected of each failing run, and that the healthy run stayed quiet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trmon.domain.analysis.collapse import smoothed
from trmon.lab.demo.calibration import CalibrationSummary, calibration_lines
from trmon.lab.demo.readings import RunReading
from trmon.lab.demo.run_story import RunStory, run_lines, tell_run
from trmon.lab.demo.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStory:
    """The outcome of the demo: its failing runs, and the healthy one with the messages that it raised."""

    failing: tuple[RunStory, ...]
    healthy: RunReading
    false_alarms: tuple[dict[str, Any], ...]
    calibration: CalibrationSummary

    @property
    def went_well(self) -> bool:
        """Return True if every failing run was reported with a cause, and the healthy one was not."""
        return all(run.went_well for run in self.failing) and not self.false_alarms


def tell_story(
    trainings: Sequence[Training],
    readings: Mapping[str, RunReading],
    messages: Sequence[dict[str, Any]],
    *,
    calibration: CalibrationSummary,
) -> DemoStory:
    """Return the story of the trainings, the first of them the healthy one, from their last readings.

    Args: messages: the alerts that the webhook received; calibration: that of the healthy run's bounds.
    """
    healthy, *failing = trainings
    fired = [message for message in messages if message["status"] == "firing"]
    return DemoStory(
        failing=tuple(tell_run(training, readings[training.name], fired) for training in failing),
        healthy=readings[healthy.name],
        false_alarms=tuple(message for message in fired if message["run"] == healthy.name),
        calibration=calibration,
    )


def story_lines(story: DemoStory) -> list[str]:
    """Return the story as lines of text."""
    told = [line for run in story.failing for line in run_lines(run)]
    return [*told, _healthy(story), *calibration_lines(story.calibration, run="healthy")]


def _healthy(story: DemoStory) -> str:
    if story.false_alarms:
        rules = ", ".join(sorted({message["rule"] for message in story.false_alarms}))
        return f"The healthy run was reported too, wrongly: {rules}."
    averages = smoothed(story.healthy.signals.get("reward_mean", ()))
    ending = f", its reward ended at {averages[-1]:.2f}" if averages else ""
    return f"The healthy run raised no alert{ending}."
