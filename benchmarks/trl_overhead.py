"""Measures what trmon costs a GRPOTrainer, with the service up, down, slow and failing; prints a Markdown table.

PYTHONPATH=. TRMON_SERVICE=.venv/bin/trmon .venv-trl/bin/python benchmarks/trl_overhead.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from benchmarks.bench_scalars import SlowServer
from tests.client.server import Answer, Peer
from tests.fixtures.ports import free_port
from tests.peers.trl import tiny
from trmon_client.integrations.trl import attach

SEQUENCES, LENGTH, STEPS = 16, 512, 5
"""Of one optimizer step: completions, and the longest of them; steps of a training, of which the first is left out."""
ALONE = "alone"
HOOKED = (
    "_generate_and_score_completions",
    "_calculate_rewards",
    "_compute_loss",
    "_get_per_token_logps_and_entropies",
    "log",
)


@dataclass
class Measured:
    """Of each optimizer step, seconds: wall and CPU time, those in the wrappers, CPU time of the client's threads."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    hook_wall: list[float] = field(default_factory=list)
    hook_cpu: list[float] = field(default_factory=list)
    threads: list[float] = field(default_factory=list)


class StepClock(TrainerCallback):
    """Reads the clocks when optimizer steps begin and end."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._hook_wall = self._hook_cpu = 0.0
        self._began = self._now()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = self._now()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note the differences."""
        for times, end, begin in zip(vars(self._measured).values(), self._now(), self._began, strict=True):
            times.append(end - begin)

    def _now(self) -> tuple[float, ...]:
        return time.perf_counter(), time.process_time(), self._hook_wall, self._hook_cpu, client_seconds()

    def clock(self, trainer: Any, name: str, *, sign: int) -> None:
        """Add or subtract the time of a method: that of its wrapper is the whole less the wrapped."""
        method = getattr(trainer, name)

        def clocked(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                self._hook_wall += sign * (time.perf_counter() - wall)
                self._hook_cpu += sign * (time.thread_time() - cpu)

        # The attachment checks the names of the parameters.
        clocked.__wrapped__ = method  # type: ignore[attr-defined]
        setattr(trainer, name, clocked)


def client_seconds() -> float:
    """Return the CPU time of the client's threads, which share the trainer's process."""
    ours = [thread.native_id for thread in threading.enumerate() if thread.name.startswith("trmon")]
    paths = [Path(f"/proc/self/task/{native_id}/schedstat") for native_id in ours]
    return sum(int(path.read_text().split()[0]) for path in paths if path.exists()) / 1e9


@contextmanager
def real_service() -> Iterator[str]:
    """Run `trmon serve` over a new database."""
    command = [os.environ.get("TRMON_SERVICE", ".venv/bin/trmon"), "serve", "--port", "0", "--data-dir"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*command, folder], stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("trmon_url=").strip()
        process.terminate()


def services() -> dict[str, AbstractContextManager[Any]]:
    """Return the service in each state: its URL, or a server that has one."""
    return {
        ALONE: nullcontext(""),
        "up": real_service(),
        "down": nullcontext(f"http://127.0.0.1:{free_port()}"),
        "3 s a request": SlowServer(),
        "answers 500": Peer(otherwise=Answer(500)),
    }


def train(url: str, measured: Measured) -> None:
    """Train for some steps, with trmon attached if there is a URL; add the times of all but the first."""
    new = Measured()
    with tempfile.TemporaryDirectory() as folder:
        policy = tiny.model(Path(folder), hidden_size=64, intermediate_size=128, max_position_embeddings=LENGTH + 8)
        given = {"per_device_train_batch_size": SEQUENCES, "num_generations": 4, "max_steps": STEPS}
        given |= {"max_completion_length": LENGTH, "generation_kwargs": {"suppress_tokens": [1]}}
        trainer = tiny.grpo(Path(folder), policy=policy, sampler=tiny.noisy, corrects=True, **given)
        clock = StepClock(new)
        trainer.add_callback(clock)
        if url:
            for name in HOOKED:
                clock.clock(trainer, name, sign=-1)
            attach(
                trainer, project="bench", run=f"run-{time.monotonic_ns()}", url=url, spool_dir=Path(folder) / "spool"
            )
            for name in HOOKED:
                clock.clock(trainer, name, sign=1)
        trainer.train()
    for times, added in zip(vars(measured).values(), vars(new).values(), strict=True):
        times += added[1:]


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    before = os.getloadavg()[0]
    measured = {name: Measured() for name in services()}
    for _ in range(rounds):
        for name, service in services().items():
            with service as server:
                train(server if isinstance(server, str) else server.url, measured[name])
    print(
        f"{SEQUENCES} completions of {LENGTH} tokens a step; 1 thread for torch; {rounds} rounds of {STEPS} steps each,"
    )
    print(f"load of the machine {before:.1f} before and {os.getloadavg()[0]:.1f} after\n")
    print("| service | step, s | step, CPU s | wrappers, ms | wrappers, CPU ms | threads, CPU ms | share of the CPU |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, found in measured.items():
        print(_row(name, found))


def _row(name: str, found: Measured) -> str:
    wall, cpu, *ours = (statistics.median(times) for times in vars(found).values())
    if name == ALONE:
        return f"| {name} | {wall:.2f} | {cpu:.2f} | | | | |"
    cells = " | ".join(f"{1e3 * seconds:.1f}" for seconds in ours)
    return f"| {name} | {wall:.2f} | {cpu:.2f} | {cells} | {sum(ours[1:]) / cpu:.2%} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    main(parser.parse_args().rounds)
