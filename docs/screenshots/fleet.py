"""A small fleet trained for its pictures: the runs are the lab's, named as people name theirs, and ill for real."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import trmon_client as trmon
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import train_experiment
from trmon.lab.grpo.injections import Injection, Onset, injected

PROJECT = "math"
SILENT, SILENT_STEPS = "tool-use-7b", 20
LIVING_STEP_SECONDS = 2.0
"""How long a run that lives takes for a step once it has reached the steps that the pictures show."""


@dataclass(frozen=True)
class Trainee:
    """One run of the fleet; a `blind` one does not send what tells engines and updates apart."""

    name: str
    owner: str
    tags: tuple[str, ...]
    n_steps: int
    injection: Injection | None = None
    blind: bool = False

    @property
    def config(self) -> ExperimentConfig:
        """The lab's configuration of it, of a run that never ends."""
        return injected(self.injection, seed=0, n_steps=sys.maxsize, onset=Onset(40))


STALE = Trainee("qwen3-8b-grpo", "ana", ("dapo", "async"), 90, Injection.STALE)
LIVING = (
    Trainee("llama-70b-rlvr", "ben", ("rlvr",), 120),
    Trainee("moe-30b-dapo", "ana", ("dapo", "moe"), 70, Injection.ROUTER),
    Trainee("qwen3-4b-fp8", "chen", ("fp8",), 30, blind=True),
    STALE,
)
FINISHED = Trainee("code-agent-14b", "chen", ("agent",), 110)
CRASHED = Trainee("tool-use-32b", "ben", ("tools",), 25)


@dataclass(frozen=True)
class Blind:
    """A monitor whose trainer passes the least there is."""

    monitor: trmon.Monitor

    def log_batch(self, **given: Any) -> Any:
        """Report two of the three log-probs."""
        kept = ("step", "update", "chunks", "mask", "rollout_logprobs", "logprobs", "rewards")
        return self.monitor.log_batch(**{name: given[name] for name in kept if name in given})

    def log_scalars(self, step: int, values: Mapping[str, float], /) -> None:
        """Say nothing."""


@dataclass
class Fleet:
    """Trainers of one service; those that live go on, slowly, until the end."""

    url: str
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def train(self) -> None:
        """Train every run to where the pictures show it."""
        self._fall_silent()
        self._finish(FINISHED)
        with suppress(MemoryError):
            self._finish(CRASHED, error=MemoryError("CUDA out of memory"))
        for trainee in LIVING:
            self._live(trainee)

    def end(self) -> None:
        """Let the living finish."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _finish(self, trainee: Trainee, *, error: Exception | None = None) -> None:
        with self._start(trainee) as monitor:
            for result in train_experiment(trainee.config, monitor):
                if result.update + 1 == trainee.n_steps:
                    break
            if error is not None:
                raise error

    def _live(self, trainee: Trainee) -> None:
        """Return when the run has reached its steps; it goes on in a thread of its own."""
        reached = threading.Event()

        def go() -> None:
            with self._start(trainee) as monitor:
                for result in train_experiment(trainee.config, Blind(monitor) if trainee.blind else monitor):
                    if result.update + 1 >= trainee.n_steps:
                        reached.set()
                        if self._over.wait(LIVING_STEP_SECONDS):
                            break

        self._threads.append(threading.Thread(target=go))
        self._threads[-1].start()
        reached.wait()

    def _fall_silent(self) -> None:
        """Kill a trainer in the middle of its work."""
        command = [sys.executable, "-m", "trmon", "lab", "--url", self.url, "--project", PROJECT, "--run", SILENT]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:  # noqa: S603 - our own
            assert trainer.stdout is not None
            for _, _line in zip(range(SILENT_STEPS), trainer.stdout, strict=False):
                pass
            trainer.kill()

    def _start(self, trainee: Trainee) -> trmon.Monitor:
        config = {
            "model": trainee.name,
            "lr": trainee.config.learning_rate.start,
            "n_prompts": trainee.config.n_prompts,
        }
        return trmon.init(
            project=PROJECT, run=trainee.name, url=self.url, owner=trainee.owner, tags=trainee.tags, config=config
        )
