"""One run of a sweep: trained, reported by the real client to a spool, measured by the service's pipeline."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import msgspec

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import UpdateOutcome
from trmon_client.config.settings import resolve_settings
from trmon_client.monitor import Monitor
from trmon_research.sweep.labelled_updates import label_updates
from trmon_research.sweep.run_file import EVALUATION_COLUMNS, FORMAT, SIGNAL_COLUMNS, RunOutcome, RunRecord, encode_run
from trmon_research.sweep.spooled_signals import StepRows, spooled_steps
from trmon_research.testbed import train_experiment

PROJECT = "sweep"


class SweptRun(msgspec.Struct, frozen=True):
    """A finished run: its record and the bytes of its parquet file."""

    record: RunRecord
    file: bytes


def sweep_run(config: ExperimentConfig) -> SweptRun:
    """Train one configuration and return its file; a collapsed run ends once its onset is certain."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="trmon-sweep-") as folder:
        declared = msgspec.to_builtins(config)
        monitor = _spooling_monitor(config, Path(folder), declared=declared)
        outcomes, label = label_updates(train_experiment(config, monitor))
        monitor.close(timeout=None)
        steps = list(spooled_steps(Path(folder), config=declared))
    columns = _columns(steps, outcomes)
    rewards = columns["evaluated_reward"]
    outcome = RunOutcome(
        label=label,
        first_reward=rewards[0],
        peak_reward=max(rewards),
        last_reward=rewards[-1],
        seconds=round(time.perf_counter() - started, 1),
    )
    alerts = tuple(alert for step in steps for alert in step.alerts)
    record = RunRecord(format=FORMAT, config=config, outcome=outcome, alerts=alerts)
    return SweptRun(record, encode_run(record, columns))


def _spooling_monitor(config: ExperimentConfig, folder: Path, *, declared: dict[str, object]) -> Monitor:
    """Return the client's monitor, which no variable of this process's environment sends elsewhere."""
    given = {"project": PROJECT, "run": config.run_name, "config": declared, "spool_dir": folder}
    return Monitor(resolve_settings(given | {"rank": 0, "world_size": 1, "attempt": "a"}, environment={}))


def _columns(steps: list[StepRows], outcomes: list[UpdateOutcome]) -> dict[str, list[float]]:
    if [step.rollout.key.step for step in steps] != [outcome.update for outcome in outcomes]:
        raise RuntimeError(f"{len(outcomes)} updates were trained, and {len(steps)} were reported")
    columns = {name: [step.value(name) for step in steps] for name in SIGNAL_COLUMNS}
    evaluated = ([each.evaluated.reward for each in outcomes], [each.evaluated.exact for each in outcomes])
    columns |= dict(zip(EVALUATION_COLUMNS, evaluated, strict=True))
    return columns
