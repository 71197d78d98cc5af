"""Measures the pipeline: CPU time of `close_batch` a step of a recorded run, and of the judge's fold a row.

PYTHONPATH=. python benchmarks/bench_pipeline.py
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.domain.findings.healthy_run import healthy
from tests.domain.pipeline.closings import closing, pass_context
from tests.domain.trainer import report
from tests.fixtures.recorded_runs import RecordedRun
from tests.lab.recording import RecordingMonitor
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.pipeline.state import PipelineState
from trmon_client.core import wire

STEPS = 260
"""The recording has 20 steps; repeated as often as the windows of all rules need."""
PASSES = 18
ROWS, STEADY_ROWS, FOLDS = 1_000, 400, 10
"""Rows of a run that are folded, from which one they are timed, and how often the run is folded."""
OF_A_LOG = (
    *("loss", "grad_norm", "lr", "reward_mean", "reward_min", "reward_max", "entropy", "response_length_mean"),
    *("length_limit_share", "clip_fraction", "staleness_kl_k1", "step_seconds"),
)
"""The signals of a log of verl."""


def main() -> None:
    messages = _messages()
    table = Table("a step", "CPU ms", title=f"close_batch, {STEPS} steps")
    for stream, reports in (
        ("rollouts alone", [message for message in messages if message.update is None]),
        ("rollouts and 4 updates", messages),
    ):
        passes = [_seconds(reports) for _ in range(PASSES)]
        # Of each batch its least time in any pass: other work only lengthens it.
        table.add_row(stream, f"{1000 * sum(map(min, zip(*passes, strict=True))) / STEPS:.3f}")
    Console().print(table)
    rows = healthy(np.random.default_rng(0), ROWS)
    table = Table("a row", "signals", "CPU us", title=f"the judge's fold, rows {STEADY_ROWS} to {ROWS}")
    for kind, folded in (
        ("of a log", [{name: row[name] for name in OF_A_LOG} for row in rows]),
        ("of the service", rows),
    ):
        passes = [_fold_seconds(folded) for _ in range(FOLDS)]
        seconds = sum(map(min, zip(*passes, strict=True))) / (ROWS - STEADY_ROWS)
        table.add_row(kind, str(len(folded[0])), f"{1e6 * seconds:.0f}")
    Console().print(table)


def _fold_seconds(rows: Sequence[dict[str, float]]) -> list[float]:
    """Return the CPU seconds of each fold once the windows are full."""
    judge, state, times = Judge(builtin_catalogue()), JudgeState(), []
    for i, values in enumerate(rows):
        row = Row(place=Place(1, i), values=values, facts={})
        began = time.process_time()
        state = judge.fold(state, row)
        times.append(time.process_time() - began)
    return times[STEADY_ROWS:]


def _messages() -> list[wire.Report]:
    """Return the reports of the run, as its trainer sends them, with the trainer's scalars in those of rollouts."""
    recorded, monitor = RecordedRun.load("healthy"), RecordingMonitor()
    for _ in recorded.replay(monitor):
        pass
    policy, messages = pass_context().policies.current.policy, list[wire.Report]()
    for step in range(STEPS):
        for call in monitor.calls:
            if call.step == step % recorded.n_steps:
                scalars = {**call.scalars, **monitor.scalars[call.step]} if call.update is None else {}
                columns = call.decision.columns
                messages.append(report(step, update=call.update, policy=policy, content=columns, scalars=scalars))
    return messages


def _seconds(messages: Sequence[wire.Report]) -> list[float]:
    context, state, times = pass_context(), PipelineState(), []
    for message in messages:
        batch = closing(message, pipeline_state=state, context=context)
        began = time.process_time()
        state = close_batch(batch).pipeline_state
        times.append(time.process_time() - began)
    return times


if __name__ == "__main__":
    main()
