"""The demo's summary: what was detected of each failing run, and that the healthy run stayed quiet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trmon.domain.alerts.alert import TransitionReason
from trmon.domain.analysis.collapse import Collapse, find_collapse, smoothed
from trmon.lab.demo.processes import Training
from trmon.lab.demo.readings import RunReading
from trmon.lab.grpo.injections import Onset

KL = "mismatch_kl_k3"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStory:
    """The outcome of a failing run: its messages in the order of their steps, and the collapse of its reward.

    The first message opens the run's incident; the later ones say that its cause changed or that it got worse.
    `onset` is None if the reward held.
    """

    training: Training
    reading: RunReading
    messages: tuple[dict[str, Any], ...]
    onset: Collapse | None

    @property
    def opening(self) -> dict[str, Any] | None:
        """The first message; None if nothing was said."""
        return self.messages[0] if self.messages else None

    @property
    def went_well(self) -> bool:
        """Return True if the run was reported with a cause; the lead time is not judged."""
        return self.opening is not None and self.opening["cause"] is not None


def tell_run(training: Training, reading: RunReading, fired: Sequence[dict[str, Any]]) -> RunStory:
    """Return the story of a run. Args: fired: the messages of firing alerts of any run, in any order."""
    own = [message for message in fired if message["run"] == training.name]
    rewards, norms = (reading.signals.get(name, ()) for name in ("reward_mean", "grad_norm"))
    return RunStory(
        training=training,
        reading=reading,
        messages=tuple(sorted(own, key=lambda message: int(message["step"]))),
        onset=find_collapse(rewards, grad_norms=norms),
    )


def run_lines(story: RunStory) -> list[str]:
    """Return the story of a run as lines of text."""
    training, values = story.training, story.reading.signals.get(KL, ())
    known = [value for value in values if not math.isnan(value)]
    injection = training.injection.value if training.injection else "none"
    drift = f"; the largest kl_k3 between its engines is {max(known):.2g}" if known else ""
    injected = f"The {training.name} run: from step {Onset().step} on, the injection {injection!r} grows{drift}."
    return [injected, *_messages(story), _reward(story)]


def _messages(story: RunStory) -> list[str]:
    if story.opening is None:
        return ["  Detected: nothing. trmon raised no alert on it."]
    opening, cause = story.opening, story.opening["cause"]
    finding = f"{opening['rule'] if cause is None else cause['title']} since step {opening['since_step']}"
    if cause is not None and cause["last_good_step"] is not None:
        finding += f", last good step {cause['last_good_step']}"
    lines = [f"  Detected at step {opening['step']} ({opening['severity']}): {finding}."]
    lines += [f"    {opening['summary']}", f"    do: {_remedy(opening)}"]
    for message in story.messages[1:]:
        reason, cause = message["reason"], message["cause"]
        if reason == TransitionReason.REVISED.value and cause is not None:
            reason = f"the cause is now {cause['title']}"
        lines.append(f"  Updated at step {message['step']} ({message['severity']}): {reason}")
        lines += [f"    {message['summary']}"]
        lines += [f"    do: {_remedy(message)}"] if _remedy(message) != _remedy(opening) else []
    return lines


def _remedy(message: dict[str, Any]) -> str:
    cause = message["cause"]
    return str(message["runbook"] if cause is None else cause["remedy"])


def _reward(story: RunStory) -> str:
    averages = [value for value in smoothed(story.reading.signals.get("reward_mean", ())) if not math.isnan(value)]
    if not averages:
        return "  Its reward: too few steps to tell."
    fall = f"from {max(averages):.2f} at its peak to {averages[-1]:.2f}"
    if story.onset is None:
        return f"  Its reward (EMA over 20 steps) went {fall}: no collapse within these steps."
    collapsed = f"  Its reward (EMA over 20 steps) collapsed at step {story.onset.step}, {fall}"
    if story.opening is None:
        return f"{collapsed}."
    lead = story.onset.step - int(story.opening["step"])
    if lead == 0:
        return f"{collapsed}: at the step of the alert."
    return f"{collapsed}: {abs(lead)} steps {'after' if lead > 0 else 'before'} the alert."


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStory:
    """The outcome of the demo: its failing runs, and the healthy one with the messages that it raised."""

    failing: tuple[RunStory, ...]
    healthy: RunReading
    false_alarms: tuple[dict[str, Any], ...]

    @property
    def went_well(self) -> bool:
        """Return True if every failing run was reported with a cause, and the healthy one was not."""
        return all(run.went_well for run in self.failing) and not self.false_alarms


def tell_story(
    trainings: Sequence[Training],
    readings: Mapping[str, RunReading],
    messages: Sequence[dict[str, Any]],
) -> DemoStory:
    """Return the story of the trainings, the first a healthy one. Args: messages: what the webhook received."""
    healthy, *failing = trainings
    fired = [message for message in messages if message["status"] == "firing"]
    return DemoStory(
        failing=tuple(tell_run(training, readings[training.name], fired) for training in failing),
        healthy=readings[healthy.name],
        false_alarms=tuple(message for message in fired if message["run"] == healthy.name),
    )


def story_lines(story: DemoStory) -> list[str]:
    """Return the story as lines of text."""
    return [*(line for run in story.failing for line in run_lines(run)), _healthy(story)]


def _healthy(story: DemoStory) -> str:
    if story.false_alarms:
        rules = ", ".join(sorted({message["rule"] for message in story.false_alarms}))
        return f"The healthy run was reported too, wrongly: {rules}."
    averages = smoothed(story.healthy.signals.get("reward_mean", ()))
    ending = f", its reward ended at {averages[-1]:.2f}" if averages else ""
    return f"The healthy run raised no alert{ending}."
