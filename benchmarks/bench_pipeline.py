"""Measures the pipeline: CPU time of `close_batch` a step of a recorded run; prints a table.

PYTHONPATH=. python benchmarks/bench_pipeline.py [checkout ...]

With checkouts of other versions, their times are taken in turn with this one's, and compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

STREAMS = ("rollouts alone", "rollouts and 4 updates")
STEPS = 260
"""The recording has 20 steps; repeated as often as the windows of all rules need."""
ROUNDS = 6
PASSES = 3
HERE = Path(__file__).resolve().parents[1]


def main() -> None:
    """Print the CPU ms a step of each checkout, and how many times that of the first it is."""
    checkouts = [Path(path).resolve() for path in sys.argv[1:]] or [HERE]
    rounds = [[_timed(checkout) for checkout in checkouts] for _ in range(ROUNDS)]
    table = Table("a step", "checkout", "CPU ms", "times the first", title=f"close_batch, {STEPS} steps")
    for at, stream in enumerate(STREAMS):
        times = [_milliseconds([each[which][at] for each in rounds]) for which in range(len(checkouts))]
        for checkout, taken in zip(checkouts, times, strict=True):
            table.add_row(stream, str(checkout), f"{taken:.3f}", f"{taken / times[0]:.2f}")
    Console().print(table)


def _milliseconds(passes: list[list[float]]) -> float:
    """Return the CPU ms a step, of each batch its least time in any pass: other work only lengthens it."""
    return 1000 * sum(map(min, zip(*passes, strict=True))) / STEPS


def _timed(checkout: Path) -> list[list[float]]:
    """Return the CPU seconds of each batch, by stream, measured in a process of its own."""
    paths = os.pathsep.join([str(checkout), str(checkout / "client")])
    timed = [sys.executable, "-c", "import bench_pipeline; bench_pipeline.print_times()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([paths, str(HERE / "benchmarks")])}
    printed = subprocess.run(timed, cwd=checkout, env=environment, check=True, capture_output=True, text=True).stdout
    return list(json.loads(printed))


def print_times() -> None:
    """Print the least CPU seconds of each batch of each stream, measured in this process."""
    messages = _messages()
    streams = [message for message in messages if message.update is None], messages
    passes = ([_seconds(stream) for _ in range(PASSES)] for stream in streams)
    print(json.dumps([list(map(min, zip(*each, strict=True))) for each in passes]))


def _messages() -> list[Any]:
    """Return the reports of the run, as its trainer sends them, with the trainer's scalars in those of rollouts."""
    from tests.domain.pipeline.closings import pass_context
    from tests.domain.trainer import report
    from tests.fixtures.recorded_runs import RecordedRun
    from tests.lab.recording import RecordingMonitor

    recorded, monitor = RecordedRun.load("healthy"), RecordingMonitor()
    for _ in recorded.replay(monitor):
        pass
    policy, messages = pass_context().policies.current.policy, []
    for step in range(STEPS):
        for call in monitor.calls:
            if call.step == step % recorded.n_steps:
                scalars = {**call.scalars, **monitor.scalars[call.step]} if call.update is None else {}
                columns = call.decision.columns
                messages.append(report(step, update=call.update, policy=policy, content=columns, scalars=scalars))
    return messages


def _seconds(messages: list[Any]) -> list[float]:
    """Return the CPU time of each batch."""
    from tests.domain.pipeline.closings import closing, pass_context
    from trmon.domain.pipeline.close_batch import close_batch
    from trmon.domain.pipeline.state import PipelineState

    context, state, times = pass_context(), PipelineState(), []
    for message in messages:
        batch = closing(message, pipeline_state=state, context=context)
        began = time.process_time()
        state = close_batch(batch).pipeline_state
        times.append(time.process_time() - began)
    return times


if __name__ == "__main__":
    main()
