"""Readings and messages of the demo's runs, for the tests of its summary."""

from __future__ import annotations

from typing import Any

from trmon.lab.demo.readings import RunReading

N_STEPS = 220
FALLS_AT = 80


def reading(*, falls: bool) -> RunReading:
    """Return the last reading of a run whose rewards rise and then, on request, fall for good."""
    rewards = (0.5 + 0.004 * min(step, 50) - (0.6 if falls and step >= FALLS_AT else 0.0) for step in range(N_STEPS))
    signals = {"reward_mean": tuple(rewards), "mismatch_kl_k3": (0.01, 0.02, float("nan"))}
    return RunReading("finished", tuple(range(N_STEPS)), signals)


def message(step: int, *, run: str = "ill", title: str = "staleness", remedy: str = "sync") -> dict[str, Any]:
    """Return the firing alert of an incident as the receiver stores it."""
    return {
        "status": "firing",
        "reason": "a finding stands",
        "step": step,
        "since_step": step - 2,
        "run": run,
        "rule": "incident",
        "severity": "warn",
        "summary": "it drifts",
        "runbook": "",
        "cause": {"title": title, "last_good_step": step - 3, "remedy": remedy},
    }
